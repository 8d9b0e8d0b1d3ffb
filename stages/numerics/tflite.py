"""TensorFlow Lite's integer arithmetic, as its reference kernels compute it.

A real factor is a 31-bit multiplier and a shift. Multiplying by it rounds twice: a doubling high
multiplication to the nearest (halves up), then a division by a power of two to the nearest (halves
away from zero). With int16 activations the multiplier is cut to 15 bits and there is one rounding
(halves up). Sources: tensorflow/lite/kernels/internal/{common,quantization_util}.{h,cc} and
tensorflow/lite/kernels/internal/reference/.
"""

from __future__ import annotations

from math import floor, frexp

from stages.dialect.elementwise import by_attribute, elementwise
from stages.dialect.numbers import Numbers, Value, clip
from stages.dialect.zero_point import ZeroPoint

INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
BELOW_HALF = 0.5 - 2.0**-25
"""The float32 before 1/2."""
MAX_SHIFT = 30
"""Factors of 2^30 and more cannot be expressed."""


def quantize_multiplier(real: float) -> tuple[int, int]:
    """The multiplier and the shift to the left of a factor: `multiplier * 2^(shift - 31)`.

    Source: QuantizeMultiplier. A factor below 2^-32 becomes 0; ValueError for one that is negative,
    not finite or too large.
    """
    if real == 0:
        return 0, 0
    if not 0 < real < 2.0**MAX_SHIFT:
        raise ValueError(f"a factor of {real}; it must be between 0 and 2^{MAX_SHIFT}")
    fraction, shift = frexp(real)
    multiplier = round_half_away(fraction * 2.0**31)
    if multiplier == 1 << 31:
        multiplier, shift = multiplier >> 1, shift + 1
    return (0, 0) if shift < -31 else (multiplier, shift)


def round_half_away(x: float) -> int:
    """The nearest integer, halves away from zero (`std::round`)."""
    size = abs(float(x))
    below = floor(size)
    rounded = below + int(size - below >= 0.5)
    return -rounded if x < 0 else rounded


