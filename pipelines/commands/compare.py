"""`doit compare`: several built recipes beside each other, on one page."""

from __future__ import annotations

from pipelines.builds import plan as planning
from pipelines.builds import publication
from pipelines.builds.plan_execution import PlanExecution
from pipelines.errors import UserError
from pipelines.output import printed_tables
from pipelines.paths import expanded
from pipelines.recipe import load
from pipelines.recipe.overrides import Variables
from pipelines.reporting import recipe_comparison
from pipelines.reporting.accuracy_files import rates
from pipelines.reporting.page_file import write
from pipelines.reporting.recipe_comparison import Entry
from pipelines.reporting.report_facts import gather
from pipelines.reporting.report_page import comparison
from pipelines.runners.package import open_package

EXAMPLE = "doit compare recipes=resnet18_a1w1_host,resnet18_a2w2_host"


def run(*, variables: Variables) -> None:
    """Print a table, and write the page to out=FILE.html; accuracy=FILE,... has rates."""
    names = [name for name in (variables.command.get("recipes") or "").split(",") if name]
    if len(names) < 2:
        raise UserError(f"recipes=: name two or more, for example: {EXAMPLE}")
    files = [expanded(f) for f in (variables.command.get("accuracy") or "").split(",") if f]
    rated = rates(files)
    entries = [_entry(name, rated) for name in dict.fromkeys(names)]
    best = recipe_comparison.pareto_front(entries)
    rows = [
        {
            "recipe": entry.name,
            "MMAC": f"{entry.facts.macs / 1e6:,.0f}",
            "M cycles predicted": f"{entry.megacycles:,.2f}",
            "MiB": f"{entry.mebibytes:.2f}",
            "right answers": "" if entry.rate is None else f"{entry.rate:.2%}",
            "on the front": "yes" if entry in best else "",
        }
        for entry in entries
    ]
    printed_tables.show("recipes beside each other", rows, list(rows[0]))
    write(comparison(entries), variables.command.get("out"), "compare")


def _entry(name: str, rated: dict[str, float]) -> Entry:
    resolved = load.load_recipe(name)
    plan = planning.of(resolved)
    if not PlanExecution(plan).is_current(publication.package_step(plan)):
        raise UserError(f"{name} is not built; run: doit build recipe={name}")
    package = open_package(publication.package_folder_of(plan))
    library = package.manifest["files"].get(f"lib{package.name}.so", {}).get("bytes")
    facts = gather(plan, resolved, None)
    return Entry(resolved.name, resolved.hardware.name, facts, library, rated.get(resolved.name))
