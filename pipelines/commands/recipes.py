"""`doit recipes`: the recipes there are."""

from __future__ import annotations

from pipelines.errors import UserError
from pipelines.output import printed_tables
from pipelines.recipe import load
from pipelines.recipe.overrides import Variables


def run(*, variables: Variables) -> None:
    """Print each recipe with its description and hardware, or what is wrong with it."""
    rows = []
    for name, _description in load.list_recipes():
        try:
            found = load.load_recipe(name)
        except UserError as error:
            first = error.message.splitlines()[0]
            rows.append({"recipe": name, "hardware": None, "description": f"broken: {first}"})
            continue
        hardware, text = found.recipe.hardware, found.recipe.description
        rows.append({"recipe": name, "hardware": hardware, "description": text})
    if not rows:
        print("no recipes yet; doit import FILE writes one")
    printed_tables.show("recipes", rows, ["recipe", "hardware", "description"])
    printed_tables.write_json(variables.command.get("json"), rows)
