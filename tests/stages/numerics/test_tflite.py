"""TensorFlow Lite's fixed-point arithmetic against its definition in exact numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.operators import OPERATORS
from stages.numerics import tflite

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
MULTIPLIERS = st.integers(1 << 30, (1 << 31) - 1)


def towards_zero(x: Fraction) -> int:
    return int(x)


def away_from_zero(x: Fraction) -> int:
    """The nearest integer, halves away from zero."""
    return towards_zero(x + (Fraction(1, 2) if x >= 0 else -Fraction(1, 2)))


def high_multiplied(a: int, b: int) -> int:
    """SaturatingRoundingDoublingHighMul, literally: a nudge by sign, division towards zero."""
    nudge = 1 << 30 if a * b >= 0 else 1 - (1 << 30)
    return towards_zero(Fraction(a * b + nudge, 1 << 31))


def multiplied(x: int, multiplier: int, shift: int) -> int:
    """MultiplyByQuantizedMultiplier, step by step."""
    left, right = max(shift, 0), max(-shift, 0)
    return away_from_zero(Fraction(high_multiplied(x << left, multiplier), 1 << right))


@given(x=INT32, multiplier=MULTIPLIERS, shift=st.integers(-31, 0), sign=st.sampled_from([1, -1]))
@example(x=3, multiplier=1 << 30, shift=0, sign=1)
@example(x=-3, multiplier=1 << 30, shift=0, sign=1)
@example(x=-3, multiplier=1 << 30, shift=0, sign=-1)
def test_multiply(x: int, multiplier: int, shift: int, sign: int) -> None:
    found = tflite.multiply(
        NUMPY, np.array([x], np.int32), np.int64(sign * multiplier), np.int64(shift)
    )
    assert found.tolist() == [multiplied(x, sign * multiplier, shift)]


@given(x=st.integers(-(1 << 20), 1 << 20), multiplier=MULTIPLIERS, shift=st.integers(1, 10))
def test_multiply_by_factors_above_one(x: int, multiplier: int, shift: int) -> None:
    found = tflite.multiply(NUMPY, np.array([x], np.int32), np.int64(multiplier), np.int64(shift))
    assert found.tolist() == [multiplied(x, multiplier, shift)]


@given(half=st.integers(-600, 600), ulps=st.integers(-3, 3), scale=st.sampled_from([1.0, 0.25]))
@example(half=1, ulps=-1, scale=1.0)
@example(half=-1, ulps=1, scale=1.0)
def test_floats_near_a_half_are_quantized_to_the_nearest(
    half: int, ulps: int, scale: float
) -> None:
    real = np.float32(half * 0.5)
    for _ in range(abs(ulps)):
        real = np.nextafter(real, np.float32(np.copysign(1e9, ulps)))
    found = OPERATORS["relax.qnn.tflite_quantize"].meaning(
        np.array([real * np.float32(scale)], np.float32), scale=scale, zero_point=7, low=-128,
        high=127, dtype="int8",
    )  # fmt: skip
    assert found.tolist() == [min(max(away_from_zero(Fraction(float(real))) + 7, -128), 127)]


@given(real=st.floats(2.0**-31, 2.0**29))
@example(real=1.0)
@example(real=float(np.nextafter(1.0, 0.0)))
def test_a_factor_is_within_half_a_unit(real: float) -> None:
    multiplier, shift = tflite.quantize_multiplier(real)
    assert 1 << 30 <= multiplier < 1 << 31
    unit = Fraction(2) ** (shift - 31)
    assert abs(Fraction(real) - multiplier * unit) <= unit / 2


def test_factors_at_the_ends() -> None:
    assert tflite.quantize_multiplier(0.0) == (0, 0)
    assert tflite.quantize_multiplier(2.0**-40) == (0, 0)
    for real in (-1.0, float("nan"), float("inf"), 2.0**30):
        with pytest.raises(ValueError, match="must be between"):
            tflite.quantize_multiplier(real)


@given(multiplier=MULTIPLIERS)
@example(multiplier=0x7FFEFFFF)
@example(multiplier=0x7FFF0000)
def test_a_reduced_multiplier_has_15_bits(multiplier: int) -> None:
    reduced = tflite.reduced_multiplier(multiplier)
    assert 1 << 14 <= reduced < 1 << 15
    assert abs(multiplier - (reduced << 16)) <= (1 << 15 if reduced < 0x7FFF else 1 << 16)


@given(x=st.floats(-1e6, 1e6, width=32))
@example(x=0.49999997)
@example(x=-0.49999997)
@example(x=0.5)
@example(x=-2.5)
@example(x=8388609.0)
def test_round_away(x: float) -> None:
    expected = away_from_zero(Fraction(x))
    assert tflite.round_away(NUMPY, np.array([x], np.float32)).tolist() == [expected]
    assert tflite.round_half_away(x) == expected


@given(x=st.integers(-(1 << 31), (1 << 31) - 1), shift=st.integers(0, 31))
def test_divide_by_power(x: int, shift: int) -> None:
    found = tflite.divide_by_power(NUMPY, np.array([x], np.int64), np.int64(shift))
    assert found.tolist() == [away_from_zero(Fraction(x, 1 << shift))]
