"""`doit report`: one page about a built recipe, as a single HTML file."""

from __future__ import annotations

from typing import Any

from pipelines.benchmarks.result_origin import revision
from pipelines.builds import publication
from pipelines.builds.plan import Plan
from pipelines.errors import UserError, shown
from pipelines.output import printed_tables
from pipelines.paths import expanded
from pipelines.recipe.overrides import Variables
from pipelines.recipe.resolved import Resolved
from pipelines.reporting.accuracy_files import read
from pipelines.reporting.page_file import write
from pipelines.reporting.report_facts import Facts, gather
from pipelines.reporting.report_page import page
from pipelines.runners.package import open_package


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Write the page to out=FILE.html, or to artifacts/reports; bench=FILE adds measured times,
    accuracy=FILE,... rates of right answers and what layers cost; json=FILE has its sums."""
    package = open_package(publication.package_folder_of(plan))
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
    printed_tables.write_json(variables.command.get("json"), _figures(resolved.name, facts))


def _figures(recipe: str, facts: Facts) -> dict[str, Any]:
    """The sums of the page as plain data; memory is that of one thread."""
    return {
        "recipe": recipe,
        "macs": facts.macs,
        "cycles_predicted": facts.cycles,
        "weights_bytes": facts.weights,
        "memory_bytes": facts.arena.size(1),
        "float_weights_bytes": facts.float_weights,
        "float_memory_bytes": facts.float_arena,
        "exactness": list(facts.exactness),
    }
