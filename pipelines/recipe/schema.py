"""JSON schemas of recipes and boards: `python -m pipelines.recipe.schema` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hw.profile import Hardware
from pipelines import work_folder
from pipelines.documents.board_files import BOARDS
from pipelines.recipe.recipe import Recipe

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Items of lists are whole: `extends` replaces a list, so what one requires must stand in it.
_WHOLE = ("LayerOverride", "LayerAlgorithm")


def recipe_schema() -> dict[str, Any]:
    """Return the schema of one recipe file, where `extends` may supply any field."""
    schema = Recipe.model_json_schema()
    schema.pop("required", None)
    for name, part in schema["$defs"].items():
        if name not in _WHOLE:
            part.pop("required", None)
    return {"$schema": DIALECT, **schema, "title": "bitkiln recipe"}


def board_schema() -> dict[str, Any]:
    """Return the schema of one board file: a profile without its name, or `detect: true`."""
    schema = Hardware.model_json_schema()
    del schema["properties"]["name"]
    required = [name for name in schema.pop("required") if name != "name"]
    schema["properties"]["detect"] = {
        "const": True,
        "description": "Find out what the processor at hand can do, instead of stating it.",
    }
    schema["anyOf"] = [{"required": ["detect"]}, {"required": required}]
    return {"$schema": DIALECT, **schema, "title": "bitkiln board"}


def files() -> dict[Path, str]:
    """Return the generated files and their text."""
    return {
        work_folder.SHIPPED / "schema.json": _text(recipe_schema()),
        BOARDS / "schema.json": _text(board_schema()),
    }


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
