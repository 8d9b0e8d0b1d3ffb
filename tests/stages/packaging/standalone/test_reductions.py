"""Extremes and where they are, exact in whatever form processors compare them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages.graph.bindings import calls_of
from stages.kinds import Model
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact
from tests.targets import AARCH64, ARMV7, AVX2, AVX512BW, SSE2, skip_unless_runnable

Array = np.ndarray[Any, Any]
op = relax.op

TARGETS = pytest.mark.parametrize(
    "hardware", (SSE2, AVX2, AVX512BW, AARCH64, ARMV7), ids=lambda profile: profile.name
)
SHAPE = (2, 3, 5, 21)
AXES = (None, [0], [1, 2], [1, 2, 3], [1, 3], [-1])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "float32"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("hardware", (AVX2, AVX512BW, AARCH64), ids=lambda profile: profile.name)
def test_positions_of_extremes(dtype: str, axis: int, hardware: Hardware) -> None:
    """The first of equal ones, of both ends of a type too, as the source model has it."""
    skip_unless_runnable(hardware)
    net = Net(SHAPE, dtype)
    limits = (-7, 7) if dtype == "float32" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = net.rng.choice([*limits, 0, 1], net.shape).astype(dtype)
    found = [net.emit(find(net.x, axis), find.__name__) for find in (op.argmax, op.argmin)]
    model = net.model(*found)
    assert_exact(model, {"x": x}, hardware, tasks=(1, 3))


def extremes(axis: list[int] | None, before: Callable[[Any], Any] | None) -> tuple[Net, Model]:
    """The largest and the smallest floats, each of values that are computed for it alone."""
    net = Net(SHAPE, "float32")
    results = []
    for number, find in enumerate((op.max, op.min)):
        x = net.x if before is None else net.emit(before(net.x), f"before{number}")
        results.append(net.emit(find(x, axis, keepdims=bool(number)), find.__name__))
    return net, net.model(*results)


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("before", [None, op.abs], ids=["as they are", "sizes"])
@TARGETS
def test_extremes_of_floats(
    axis: list[int] | None, before: Callable[[Any], Any] | None, hardware: Hardware
) -> None:
    """Of either sign, of all sizes that there are."""
    skip_unless_runnable(hardware)
    net, model = extremes(axis, before)
    largest = float(np.finfo(np.float32).max)
    values = [np.inf, -np.inf, largest, -largest, 0.0, 1e-45, -1e-45, *net.rng.normal(size=99)]
    for sign in (-1, 0, 1):
        chosen = [value for value in values if sign in (0, np.sign(value))]
        x = net.rng.choice(chosen, SHAPE).astype(np.float32)
        assert_exact(model, {"x": x}, hardware, tasks=(1, 3))


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_what_an_extreme_alone_reads_is_computed_on_the_way(axis: list[int] | None) -> None:
    net, model = extremes(axis, op.abs)
    packed, _ = assert_exact(model, {"x": net.rng.normal(size=SHAPE).astype(np.float32)}, AVX2)
    assert len(calls_of(packed)) == 2
