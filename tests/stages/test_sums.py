"""What follows sums in fewer bits, or as a straight line: the very levels, or nothing of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.ir import Call

from stages.bitpacking.affine_thresholds import as_affine
from stages.bitpacking.sums import SHORT, UNKNOWN, reach, shortened
from stages.dialect import integer
from stages.dialect.operators import OPERATORS
from stages.dialect.padding import Padding
from stages.graph.bindings import bindings_of
from stages.graph.builder import FunctionBuilder
from stages.numerics.rescale import fits

Array = np.ndarray[Any, Any]
NEVER = np.iinfo(np.int32).max
"""A threshold that no integer reaches."""


def levels(data: Array, thresholds: Array, flip: Array) -> Array:
    """The levels of data [N] for thresholds [T, C]: [N, C]."""
    every = np.broadcast_to(data[:, None], (len(data), thresholds.shape[1]))
    operands = every, thresholds, flip
    return np.asarray(OPERATORS["relax.qnn.threshold"].meaning(*operands, dtype="uint8"))


def requantized(data: Array, line: tuple[Array, Array], most: int) -> Array:
    """The same by a line."""
    every = np.broadcast_to(data[:, None], (len(data), len(line[0])))
    attrs = {"low": 0, "high": most, "dtype": "uint8", "fits": True}
    return np.asarray(OPERATORS["relax.qnn.requantize"].meaning(every, *line, **attrs))


def spaced(distance: Array, first: Array, count: int, falls: Array, most: int) -> Array:
    """Thresholds of float lines through their steps, as quantizing finds them: those that are not
    reached lie at NEVER, those that always are at the smallest integer."""
    steps = np.ceil(first + np.arange(count)[:, None] * distance)
    steps = np.where(falls, 1 - steps, steps)
    return np.where(steps > most, NEVER, np.maximum(steps, -most)).astype(np.int32)


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 255), st.integers(40, 3000), st.integers(0, 2**32 - 1))
def test_a_line_gives_the_levels_of_all_integers(count: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    channels = 6
    distance = np.exp(rng.uniform(0.1, np.log(most), channels))
    falls = rng.random(channels) < 0.4
    thresholds = spaced(distance, rng.uniform(-most, most, channels), count, falls, most)
    line = as_affine(thresholds, falls.astype(np.uint8), most)
    data = np.arange(-most, most + 1, dtype=np.int32)
    if line is not None:
        found, wanted = requantized(data, line, count), levels(data, thresholds, falls)
        np.testing.assert_array_equal(found, wanted)
        assert fits(most, *line)


def test_batch_norms_are_lines() -> None:
    """As many as a layer has, of few bits and of eight, rising and falling."""
    rng = np.random.default_rng(1)
    for count in (3, 7, 15, 255):
        distance, falls = rng.uniform(2, 60, 64), rng.random(64) < 0.5
        first = rng.uniform(-100, 0, 64) * distance / 50
        thresholds = spaced(distance, first, count, falls, 20000)
        assert as_affine(thresholds, falls.astype(np.uint8), 20000) is not None, count


@pytest.mark.parametrize(
    "thresholds",
    [
        [[-90], [0], [91], [300], [301]],
        [[5], [6], [8], [9], [12]],
        [[0], [0], [0], [0], [50]],
    ],
)
def test_thresholds_that_are_not_evenly_spaced_are_no_line(thresholds: list[list[int]]) -> None:
    assert as_affine(np.array(thresholds, np.int32), np.zeros(1, np.uint8), 1000) is None


def test_channels_without_any_step_are_lines() -> None:
    """Of levels that are never reached, or always, or none but one."""
    low, high = -1000, NEVER
    thresholds = np.array([[low, high, low, 7], [low, high, low, high], [low, high, 9, high]])
    flip = np.zeros(4, np.uint8)
    line = as_affine(thresholds.astype(np.int32), flip, 1000)
    assert line is not None
    data = np.arange(-1000, 1001, dtype=np.int32)
    found, wanted = requantized(data, line, 3), levels(data, thresholds.astype(np.int32), flip)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("dtype", "fewest"), [("int16", 5), ("int32", 3)])
def test_few_thresholds_are_compared(dtype: str, fewest: int) -> None:
    for count in range(1, 8):
        thresholds = (10 * np.arange(count)[:, None]).astype(dtype)
        line = as_affine(thresholds, np.zeros(1, np.uint8), 30000)
        assert (line is not None) == (count >= fewest)


def test_integers_that_are_no_floats_are_compared() -> None:
    thresholds = (1000 * np.arange(5)[:, None]).astype(np.int32)
    assert as_affine(thresholds, np.zeros(1, np.uint8), 1 << 24) is not None
    assert as_affine(thresholds, np.zeros(1, np.uint8), (1 << 24) + 1) is None


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([-40000, -32769, -32768, -32767, -5, 0, 32766, 32767, 32768, NEVER])),
    st.sampled_from([100, 32766, 32767, 40000, UNKNOWN]),
)
def test_shorter_thresholds_compare_alike(listed: list[int], most: int) -> None:
    """With all integers there can be, saturated to 16 bits where they are longer."""
    thresholds = np.array([listed or [0]], np.int32)
    found = shortened(thresholds, most)
    limit = min(most, 50000)
    data = np.unique(
        np.clip([*range(-32770, -32760), -7, 0, 9, *range(32760, 32770)], -limit, limit)
    )
    data = np.unique([*data, -limit, limit])
    flip = np.zeros(thresholds.shape[1], np.uint8)
    wanted = levels(data, thresholds, flip)
    assert found.dtype in (np.int16, np.int32)
    if found.dtype == np.int16:
        data = data.clip(SHORT.min, SHORT.max)
    np.testing.assert_array_equal(levels(data, found, flip), wanted)


def test_thresholds_stay_long_where_sums_are_and_a_level_is_never_reached() -> None:
    thresholds = np.array([[3, NEVER]], np.int32)
    assert shortened(thresholds, 32766).dtype == np.int16
    assert shortened(thresholds, 32767).dtype == np.int32
    assert shortened(thresholds[:, :1], 1 << 20).dtype == np.int16
    floats = thresholds.astype(np.float32)
    assert shortened(floats, 1) is floats


def test_what_values_reach() -> None:
    """Of a product, whatever its padding means; of what is added to it, of bytes, of others."""
    builder = FunctionBuilder()
    data = builder.param("data", (1, 3, 3, 4), "uint2")
    weight = builder.param("weight", (2, 1, 1, 4), "int2")
    other = builder.param("other", (1, 3, 3, 2), "int8")
    call = integer.conv2d(
        data, weight, strides=[1, 1], padding=Padding(numerator=9),
        data_zero_point=0.5, weight_zero_point=0, groups=1,
    )  # fmt: skip
    sums = builder.emit(call, "sums")
    total = builder.emit(integer.add(sums, other, lhs_zero_point=-3, rhs_zero_point=2), "total")
    unknown = builder.emit(relax.op.astype(total, "float32"), "unknown")
    function = builder.finish([unknown], {"composite": "c"})
    calls = {b.var: b.value for b in bindings_of(function) if isinstance(b.value, Call)}
    q = np.array([[1, -2, 0, 1], [0, 0, 1, 0]], np.int8).reshape(2, 1, 1, 4)
    found = {
        str(variable.name): reach(variable, calls, lambda _: q) for variable in (*calls, other)
    }
    # Levels 0..3 at a zero point of 1/2 are -1..5, and padding is 9.
    assert found["sums"] == (1 + 1) * 9 + 2 * 1
    assert found["total"] == found["sums"] + 128 + 5
    assert (found["other"], found["unknown"]) == (128, UNKNOWN)


def test_what_fits() -> None:
    multiplier, offset = np.array([[0.25, -0.5], [0, 1000]], np.float32)
    assert fits(1 << 30, multiplier, offset)
    assert not fits(1 << 31, multiplier, offset)
    for strange in (np.inf, np.nan):
        assert not fits(1, np.full(2, strange, np.float32), offset)
