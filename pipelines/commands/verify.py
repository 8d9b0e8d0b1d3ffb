"""`doit verify`: golden vectors after every stage and in the package; which departs first."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from pipelines.builds import opened_package
from pipelines.builds.plan import Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.commands import arguments
from pipelines.errors import CheckError
from pipelines.evaluation import comparison, layerwise, left_in_float, verification
from pipelines.output import printed_tables
from pipelines.recipe.layer_patterns import ALL
from pipelines.recipe.overrides import Variables
from pipelines.recipe.resolved import Resolved
from pipelines.remote.transport import Transport, reached

THREADS = (1, 2, 3)


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Print one line an output and stage; fail if any departs from the source graph.

    layer=PATTERN, or layer=all, compares layer by layer too, and says which departs first; with
    passes=all, after every pass. With board= the package runs on those boards instead of here.
    """
    wanted = arguments.threads(variables)
    execution = PlanExecution(plan)
    rows: list[dict[str, Any]] = []
    for stage, found, seconds in verification.after_stages(execution):
        rows += _told(_rows(stage, found, round(seconds, 3)))
    if said := left_in_float.overflowing(execution):
        print(said)
    passes = variables.command.get("passes")
    pattern = variables.command.get("layer", ALL if passes else None)
    found_by_layer = layerwise.by_layer(execution, pattern, passes) if pattern else None
    layers = _layers(found_by_layer, pattern) if found_by_layer and pattern else []
    boards = reached(variables.command.get("board"), resolved.hardware)
    for board in boards or (None,):
        counts = THREADS if board else opened_package.threads(plan, THREADS)
        rows += _library(execution, (wanted,) if wanted else counts, board)
        unequal = "close" if any(row["verdict"] == "close" for row in rows) else "departs"
        rows += _program(plan, (wanted,) if wanted else THREADS, unequal, board)
    result = {"recipe": resolved.name, "rows": rows, "layers": layers}
    printed_tables.write_json(variables.command.get("json"), result)
    if found_by_layer and (first := _first_departing(found_by_layer)):
        raise CheckError(first)
    departed = [row for row in rows if row["verdict"] == "departs"]
    if departed:
        raise CheckError(
            f"{departed[0]['stage']} is the first to depart from the golden samples: "
            f"{departed[0]['detail']}"
        )


def _library(
    execution: PlanExecution, threads: tuple[int, ...], board: Transport | None
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    try:
        for count, found, how in verification.in_package(execution, threads, board):
            rows += _told(_rows(f"library {how}, {_threads(count)}", found, None))
    except opened_package.UnavailableError as why:
        rows += _told([_not_run("library", why)])
    return rows


def _program(
    plan: Plan, threads: tuple[int, ...], unequal: str, board: Transport | None
) -> list[dict[str, Any]]:
    """Run the package's own program, which compares bits; `unequal` is then the verdict."""
    rows: list[dict[str, Any]] = []
    try:
        for count in threads:
            said, how = opened_package.replays(plan, count, board)
            verdict = "exact" if said.is_equal else unequal
            stage = f"program {how}, {_threads(count)}"
            rows += _told([{"stage": stage, "verdict": verdict, "detail": said.text}])
    except opened_package.UnavailableError as why:
        rows += _told([_not_run("program", why)])
    return rows


def _first_departing(found: layerwise.Found) -> str | None:
    """What to say of the first stage or pass after which a layer or an output departs."""
    for stage, name, outputs in found.outputs:
        place = f"{stage} after {name}" if name else stage
        for layer in found.layers:
            if (layer.stage, layer.after_pass, layer.verdict) == (stage, name, "departs"):
                return f"layer '{layer.layer}' is the first to depart, in {place}: {layer}"
        for item in outputs:
            if item.verdict == "departs":
                said = comparison.describe(item)
                return f"outputs are the first to depart, in {place}: {said}"
    return None


def _layers(found: layerwise.Found, pattern: str) -> list[dict[str, Any]]:
    """Tell, stage by stage or pass by pass, how layers and outputs compare; return the layers."""
    passes = any(name for _, name, _ in found.outputs)
    width = 44 if passes else 28
    rows = [{**asdict(item), "verdict": item.verdict, "detail": str(item)} for item in found.layers]
    for stage, name, outputs in found.outputs:
        group = [item for item in found.layers if (item.stage, item.after_pass) == (stage, name)]
        counts = Counter(item.verdict for item in group)
        said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        gave = "; ".join(dict.fromkeys(f"outputs {item.verdict}" for item in outputs))
        told = "; ".join(part for part in (said, gave) if part)
        print(f"{f'{stage}, {name}' if name else f'{stage}, by layer':<{width}} {told}")
    if pattern == ALL:
        shown = [row for row in rows if row["verdict"] not in ("exact", "new")]
    else:
        shown = rows
    columns = ["stage", *(["after_pass"] if passes else []), "layer", "verdict", "detail"]
    printed_tables.show("layers", shown, columns)
    return rows


def _rows(
    stage: str, found: list[comparison.Comparison], seconds: float | None
) -> list[dict[str, Any]]:
    return [
        {
            "stage": stage,
            "verdict": item.verdict,
            "detail": comparison.describe(item),
            "seconds": seconds,
            **asdict(item),
        }
        for item in found
    ]


def _not_run(what: str, why: opened_package.UnavailableError) -> dict[str, Any]:
    return {"stage": what, "verdict": "not run", "detail": str(why)}


def _told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        print(f"{row['stage']:<28} {row['verdict']:<8} {row['detail']}", flush=True)
    return rows


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"
