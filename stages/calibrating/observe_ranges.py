"""Running a float model on calibration samples and seeing its tensors, one sample at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from stages.calibrating.calibration_methods import METHODS, Range
from stages.calibrating.histograms import Extremes, Histogram
from stages.dialect.calls import shape_of
from stages.errors import StageError
from stages.graph import interpret
from stages.kinds import Array, Golden, Model

Sample = Mapping[str, Array]
Ranges = Mapping[str, Callable[[int, bool], Range]]
"""Name of a variable → number of levels and whether the grid is symmetric → range."""


def samples_of(model: Model, calibration: Golden) -> list[Sample]:
    """The calibration inputs as one mapping a sample; StageError if they are not the model's."""
    main = model.module["main"]
    inputs = {
        str(each.name): shape_of(each.ty) for each in main.params[: int(main.attrs["num_input"])]
    }
    given = calibration.inputs
    if set(given) != set(inputs):
        raise StageError(
            f"the calibration data has the inputs {sorted(given)}, and the model {sorted(inputs)}"
        )
    counts = {len(values) for values in given.values()}
    if len(counts) != 1 or 0 in counts:
        raise StageError(
            f"the calibration data has {sorted(counts)} samples; every input needs as many, and "
            "at least one"
        )
    for name, shape in inputs.items():
        if given[name].shape[1:] != shape:
            raise StageError(
                f"the calibration data of '{name}' has samples of shape "
                f"{list(given[name].shape[1:])}, and the model takes {list(shape)}"
            )
    return [{name: given[name][at] for name in inputs} for at in range(counts.pop())]


def ranges(model: Model, samples: Sequence[Sample], names: Sequence[str], method: str) -> Ranges:
    """The ranges of the named variables of `main` by a method of METHODS.

    One pass over the samples for `minmax`, two for the other methods.
    """
    extremes = {name: Extremes() for name in names}
    for sample in samples:
        for name, values in _values(model, sample, extremes):
            if not np.isfinite(values).all():
                raise StageError(
                    "is infinite or NaN on the calibration data",
                    layer=name,
                    hint="check how its inputs are scaled",
                )
            extremes[name].add(values)
    histograms = {name: Histogram(found) for name, found in extremes.items()}
    if method != "minmax":
        for sample in samples:
            for name, values in _values(model, sample, histograms):
                histograms[name].add(values)

    def by_method(histogram: Histogram) -> Callable[[int, bool], Range]:
        return lambda levels, symmetric: METHODS[method](histogram, levels, symmetric)

    return {name: by_method(histogram) for name, histogram in histograms.items()}


def _values(model: Model, sample: Sample, wanted: Collection[str]) -> Iterator[tuple[str, Array]]:
    """Each wanted variable of `main` with its value on a sample."""
    seen: list[tuple[str, Array]] = [(name, sample[name]) for name in sample if name in wanted]

    def observe(name: str, value: Array) -> None:
        if name in wanted:
            seen.append((name, value))

    interpret.run(model, sample, observe=observe)
    yield from seen
