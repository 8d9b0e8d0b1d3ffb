"""`doit verify`: golden vectors after every stage and in the package; which departs first."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from pipelines.builds import opened_package
from pipelines.builds.execution import Workshop
from pipelines.builds.plan import Plan
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
    workshop = Workshop(plan)
    rows: list[dict[str, Any]] = []
    for stage, found, seconds in verification.after_stages(workshop):
        rows += _told(_rows(stage, found, round(seconds, 3)))
    if said := left_in_float.overflowing(workshop):
        print(said)
    boards = reached(variables.command.get("board"), resolved.hardware)
    for board in boards or (None,):
        counts = THREADS if board else opened_package.threads(plan, THREADS)
        rows += _library(workshop, (wanted,) if wanted else counts, board)
        unequal = "close" if any(row["verdict"] == "close" for row in rows) else "departs"
        rows += _program(plan, (wanted,) if wanted else THREADS, unequal, board)
    passes = variables.command.get("passes")
    layers = _layers(workshop, variables.command.get("layer", ALL if passes else None), passes)
    result = {"recipe": resolved.name, "rows": rows, "layers": layers}
    printed_tables.write_json(variables.command.get("json"), result)
    strayed = [row for row in layers if row["verdict"] == "departs"]
    if strayed:
        raise CheckError(
            f"layer '{strayed[0]['layer']}' is the first to depart, in {_place(strayed[0])}: "
            f"{strayed[0]['detail']}"
        )
    departed = [row for row in rows if row["verdict"] == "departs"]
    if departed:
        raise CheckError(
            f"{departed[0]['stage']} is the first to depart from the source graph: "
            f"{departed[0]['detail']}"
        )


def _library(
    workshop: Workshop, threads: tuple[int, ...], board: Transport | None
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    try:
        for count, found, how in verification.in_package(workshop, threads, board):
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


def _place(row: dict[str, Any]) -> str:
    """A stage and, where passes were run, the pass."""
    return f"{row['stage']} after {row['after_pass']}" if row["after_pass"] else str(row["stage"])


def _layers(workshop: Workshop, pattern: str | None, passes: str | None) -> list[dict[str, Any]]:
    """Compare layer by layer where that was asked for; the first that departs stands first."""
    if pattern is None:
        return []
    found = layerwise.by_layer(workshop, pattern, passes)
    width = 44 if passes else 28
    rows = [{**asdict(item), "verdict": item.verdict, "detail": str(item)} for item in found]
    for stage, name in dict.fromkeys((item.stage, item.after_pass) for item in found):
        group = [item for item in found if (item.stage, item.after_pass) == (stage, name)]
        counts = Counter(item.verdict for item in group)
        said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        print(f"{f'{stage}, {name}' if name else f'{stage}, by layer':<{width}} {said}")
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
