"""Sums along rows of floats, compiled, with what is computed before and behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from hw.profile import Hardware
from stages.graph.bindings import calls_of
from stages.kinds import Model
from stages.packaging.standalone.row_sums import is_row_sum
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import assert_exact, pack
from tests.targets import AARCH64, AVX2, SSE2, skip_unless_runnable

op = relax.op
EVERY = pytest.mark.parametrize(
    "hardware",
    [SSE2, AVX2, pytest.param(AARCH64, marks=pytest.mark.slow)],
    ids=lambda item: item.name,
)


def wholes(net: Net) -> dict[str, Any]:
    """Whole numbers, whose sums are exact in any order."""
    return {"x": net.rng.integers(-99, 99, net.shape).astype(np.float32)}


def is_found(packed: Model) -> bool:
    (function,) = {function for _, function in calls_of(packed)}
    return is_row_sum(function)


@EVERY
@pytest.mark.parametrize("rows", [(2,), (3, 3), (4, 2), (1, 197)])
@pytest.mark.parametrize("kind", [op.mean, op.sum])
@pytest.mark.parametrize("keepdims", [True, False])
def test_rows_of_any_number(
    kind: Any, rows: tuple[int, ...], keepdims: bool, hardware: Hardware
) -> None:
    skip_unless_runnable(hardware)
    net = Net((*rows, 19), "float32")
    y = net.emit(kind(net.x, [-1], keepdims=keepdims), "sums")
    packed, _ = assert_exact(net.model(y), wholes(net), hardware)
    assert is_found(packed)


@EVERY
def test_what_is_computed_before_and_behind_is_one_kernel(hardware: Hardware) -> None:
    """The variance of a normalization, with a second tensor of rows."""
    skip_unless_runnable(hardware)
    net = Net((5, 33), "float32")
    half = net.builder.tensor("half", np.asarray(0.5, np.float32))
    moved = net.emit(op.subtract(net.emit(op.multiply(net.x, half), "halves"), half), "moved")
    squares = net.emit(op.multiply(moved, net.x), "squares")
    mean = net.emit(op.mean(squares, [1], keepdims=True), "mean")
    y = net.emit(op.rsqrt(net.emit(op.abs(net.emit(op.add(mean, half), "more")), "size")), "y")
    packed, program = assert_exact(net.model(y), wholes(net), hardware)
    assert is_found(packed) and len(program.calls) == 1


@pytest.mark.parametrize(
    ("shape", "axes"), [((3, 19), [0]), ((2, 3, 19), [1, 2]), ((19,), [0]), ((3, 4), [1])]
)
def test_others_stay_plain(shape: tuple[int, ...], axes: list[int]) -> None:
    net = Net(shape, "float32")
    assert not is_found(pack(net.model(net.emit(op.sum(net.x, axes), "sums")), AVX2))


def test_integers_stay_plain() -> None:
    net = Net((3, 19), "int32")
    assert not is_found(pack(net.model(net.emit(op.sum(net.x, [1]), "sums")), AVX2))
