"""Fixed-point functions of gemmlowp, which TensorFlow Lite's integer softmax is made of.

Values are int64 that lie within int32; Qm.n means m integer and n fraction bits beside the sign.
Source: gemmlowp's fixedpoint/fixedpoint.h, tensorflow/lite/kernels/internal/common.h
(GetReciprocal, LUTLookup).
"""

from __future__ import annotations

from stages.dialect.numbers import Numbers, Value
from stages.numerics.tflite import divide_by_power

_EXP_FACTORS = (
    (24, 1672461947),
    (25, 1302514674),
    (26, 790015084),
    (27, 290630308),
    (28, 39332535),
    (29, 720401),
    (30, 242),
)
"""Bit of a Q5.26 number and e^-(that bit) as Q0.31."""


def whole(m: Numbers, value: int) -> Value:
    """An int64."""
    return m.constant(value, "int64")


def high_product(m: Numbers, left: Value, right: Value) -> Value:
    """The product of a Qa and a Qb number as Q(a+b), halves up; not of two smallest numbers."""
    return (left * right + whole(m, 1 << 30)) >> whole(m, 31)


def saturated(m: Numbers, x: Value) -> Value:
    """Within int32."""
    return m.minimum(m.maximum(x, whole(m, -(1 << 31))), whole(m, (1 << 31) - 1))


def exp_of_negative(m: Numbers, x: Value) -> Value:
    """e^x as Q0.31 of a Q5.26 number that is not positive (exp_on_negative_values)."""
    quarter = whole(m, 1 << 24)
    rest = (x & whole(m, (1 << 24) - 1)) - quarter
    result = _exp_in_quarter(m, rest << whole(m, 5))
    remainder = rest - x
    for bit, factor in _EXP_FACTORS:
        is_set = (remainder & whole(m, 1 << bit)) != whole(m, 0)
        result = m.where(is_set, high_product(m, result, whole(m, factor)), result)
    return m.where(x == whole(m, 0), whole(m, (1 << 31) - 1), result)


def _exp_in_quarter(m: Numbers, x: Value) -> Value:
    """e^x of a Q0.31 number from -1/4 to 0: a Taylor series around -1/8."""
    eighth, third = whole(m, 1895147668), whole(m, 715827883)
    a = x + whole(m, 1 << 28)
    a2 = high_product(m, a, a)
    a3, a4 = high_product(m, a2, a), high_product(m, a2, a2)
    inner = high_product(m, divide_by_power(m, a4, whole(m, 2)) + a3, third) + a2
    return eighth + high_product(m, eighth, a + divide_by_power(m, inner, whole(m, 1)))


def leading_zeros(m: Numbers, x: Value) -> Value:
    """How many of 32 bits lie above the highest that is set."""
    count = whole(m, 32)
    for bit in range(32):
        count = count - m.where(x >= whole(m, 1 << bit), whole(m, 1), whole(m, 0))
    return count


def without_leading_bit(m: Numbers, x: Value, zeros: Value) -> Value:
    """`x / 2^k - 1` as Q0.31, where k makes it lie between 0 and 1."""
    return (x << zeros) - whole(m, 1 << 31)


def one_over_one_plus(m: Numbers, x: Value) -> Value:
    """1 / (1 + x) as Q0.31 of a Q0.31 number between 0 and 1: three steps of Newton's method."""
    half = (x + whole(m, 1 << 31)) >> whole(m, 1)
    estimate = whole(m, 1515870810) + high_product(m, half, whole(m, -1010580540))
    for _ in range(3):
        missing = whole(m, 1 << 29) - high_product(m, half, estimate)
        step = high_product(m, estimate, missing)
        estimate = estimate + saturated(m, step << whole(m, 2))
    return saturated(m, estimate << whole(m, 1))


def interpolated(m: Numbers, table: Value, x: Value) -> Value:
    """A function of int16 from a table [513] of its values at every 128th: int32 (LUTLookup)."""
    seven = m.constant(7, "int32")
    index = (x >> seven) + m.constant(256, "int32")
    offset = x & m.constant(127, "int32")
    base = m.cast(m.look_up(table, index), "int32")
    after = m.cast(m.look_up(table, index + m.constant(1, "int32")), "int32")
    return base + (((after - base) * offset + m.constant(64, "int32")) >> seven)
