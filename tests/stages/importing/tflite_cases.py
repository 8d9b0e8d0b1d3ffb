"""Compares an imported single-operator file with TensorFlow Lite's own reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.importing.tflite import convert_file
from stages.kinds import Model
from stages.options import ImportOptions
from stages.qnn import interpret
from tests.stages.importing.tflite_models import run_reference
from tests.stages.qnn.test_legalize import in_relax

Array = np.ndarray[Any, Any]


def imported(source: bytes) -> Model:
    return convert_file(source, ImportOptions())


def fed(model: Model, inputs: tuple[Array, ...]) -> dict[str, Array]:
    main = model.module["main"]
    names = [str(parameter.name) for parameter in main.params[: int(main.attrs["num_input"])]]
    return dict(zip(names, inputs, strict=True))


def outputs_of(source: bytes, *inputs: Array, compiled: bool = True) -> Array:
    """The single output in NumPy, the same compiled."""
    model = imported(source)
    feeds = fed(model, inputs)
    (found,) = interpret.run(model, feeds).values()
    if compiled:
        again = in_relax(model, feeds)
        assert again.dtype == found.dtype
        assert np.array_equal(again, found), "compiled code differs from NumPy"
    return found


def compare(source: bytes, *inputs: Array, compiled: bool = True) -> Array:
    """The import gives exactly what the reference kernels give."""
    (expected,) = run_reference(source, *inputs)
    found = outputs_of(source, *inputs, compiled=compiled)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert np.array_equal(found, expected), (
        f"{np.count_nonzero(found != expected)} of {found.size} differ, "
        f"by up to {np.abs(found.astype(np.float64) - expected).max()}"
    )
    return found


def compare_nearly(source: bytes, *inputs: Array, ulps: float, compiled: bool = True) -> Array:
    """The import of a float operator comes within units in the last place of the largest result."""
    (expected,) = run_reference(source, *inputs)
    found = outputs_of(source, *inputs, compiled=compiled)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    unit = np.spacing(np.abs(expected).max())
    assert np.abs(found - expected).max() <= ulps * unit, np.abs(found - expected).max() / unit
    return found


def random_integers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
