"""How outputs compare with those of the source graph: exact, close, or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.errors import CheckError

if TYPE_CHECKING:
    # A build whose package is known to be right needs neither NumPy nor a runner.
    import numpy as np

    from stages.kinds import Golden

    Array = np.ndarray[Any, Any]
    Execute = Callable[[Mapping[str, Array]], Mapping[str, Array]]


CLOSE = 1e-4
"""Relative to the largest value: as near as float arithmetic in another order comes. A ResNet-50
in float32 departs from float64 sums by 1.4e-5 here, by 0.8e-5 in ONNX Runtime."""
CLOSE_OF_BFLOAT16 = 0.05
"""The same where a recipe asks for bfloat16, of 8 bits a factor: ResNet-18 departs by 0.01."""

RARE = 1e-4
"""The share of an output's levels that may be the next one. A float graph whose scales are no
powers of two rounds every product of levels; a sum so near the boundary of two levels that this
decides is no error of either side: float arithmetic in another order decides otherwise, too."""
MOST_LEVELS = 256
"""Distinct values of an output that a quantizer of up to 8 bits gives."""


@dataclass(frozen=True)
class Comparison:
    """One output over all samples beside what the source graph gives."""

    output: str
    samples: int
    values: int
    differing: int
    largest_difference: float
    largest_value: float
    mean_difference: float = 0.0
    tolerance: float = CLOSE
    """How far a float output may be from the source graph's, relative to the largest value."""
    step: float = 0.0
    """The distance of neighbouring levels, of a float output that a quantizer gives."""

    @property
    def verdict(self) -> str:
        """exact; close, for float outputs that differ by rounding alone; or departs."""
        if self.differing == 0:
            return "exact"
        is_close = self.largest_difference <= self.tolerance * self.largest_value
        is_rare = self.differing <= RARE * self.values
        is_next = self.largest_difference <= (1 + self.tolerance) * self.step
        return "close" if is_close or (is_rare and is_next) else "departs"


def compare(golden: Golden, run: Execute, tolerance: float = CLOSE) -> list[Comparison]:
    """Run every sample and compare every output with the golden one."""
    import numpy as np

    samples = len(next(iter(golden.inputs.values())))
    given: dict[str, list[Array]] = {name: [] for name in golden.outputs}
    for index in range(samples):
        outputs = run({name: array[index] for name, array in golden.inputs.items()})
        if set(outputs) != set(given):
            raise CheckError(f"gives outputs {sorted(outputs)}, the source graph {sorted(given)}")
        for name, values in outputs.items():
            given[name].append(np.asarray(values))
    return [
        _compared(name, golden.outputs[name], found, tolerance) for name, found in given.items()
    ]


def _compared(name: str, wanted: Array, found: list[Array], tolerance: float) -> Comparison:
    import numpy as np

    stacked = np.stack(found).reshape(wanted.shape).astype(np.float64)
    expected = wanted.astype(np.float64)
    same = (stacked == expected) | (np.isnan(stacked) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(stacked - expected))
    difference = np.where(np.isnan(difference), np.inf, difference)
    is_float = wanted.dtype.kind == "f"
    return Comparison(
        output=name,
        samples=len(wanted),
        values=int(wanted.size),
        differing=int((~same).sum()),
        largest_difference=float(difference.max(initial=0.0)),
        largest_value=float(np.abs(expected).max(initial=0.0)) if is_float else 0.0,
        mean_difference=float(difference.mean()) if difference.size else 0.0,
        tolerance=tolerance,
        step=_step(expected) if is_float else 0.0,
    )


def _step(values: Array) -> float:
    """The distance of neighbouring levels among the values of a quantizer; 0 if it gave more."""
    import numpy as np

    levels = np.unique(values)
    return float(np.diff(levels).min()) if 1 < len(levels) <= MOST_LEVELS else 0.0


def describe(item: Comparison) -> str:
    """Return one phrase on how an output compares."""
    if item.differing == 0:
        return f"output '{item.output}' of {item.samples} samples equals the golden one"
    return (
        f"output '{item.output}' differs from the golden one in {item.differing} of "
        f"{item.values} values, by at most {item.largest_difference:g}{float_distance(item)}"
    )


def float_distance(item: Comparison) -> str:
    """How far floats of 16 bits are from float32 otherwise; nothing where none were asked for."""
    if item.tolerance == CLOSE or not item.differing or item.largest_difference == float("inf"):
        return ""
    whole, mean = item.largest_value or 1.0, item.mean_difference
    return (
        f", {item.largest_difference / whole:.2g} of the largest value, and by {mean:.3g}, "
        f"{mean / whole:.2g} of it, on average"
    )
