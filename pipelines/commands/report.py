"""`doit report`: one page about a built recipe, as a single HTML file."""

from __future__ import annotations

from pipelines import actions
from pipelines.benching.origin import revision
from pipelines.errors import UserError, shown
from pipelines.load import Resolved
from pipelines.overrides import Variables
from pipelines.paths import expanded
from pipelines.plan import Plan
from pipelines.reporting.gathering import gather
from pipelines.reporting.page import page
from pipelines.reporting.rated import read
from pipelines.reporting.writing import write
from pipelines.runners.package import open_package


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Write the page to out=FILE.html, or to artifacts/reports; bench=FILE adds measured times,
    accuracy=FILE,... rates of right answers and what layers cost."""
    package = open_package(actions.published(plan))
    bench = variables.command.get("bench")
    files = [expanded(f) for f in (variables.command.get("accuracy") or "").split(",") if f]
    rated = read(files)
    for path, said in zip(files, rated, strict=True):
        if said.recipe != resolved.name:
            raise UserError(
                f"accuracy={shown(path)}: is of the recipe {said.recipe}, and the report of "
                f"{resolved.name}"
            )
    facts = gather(plan, resolved, expanded(bench) if bench is not None else None, rated)
    origin = f"{resolved.hardware.name}: {resolved.hardware.description or resolved.hardware.core}"
    text = page(resolved, package.manifest, facts, f"{origin}; bitkiln {revision()}")
    write(text, variables.command.get("out"), plan.package)