def reduced_multiplier(multiplier: int) -> int:
    """The 15 bits of a multiplier that remain with 64-bit accumulators."""
    return (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF


def round_away(m: Numbers, x: Value) -> Value:
    """A float to the nearest integer, halves away from zero (`std::round`)."""
    size = m.absolute(x)
    below = m.floor(size)
    half, one = (m.constant(value, m.dtype(x)) for value in (0.5, 1.0))
    rounded = m.where(size - below >= half, below + one, below)
    return m.where(x < m.constant(0, m.dtype(x)), -rounded, rounded)


def divide_by_power(m: Numbers, x: Value, shift: Value) -> Value:
    """`x / 2^shift` of int64 to the nearest integer, halves away from zero; shift 0 to 31.

    Source: RoundingDivideByPOT.
    """
    one, zero = m.constant(1, "int64"), m.constant(0, "int64")
    below = m.logical_and(x < zero, shift > zero)
    return (x + ((one << shift) >> one) - m.where(below, one, zero)) >> shift


def multiply(m: Numbers, x: Value, multiplier: Value, shift: Value) -> Value:
    """`x * multiplier * 2^(shift - 31)` of an int32, rounded twice: int64 within int32.

    `multiplier` and `shift` are int64; the multiplier may be negative. Source:
    MultiplyByQuantizedMultiplier; SaturatingRoundingDoublingHighMul divides towards zero after a
    nudge by the product's sign, which is rounding halves up.
    """
    zero, half = m.constant(0, "int64"), m.constant(1 << 30, "int64")
    # The reference shifts in 32 bits, where an overflow wraps.
    shifted = m.cast(m.cast(x, "int64") << m.maximum(shift, zero), "int32")
    high = (m.cast(shifted, "int64") * multiplier + half) >> m.constant(31, "int64")
    return divide_by_power(m, high, m.maximum(zero - shift, zero))


def _factor(m: Numbers, multiplier: int, shift: int) -> tuple[Value, Value]:
    return m.constant(multiplier, "int64"), m.constant(shift, "int64")


@elementwise(
    "tflite_requantize", ["data", "multiplier", "shift"], by_attribute,
    accepts={"data": INTEGERS, "multiplier": ["int32"], "shift": ["int32"]},
)  # fmt: skip
def requantize(
    m: Numbers,
    data: Value,
    multiplier: Value,
    shift: Value,
    *,
    zero_point: ZeroPoint,
    low: int,
    high: int,
    dtype: str,
) -> Value:
    """Scale an int32, rounding twice, add the zero point, clip; factors along the last axis."""
    factor, places = (m.cast(operand, "int64") for operand in (multiplier, shift))
    scaled = multiply(m, data, factor, places)
    return clip(m, scaled + m.constant(zero_point.whole, "int64"), low, high, dtype)


@elementwise(
    "tflite_requantize_once", ["data", "multiplier", "shift"], by_attribute,
    accepts={"data": ["int64"], "multiplier": ["int32"], "shift": ["int32"]},
)  # fmt: skip
def requantize_once(
    m: Numbers, data: Value, multiplier: Value, shift: Value, *, low: int, high: int, dtype: str
) -> Value:
    """Scale an int64 within 48 bits by `multiplier * 2^-shift`, rounding halves up; clip.

    `multiplier` has 15 bits and `shift` is 8 to 46. Source: MultiplyByQuantizedMultiplier of int64.
    """
    factor, places = (m.cast(operand, "int64") for operand in (multiplier, shift))
    one = m.constant(1, "int64")
    scaled = (data * factor + (one << (places - one))) >> places
    return clip(m, m.cast(m.cast(scaled, "int32"), "int64"), low, high, dtype)


@elementwise(
    "tflite_rescale", ["data", "scale"], by_attribute,
    accepts={"data": ["int32", "int64"], "scale": ["float64"]},
)  # fmt: skip
def rescale(
    m: Numbers, data: Value, scale: Value, *, zero_point: ZeroPoint, low: int, high: int, dtype: str
) -> Value:
    """Scale accumulators in float64, round halves away from zero, add the zero point, clip.

    Fully connected layers do so since LiteRT 2. Source: reference_integer_ops::FullyConnected with
    scales, tflite/kernels/internal/reference/integer_ops/fully_connected.h in LiteRT.
    """
    rounded = round_away(m, m.product(m.cast(data, "float64"), scale))
    first, last = (m.constant(float(bound - zero_point.whole), "float64") for bound in (low, high))
    bounded = m.cast(m.minimum(m.maximum(rounded, first), last), "int32")
    return m.cast(bounded + m.constant(zero_point.whole, "int32"), dtype)


@elementwise("tflite_add", ["lhs", "rhs"], by_attribute)
def add(
    m: Numbers,
    lhs: Value,
    rhs: Value,
    *,
    left_shift: int,
    lhs_zero_point: ZeroPoint,
    lhs_multiplier: int,
    lhs_shift: int,
    rhs_zero_point: ZeroPoint,
    rhs_multiplier: int,
    rhs_shift: int,
    multiplier: int,
    shift: int,
    zero_point: ZeroPoint,
    low: int,
    high: int,
    dtype: str,
) -> Value:
    """Sum of two quantized tensors; a difference has a negative `rhs_multiplier`.

    Source: reference_integer_ops::Add: both addends are moved to the left, rescaled to twice the
    larger of their scales, added and rescaled to the result's.
    """
    left = m.cast(lhs, "int64") - m.constant(lhs_zero_point.whole, "int64")
    right = m.cast(rhs, "int64") - m.constant(rhs_zero_point.whole, "int64")
    places = m.constant(left_shift, "int64")
    total = multiply(m, left << places, *_factor(m, lhs_multiplier, lhs_shift)) + multiply(
        m, right << places, *_factor(m, rhs_multiplier, rhs_shift)
    )
    scaled = multiply(m, total, *_factor(m, multiplier, shift))
    return clip(m, scaled + m.constant(zero_point.whole, "int64"), low, high, dtype)


@elementwise(
    "tflite_add_shifted", ["lhs", "rhs"], by_attribute,
    accepts={"lhs": ["int16"], "rhs": ["int16"]},
)  # fmt: skip
def add_shifted(
    m: Numbers,
    lhs: Value,
    rhs: Value,
    *,
    lhs_shift: int,
    rhs_shift: int,
    sign: int,
    low: int,
    high: int,
    dtype: str,
) -> Value:
    """Sum (`sign` 1) or difference (-1) of int16 whose scales are powers of two.

    Each is divided by `2^shift`, rounding halves away from zero; the sum saturates. Source:
    reference_ops::Add and Sub16 of int16.
    """
    left = divide_by_power(m, m.cast(lhs, "int64"), m.constant(lhs_shift, "int64"))
    right = divide_by_power(m, m.cast(rhs, "int64"), m.constant(rhs_shift, "int64"))
    return clip(m, left + right * m.constant(sign, "int64"), low, high, dtype)


@elementwise("tflite_mul", ["lhs", "rhs"], by_attribute)
def mul(
    m: Numbers,
    lhs: Value,
    rhs: Value,
    *,
    lhs_zero_point: ZeroPoint,
    rhs_zero_point: ZeroPoint,
    multiplier: int,
    shift: int,
    zero_point: ZeroPoint,
    low: int,
    high: int,
    dtype: str,
) -> Value:
    """Product of two quantized tensors. Source: reference_integer_ops::Mul."""
    left = m.cast(lhs, "int64") - m.constant(lhs_zero_point.whole, "int64")
    right = m.cast(rhs, "int64") - m.constant(rhs_zero_point.whole, "int64")
    scaled = multiply(m, left * right, *_factor(m, multiplier, shift))
    return clip(m, scaled + m.constant(zero_point.whole, "int64"), low, high, dtype)


@elementwise(
    "tflite_average", ["total", "count"], by_attribute,
    accepts={"total": ["int32"], "count": ["int32"]},
)  # fmt: skip
def average(m: Numbers, total: Value, count: Value, *, low: int, high: int, dtype: str) -> Value:
    """A sum of stored values by their count, halves away from zero; clip.

    Source: reference_integer_ops::AveragePool.
    """
    half = m.quotient(count, m.constant(2, "int32"))
    nudged = m.where(total > m.constant(0, "int32"), total + half, total - half)
    return clip(m, m.quotient(nudged, count), low, high, dtype)


@elementwise("tflite_quantize", ["x"], by_attribute, accepts={"x": ["float32"]})
def quantize(
    m: Numbers, x: Value, *, scale: float, zero_point: ZeroPoint, low: int, high: int, dtype: str
) -> Value:
    """`clip(round(x / scale) + zero_point)` of float32, halves away from zero.

    Source: reference_ops::AffineQuantize. Values too large for int32, where the reference is
    undefined, saturate.
    """
    first, last = (m.constant(bound - zero_point.whole, "float32") for bound in (low, high))
    real = m.quotient(x, m.constant(scale, "float32"))
    bounded = m.minimum(m.maximum(real, first), last)
    # Half an integer and this are a whole one, rounded to even; what is less than half stays less.
    nudge = m.copysign(m.constant(BELOW_HALF, "float32"), bounded)
    return m.cast(m.cast(bounded + nudge, "int32") + zero_point.whole, dtype)
