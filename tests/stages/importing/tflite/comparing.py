"""A file imported and executed, next to LiteRT's reference kernels on the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from stages.graph import interpret
from stages.importing import run
from stages.options import ImportOptions
from tests.stages.importing.compiling import in_relax
from tests.stages.importing.tflite_models import Tensor, constant, run_reference

Array = np.ndarray[Any, Any]
LIMITS = {name: np.iinfo(name) for name in ("int8", "uint8", "int16", "int32")}

thorough = settings(max_examples=100)
"""How often a property is tried against the reference."""
a_few = settings(max_examples=12)
"""How often one is tried where every case is compiled."""


def imported(source: bytes, *inputs: Array) -> list[Array]:
    """Outputs of a file as imported and executed in NumPy, inputs in graph order."""
    model = run(source=source, options=ImportOptions())
    names = [str(parameter.name) for parameter in model.module["main"].params[: len(inputs)]]
    results = interpret.run(model, dict(zip(names, inputs, strict=True)))
    return list(results.values())


def compiled(source: bytes, *inputs: Array) -> Array:
    """The single output of a file as imported, compiled by TVM from the operators' expressions."""
    model = run(source=source, options=ImportOptions())
    names = [str(parameter.name) for parameter in model.module["main"].params[: len(inputs)]]
    return in_relax(model, dict(zip(names, inputs, strict=True)))


def agrees(source: bytes, *inputs: Array) -> list[Array]:
    """Asserts that what was imported gives the reference's outputs, bit for bit; returns them."""
    expected = run_reference(source, *inputs)
    found = imported(source, *inputs)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert np.array_equal(ours, theirs), f"{ours[ours != theirs]} not {theirs[ours != theirs]}"
    return found


def stored(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> Array:
    """Random stored integers over the whole range of a type, its ends among them."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    values = rng.integers(low, high + 1, shape)
    return np.where(rng.random(shape) < 0.1, rng.choice([low, high], shape), values).astype(dtype)


def quantized(
    draw: st.DrawFn, shape: Sequence[int], dtype: str, *, symmetric: bool = False
) -> Tensor:
    """A quantized tensor of any scale and zero point."""
    low, high = LIMITS[dtype].min, LIMITS[dtype].max
    zero_point = 0 if symmetric or dtype == "int16" else draw(st.integers(int(low), int(high)))
    return Tensor(tuple(shape), dtype, scale=draw(SCALES), zero_point=zero_point)


def scale_of(tensor: Tensor) -> float:
    """The smallest scale of a quantized tensor."""
    assert tensor.scale is not None
    return float(np.min(np.asarray(tensor.scale, np.float32)))


SCALES = st.floats(1 / 1024, 0.5, width=32)
SEEDS = st.integers(0, 1 << 31)
TYPES = st.sampled_from(["int8", "uint8"])

__all__ = [
    "LIMITS",
    "SCALES",
    "SEEDS",
    "TYPES",
    "Tensor",
    "a_few",
    "agrees",
    "compiled",
    "constant",
    "imported",
    "quantized",
    "scale_of",
    "stored",
    "thorough",
]
