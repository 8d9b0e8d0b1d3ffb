"""`doit report`: one page about a built recipe, as a single HTML file."""

from __future__ import annotations

from pipelines import actions
from pipelines.benching.origin import revision
from pipelines.load import Resolved
from pipelines.overrides import Variables
from pipelines.paths import expanded
from pipelines.plan import Plan
from pipelines.reporting.gathering import gather
from pipelines.reporting.page import page
from pipelines.reporting.writing import write
from pipelines.runners.package import open_package


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Write the page to out=FILE.html, or to artifacts/reports; bench=FILE adds measured times."""
    package = open_package(actions.published(plan))
    bench = variables.command.get("bench")
    facts = gather(plan, resolved, expanded(bench) if bench is not None else None)
    origin = f"{resolved.hardware.name}: {resolved.hardware.description or resolved.hardware.core}"
    text = page(resolved, package.manifest, facts, f"{origin}; bitkiln {revision()}")
    write(text, variables.command.get("out"), plan.package)
