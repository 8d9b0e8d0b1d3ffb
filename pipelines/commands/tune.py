"""`doit tune`: measure the kernels of a recipe's layers here, and say what that gains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines import tables
from pipelines.load import Resolved
from pipelines.machine import processor
from pipelines.overrides import Variables
from pipelines.plan import Plan
from pipelines.tuning import ledger
from pipelines.tuning.candidates import Layer
from pipelines.tuning.snapshot import PREDICTED, best_of, better_of
from pipelines.tuning.trials import Tuner

TRIALS = 16
"""Kernels tried per layer where the recipe does not say."""


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Measure what the ledger does not hold yet and print the best kernel of every workload."""
    count = resolved.recipe.schedule.trials or TRIALS
    tuner = Tuner(replace(plan, snapshot=PREDICTED), resolved.hardware, print)
    tuner.run(count)
    rows = [_row(layer) for layer in tuner.layers]
    if not rows:
        print(f"{resolved.name} has no layer whose kernel could be chosen")
        return
    title = f"{resolved.name}: {processor()}, 1 thread, each kernel alone, {count} trials a layer"
    shown = [
        {
            "layer": row["layer"] + (f" and {row['count'] - 1} alike" if row["count"] > 1 else ""),
            "predicted best": row["predicted"],
            "us": tables.microseconds(row["predicted_seconds"]),
            "measured best": row["best"],
            "takes": f"{row['ratio']:.2f} of it" if row["ratio"] is not None else "",
            "tried": row["tried"],
            "failed": row["failed"] or "",
        }
        for row in rows
    ]
    tables.show(title, shown, list(shown[0]))
    gain = tuner.gain()
    print(
        f"with the measured choices these kernels take {gain:.2f} of their time as predicted; "
        f"doit build recipe={resolved.name} schedule.trials={count} uses them"
    )
    if (out := variables.command.get("out")) is not None:
        ledger.export((trial for layer in tuner.layers for trial in layer.trials), Path(out))
        print(f"written: {out}")
    result = {"recipe": resolved.name, "processor": processor(), "trials": count}
    tables.write_json(variables.command.get("json"), result | {"gain": gain, "layers": rows})


def _row(layer: Layer) -> dict[str, Any]:
    best, chosen = best_of(layer.trials), better_of(layer.trials)
    return {
        "layer": layer.name,
        "count": layer.count,
        "workload": layer.subject.workload.name,
        "predicted": layer.default.kernel,
        "predicted_seconds": best.against_seconds if best else None,
        "best": f"{chosen.kernel} {chosen.schedule}".strip() if chosen else "the same",
        "ratio": chosen.ratio if chosen else None,
        "tried": len(layer.trials),
        "failed": sum(trial.failed is not None for trial in layer.trials),
        "trials": [t.model_dump(mode="json", exclude_none=True) for t in layer.trials],
    }
