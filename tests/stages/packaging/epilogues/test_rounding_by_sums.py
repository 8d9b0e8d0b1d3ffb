"""Sums that become bytes by additions alone, on both sides of where that is exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from stages.bitpacking.sums import most_of
from stages.dialect import integer
from stages.dialect.calls import attributes, is_op
from stages.dialect.numbers import SMALL, WORD
from stages.dialect.padding import NO_PADDING
from stages.graph.bindings import bindings_of, calls_of
from stages.graph.builder import ModelBuilder
from stages.graph.sum_bounds import bounds_of_sums
from stages.kinds import Model
from stages.numerics import rescale
from tests.stages.packaging.programs import assert_exact
from tests.stages.packaging.support import AARCH64
from tests.targets import DOTPROD, skip_unless_runnable

DEPTH, WEIGHT, BYTE = 128, 127, 255


def product_of(most: int, largest: float) -> Model:
    """Products [1, 8] whose sums are at most `most` in size, and `largest` when they are scaled.

    Channels are of positive weights or negative ones; one reaches both bounds.
    """
    builder = ModelBuilder()
    x = builder.input("x", (1, 4, 1, DEPTH), "uint8")
    signs = np.array([1, -1, 1, -1, 0, 1, 1, -1])
    weights = np.repeat(WEIGHT * signs[:, None], DEPTH, 1).reshape(8, 1, 1, DEPTH)
    bias = (most - DEPTH * WEIGHT * BYTE) * signs
    scale = np.float32(largest / most) * np.array(
        [1, 1, 0.5, 0.25, 1, 0.01, 0.3, 0.004], np.float32
    )
    window = {"strides": [1, 1], "padding": NO_PADDING, "groups": 1}
    points = {"data_zero_point": 0, "weight_zero_point": 0}
    sums = integer.conv2d(x, builder.tensor("w", weights.astype(np.int8)), **window, **points)
    total = relax.op.add(builder.emit(sums, "sums"), builder.tensor("b", bias.astype(np.int32)))
    call = rescale.rescale(
        builder.emit(total, "total"), builder.tensor("scale", scale.astype(np.float32)),
        zero_point=3, low=0, high=255, dtype="uint8", fits=True,
    )  # fmt: skip
    return builder.model([builder.emit(call, "y")], ["y"], attrs={"numerics": "onnx"})


def inputs() -> list[dict[str, np.ndarray]]:
    """Both ends, and what lies between."""
    between = np.random.default_rng(0).integers(0, 256, (1, 4, 1, DEPTH))
    ends = (np.full_like(between, BYTE), np.zeros_like(between))
    sparse = np.where(np.arange(DEPTH) < 3, between, 0)
    return [{"x": value.astype(np.uint8)} for value in (*ends, between, sparse)]


@pytest.mark.parametrize("most", [SMALL, SMALL + 1])
@pytest.mark.parametrize("largest", [WORD * 0.999, WORD * 1.001])
def test_sums_that_are_just_small_enough_are_exact(most: int, largest: float) -> None:
    skip_unless_runnable(DOTPROD)
    first, *others = inputs()
    packed, _ = assert_exact(product_of(most, largest), first, DOTPROD, tasks=(1,), others=others)
    marks = {"is_moved": most <= SMALL, "fits_word": largest <= WORD}
    assert found_in(packed) == {name for name, is_so in marks.items() if is_so}


def test_a_core_that_converts_fast_has_none() -> None:
    skip_unless_runnable(AARCH64)
    packed, _ = assert_exact(product_of(SMALL, WORD), inputs()[0], AARCH64, tasks=(1,))
    assert not found_in(packed)


def found_in(packed: Model) -> set[str]:
    """The marks of a model's one rescaling."""
    bindings = [b for _, function in calls_of(packed) for b in bindings_of(function)]
    (call,) = (b.value for b in bindings if is_op(b.value, "relax.qnn.rescale"))
    return {"is_moved", "fits_word"} & set(attributes(call))


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 9), st.sampled_from([(0, 255), (-128, 127), (3, 3)]))
def test_no_sum_is_larger(seed: int, depth: int, ends: tuple[int, int]) -> None:
    """And one at the ends is as large."""
    rng = np.random.default_rng(seed)
    weights, constant = rng.integers(-128, 128, (5, depth)), rng.integers(-9999, 9999, 5)
    bounds = bounds_of_sums(weights, ends)
    most = most_of(bounds, constant)
    assert (most_of(bounds) == most_of(bounds, 0 * constant)).all()
    chosen = rng.integers(ends[0], ends[1] + 1, depth)
    assert (np.abs(weights @ chosen + constant) <= most).all()
    for row, largest, added in zip(weights, most, constant, strict=True):
        extremes = [np.where(row > 0, high, low) for low, high in (ends, ends[::-1])]
        assert max(abs(int(row @ x) + int(added)) for x in extremes) == largest
