"""TensorFlow Lite's functions of int16, for which a table would be too large.

Sources: tensorflow/lite/kernels/internal/reference/integer_ops/{logistic,tanh}.h, leaky_relu.h.
"""

from __future__ import annotations

from math import exp

import numpy as np

from stages.dialect.elementwise import by_attribute, elementwise, of_type
from stages.dialect.numbers import Numbers, Value, clip
from stages.kinds import Array
from stages.numerics.tflite import multiply

INT16 = ["int16"]


def sigmoid_table() -> Array:
    """The sigmoid of 0 to 10.63 at every 24th, as Q0.16: int32 [256].

    Each entry is raised by half of what interpolating to the next lacks in the middle; the last
    stands for all that follow. So does tensorflow/lite/kernels/internal/common.h.
    """

    def at(place: float) -> float:
        return 65536.0 / (1.0 + exp(-place / 24))

    lacks = [at(i + 0.5) - (at(i) + at(i + 1)) / 2 for i in range(255)]
    return np.array([round(at(i) + lack / 2) for i, lack in enumerate(lacks)] + [65535], np.int32)


@elementwise("tflite_leaky_relu", ["data"], by_attribute, accepts={"data": ["int16"]})
def leaky_relu_of_int16(
    m: Numbers,
    data: Value,
    *,
    data_zero_point: int,
    multiplier: int,
    shift: int,
    slope_multiplier: int,
    slope_shift: int,
    zero_point: int,
    low: int,
    high: int,
    dtype: str,
) -> Value:
    """Positive values times one factor, the others times another; the zero point added, clipped."""
    moved = m.cast(data, "int64") - m.constant(data_zero_point, "int64")
    is_positive = moved >= m.constant(0, "int64")
    factor = m.where(
        is_positive, m.constant(multiplier, "int64"), m.constant(slope_multiplier, "int64")
    )
    places = m.where(is_positive, m.constant(shift, "int64"), m.constant(slope_shift, "int64"))
    scaled = multiply(m, moved, factor, places)
    return clip(m, scaled + m.constant(zero_point, "int64"), low, high, dtype)


def _scaled(m: Numbers, data: Value, multiplier: int, shift: int) -> Value:
    half = (1 << shift) >> 1
    product = m.cast(data, "int32") * m.constant(multiplier, "int32") + m.constant(half, "int32")
    return product >> m.constant(shift, "int32")


def _sigmoid_of_size(m: Numbers, size: Value, table: Value, bits: int, most: int) -> Value:
    """The sigmoid of a size, interpolated between two of the 256 entries of the table."""
    whole = size >> m.constant(bits, "int32")
    place = m.minimum(whole, m.constant(254, "int32"))
    below = m.look_up(table, place)
    above = m.look_up(table, place + m.constant(1, "int32"))
    rest = size & m.constant((1 << bits) - 1, "int32")
    value = (below << m.constant(bits, "int32")) + rest * (above - below)
    return m.where(whole >= m.constant(255, "int32"), m.constant(most, "int32"), value)


@elementwise(
    "tflite_logistic", ["data", "table"], of_type("int16"), accepts={"data": INT16},
    whole=["table"],
)  # fmt: skip
def logistic_of_int16(
    m: Numbers, data: Value, table: Value, *, multiplier: int, shift: int
) -> Value:
    """The sigmoid of int16 as Q0.15."""
    x = _scaled(m, data, multiplier, shift)
    value = _sigmoid_of_size(m, m.absolute(x), table, 9, 0x7FFF << 10)
    up, down = m.constant(1 << 9, "int32"), m.constant((1 << 25) + (1 << 9) - 1, "int32")
    signed = m.where(x >= m.constant(0, "int32"), value + up, down - value)
    return m.cast(signed >> m.constant(10, "int32"), "int16")


@elementwise(
    "tflite_tanh", ["data", "table"], of_type("int16"), accepts={"data": INT16},
    whole=["table"],
)  # fmt: skip
def tanh_of_int16(m: Numbers, data: Value, table: Value, *, multiplier: int, shift: int) -> Value:
    """The hyperbolic tangent of int16 as Q0.15: twice the sigmoid of twice the argument, less 1."""
    x = _scaled(m, data, multiplier, shift)
    value = _sigmoid_of_size(m, m.absolute(x), table, 8, 0xFFFF << 8)
    centre, half = m.constant(1 << 23, "int32"), m.constant(1 << 7, "int32")
    one = m.constant(1, "int32")
    above, below = (value - centre) + half, (centre - value) + half - one
    signed = m.where(x >= m.constant(0, "int32"), above, below)
    return m.cast(signed >> m.constant(8, "int32"), "int16")


@elementwise("tflite_prelu", ["data", "alpha"], by_attribute)
def prelu_of_bytes(
    m: Numbers,
    data: Value,
    alpha: Value,
    *,
    data_zero_point: int,
    alpha_zero_point: int,
    multiplier: int,
    shift: int,
    slope_multiplier: int,
    slope_shift: int,
    zero_point: int,
    low: int,
    high: int,
    dtype: str,
) -> Value:
    """Positive values times one factor, the others times their slope and another; clipped."""
    moved = m.cast(data, "int64") - m.constant(data_zero_point, "int64")
    slope = m.cast(alpha, "int64") - m.constant(alpha_zero_point, "int64")
    is_positive = moved >= m.constant(0, "int64")
    value = m.where(is_positive, moved, moved * slope)
    factor = m.where(
        is_positive, m.constant(multiplier, "int64"), m.constant(slope_multiplier, "int64")
    )
    places = m.where(is_positive, m.constant(shift, "int64"), m.constant(slope_shift, "int64"))
    scaled = multiply(m, value, factor, places)
    return clip(m, scaled + m.constant(zero_point, "int64"), low, high, dtype)
