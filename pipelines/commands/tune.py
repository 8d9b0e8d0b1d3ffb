"""`doit tune`: measure the kernels of a recipe's layers, here or on boards; what that gains."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from pipelines.builds.plan import Plan
from pipelines.commands import arguments
from pipelines.output import printed_tables
from pipelines.recipe.overrides import Variables
from pipelines.recipe.resolved import Resolved
from pipelines.remote.timed_turns import TurnLengths
from pipelines.remote.transport import reached
from pipelines.tuning import ledger
from pipelines.tuning.candidates import TunedWorkload
from pipelines.tuning.measured_choices import NONE_MEASURED, best_of, better_of, capped_of
from pipelines.tuning.trials import Group, Tuner

TRIALS = 16
"""Kernels tried per layer where the recipe does not say."""
TRIALS_OF = "schedule.trials"
"""The field that says it."""


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Measure what the ledger does not hold yet and print the best kernel of every workload.

    repeat=N has each kernel timed in so many rounds.
    """
    count = resolved.recipe.schedule.trials or TRIALS
    timing = TurnLengths(rounds=arguments.repeat(variables) or TurnLengths.rounds)
    boards = reached(variables.command.get("board"), resolved.hardware)
    predicted = replace(plan, measured_choices=NONE_MEASURED)
    # The last line is redrawn on a terminal alone.
    with Console().status(f"{resolved.name} is built") as status:
        tuner = Tuner(predicted, resolved.hardware, print, boards, timing, shown=status.update)
        tuner.run(count)
    for group in tuner.groups:
        _tell(group, resolved, count)
    if (out := variables.command.get("out")) is not None:
        found = (trial for g in tuner.groups for layer in g.layers for trial in layer.trials)
        ledger.export(found, Path(out))
        print(f"written: {out}")
    results = [_result(group) for group in tuner.groups]
    result = {"recipe": resolved.name, "trials": count, **results[0]}
    others = {"others": results[1:]} if results[1:] else {}
    printed_tables.write_json(variables.command.get("json"), result | others)


def _tell(group: Group, resolved: Resolved, count: int) -> None:
    rows = [_row(layer) for layer in group.layers]
    if not rows:
        print(f"{resolved.name} has no layer whose kernel could be chosen")
        return
    title = (
        f"{resolved.name}: {group.machine.processor}, 1 thread, each kernel alone, "
        f"{count} trials a layer"
    )
    shown = [
        {
            "layer": row["layer"] + (f" and {row['count'] - 1} alike" if row["count"] > 1 else ""),
            "predicted best": row["predicted"],
            "us": printed_tables.microseconds(row["predicted_seconds"]),
            "measured best": row["best"],
            "takes": f"{row['ratio']:.2f} of it" if row["ratio"] is not None else "",
            "tried": row["tried"],
            "failed": row["failed"] or "",
        }
        for row in rows
    ]
    printed_tables.show(title, shown, list(shown[0]))
    reasons = Counter(trial.failed for layer in group.layers for trial in layer.trials)
    for reason, number in reasons.most_common():
        if reason is not None:
            print(f"{number} failed: {reason}")
    print(
        f"with the measured choices these kernels take {group.gain():.2f} of their time as "
        f"predicted; doit build {resolved.arguments(**{TRIALS_OF: str(count)})} uses them"
    )


def _result(group: Group) -> dict[str, Any]:
    rows = [_row(layer) for layer in group.layers]
    return {"processor": group.machine.processor, "gain": group.gain(), "layers": rows}


def _row(layer: TunedWorkload) -> dict[str, Any]:
    best, chosen = best_of(layer.trials), better_of(layer.trials)
    runs = layer.uncapped
    limited = capped_of(layer.trials, runs.kernel, runs.order, runs.rows)
    limit = f" in {limited.max_tasks} tasks at most" if limited is not None else ""
    return {
        "layer": layer.name,
        "count": layer.count,
        "workload": layer.kernels.workload.name,
        "predicted": layer.default.kernel,
        "predicted_seconds": best.against_seconds if best else None,
        "best": (f"{chosen.kernel} {chosen.schedule}".strip() if chosen else "the same") + limit,
        "ratio": chosen.ratio if chosen else None,
        "tried": len(layer.trials),
        "failed": sum(trial.failed is not None for trial in layer.trials),
        "trials": [t.model_dump(mode="json", exclude_none=True) for t in layer.trials],
    }
