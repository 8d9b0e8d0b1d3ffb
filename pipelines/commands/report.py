"""`doit report`: one page about a built recipe, as a single HTML file."""

from __future__ import annotations

from pathlib import Path

from pipelines import actions, atomic
from pipelines.benching.origin import revision
from pipelines.errors import shown
from pipelines.load import Resolved
from pipelines.overrides import Variables
from pipelines.paths import expanded
from pipelines.plan import Plan
from pipelines.reporting.gathering import gather
from pipelines.reporting.page import page
from pipelines.runners.package import open_package


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Write the page to out=FILE.html, or beside the package; bench=FILE adds what was measured."""
    package = open_package(actions.published(plan))
    bench = variables.command.get("bench")
    facts = gather(plan, resolved, expanded(bench) if bench is not None else None)
    origin = f"{resolved.hardware.name}: {resolved.hardware.description or resolved.hardware.core}"
    text = page(resolved, package.manifest, facts, f"{origin}; bitkiln {revision()}")
    stated = variables.command.get("out")
    default = actions.published(plan).parent.parent / "reports" / f"{plan.package}.html"
    target = Path(expanded(stated)) if stated is not None else default
    atomic.replace(target.absolute(), text.encode())
    print(f"written: {shown(target.absolute())}, {len(text) / 1024:.0f} KiB")
