"""How outputs compare with those of a framework's own runtime, as a row of the table says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.evaluation import comparison
from stages.kinds import Golden

Array = np.ndarray[Any, Any]
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def golden(given: Sequence[Mapping[str, Array]], outputs: Sequence[Mapping[str, Array]]) -> Golden:
    """Return inputs and outputs, sample by sample, as golden vectors."""
    return Golden(
        inputs={name: np.stack([sample[name] for sample in given]) for name in given[0]},
        outputs={name: np.stack([result[name] for result in outputs]) for name in outputs[0]},
    )


def compared(golden: Golden, run: Run) -> dict[str, Any]:
    """Return how outputs compare: the worst one's verdict, and differences by kind of output."""
    first = run({name: values[0] for name, values in golden.inputs.items()})
    for name, wanted in golden.outputs.items():
        found = np.asarray(first[name])
        if (found.dtype, found.shape) != (wanted.dtype, wanted.shape[1:]):
            return {
                "status": "differs",
                "why": f"output '{name}' is {found.dtype}{list(found.shape)}, the framework's "
                f"{wanted.dtype}{list(wanted.shape[1:])}",
            }
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        compared = comparison.compare(golden, run)
    verdicts = {item.verdict for item in compared}
    status = next(v for v in ("departs", "close", "exact") if v in verdicts)
    row: dict[str, Any] = {
        "status": "differs" if status == "departs" else status,
        "values": sum(item.values for item in compared),
        "differing": sum(item.differing for item in compared),
    }
    for kind, key in (("iub", "steps"), ("f", "difference")):
        worst = [
            item.largest_difference
            for item in compared
            if golden.outputs[item.output].dtype.kind in kind
        ]
        if worst:
            row[key] = max(worst)
    return row
