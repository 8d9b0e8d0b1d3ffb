"""Exponentials, logarithms and their kin, of float32, that give the same bits everywhere.

Libraries of mathematics differ from one another, so a package that called one would not compute
what was verified. Here each function is arithmetic over `Numbers`: polynomials in float64, every
product rounded on its own, the result rounded to float32 once. The float64 values are good to
about 1e-12, hence the results to 0.5001 units in the last place, as near as glibc's own `expf` and
`logf`, with which they therefore agree in all but about one argument in ten thousand.

Arguments and results are float32 unless a name ends in 64. NaN as an argument is not supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial, inf, log, nan, pi, sqrt

import numpy as np

from stages.dialect.numbers import Numbers, Value

LN2_HIGH = 0.6931471803691238
"""ln 2 to 33 bits: its product with an exponent is exact."""
LN2_LOW = 1.9082149292705877e-10
LARGEST_EXPONENT = 88.72283
"""The largest float32 whose exponential is one."""
HALF_PI_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
"""pi / 2 in parts of 33 bits (fdlibm)."""

_EXP = [1 / factorial(k) for k in range(12)]
_LOG = [2 / (2 * k + 1) for k in range(9)]
_SIN = [(-1) ** k / factorial(2 * k + 1) for k in range(8)]
_COS = [(-1) ** k / factorial(2 * k) for k in range(9)]


_ERF = [
    0.3535309956434043, -0.17657623330131547, 0.1316751168948525, -0.10771044253453371,
    0.09020899410549216, -0.07472786555839062, 0.05988690509618598, -0.04576511312108281,
    0.03306063169563683, -0.022473546632852687, 0.014349603442099968, -0.008606329624135744,
    0.0048535412082086095, -0.002577869666479202, 0.0012926130848069449, -0.0006137195577570883,
    0.00027559303250433226, -0.00011658412072272189, 4.770796003895446e-05,
    -1.9597165346559065e-05, 7.0447922503799836e-06, -1.7989910439812744e-06,
    6.967943166316719e-07, -4.852012501968709e-07, 1.378708000571673e-07,
]  # fmt: skip
"""erf(x) / x as a polynomial of (x^2 - 8) / 8, for x up to 4: Chebyshev interpolation."""


def _wide(m: Numbers, x: Value) -> Value:
    return m.cast(x, "float64")


def _narrow(m: Numbers, x: Value) -> Value:
    return m.cast(x, "float32")


def polynomial(m: Numbers, x: Value, coefficients: Sequence[float]) -> Value:
    """`sum(c[k] * x^k)` in the type of `x`: every fourth term by Horner's rule.

    Each step of that rule waits for the one before, for longer than it takes; four of them do not
    wait for each other.
    """
    square = m.product(x, x)
    fourth = m.product(square, square)
    parts = [_horner(m, fourth, coefficients[first::4]) for first in range(4)]
    low, high = (parts[at] + m.product(parts[at + 1], x) for at in (0, 2))
    return low + m.product(high, square)


def _horner(m: Numbers, x: Value, coefficients: Sequence[float]) -> Value:
    dtype = m.dtype(x)
    result = m.constant(coefficients[-1], dtype)
    for coefficient in reversed(coefficients[:-1]):
        result = m.product(result, x) + m.constant(coefficient, dtype)
    return result


def exp64(m: Numbers, x: Value) -> Value:
    """e^x of a float64 between -700 and 700."""
    count = m.round_even(m.product(x, m.constant(1 / log(2), "float64")))
    rest = x - m.product(count, m.constant(LN2_HIGH, "float64"))
    rest = rest - m.product(count, m.constant(LN2_LOW, "float64"))
    bits = (m.cast(count, "int64") + m.constant(1023, "int64")) << m.constant(52, "int64")
    return m.product(polynomial(m, rest, _EXP), m.bits_of(bits, "float64"))


def log64(m: Numbers, x: Value) -> Value:
    """The natural logarithm of a positive, normal float64."""
    bits = m.bits_of(x, "int64")
    # Offset so that the mantissa runs from 1/sqrt(2) to sqrt(2): 0x3FE6A09E667F3BCD is 1/sqrt(2).
    low = m.constant(0x3FE6A09E667F3BCD, "int64")
    exponent = (bits - low) >> m.constant(52, "int64")
    mantissa = m.bits_of(bits - (exponent << m.constant(52, "int64")), "float64")
    one = m.constant(1.0, "float64")
    s = m.quotient(mantissa - one, mantissa + one)
    series = m.product(polynomial(m, m.product(s, s), _LOG), s)
    count = m.cast(exponent, "float64")
    low_part = m.product(count, m.constant(LN2_LOW, "float64")) + series
    return m.product(count, m.constant(LN2_HIGH, "float64")) + low_part


def exp(m: Numbers, x: Value) -> Value:
    """e^x; from -104 down it is 0, above 88.7228 infinite."""
    most = m.constant(LARGEST_EXPONENT, "float32")
    bounded = m.minimum(m.maximum(x, m.constant(-104.0, "float32")), most)
    value = _narrow(m, exp64(m, _wide(m, bounded)))
    return m.where(x > most, m.constant(inf, "float32"), value)


def log_(m: Numbers, x: Value) -> Value:
    """The natural logarithm; of 0 it is -infinity, of a negative number NaN."""
    zero = m.constant(0.0, "float32")
    tiny = m.constant(float(np.finfo(np.float32).smallest_subnormal), "float32")
    most = m.constant(float(np.finfo(np.float32).max), "float32")
    value = _narrow(m, log64(m, _wide(m, m.minimum(m.maximum(x, tiny), most))))
    value = m.where(x > most, m.constant(inf, "float32"), value)
    value = m.where(x > zero, value, m.constant(-inf, "float32"))
    return m.where(x < zero, m.constant(nan, "float32"), value)


def sigmoid(m: Numbers, x: Value) -> Value:
    """1 / (1 + e^-x), rounded once."""
    bounded = m.minimum(m.maximum(x, m.constant(-104.0, "float32")), m.constant(40.0, "float32"))
    one, zero = m.constant(1.0, "float64"), m.constant(0.0, "float64")
    return _narrow(m, m.quotient(one, one + exp64(m, zero - _wide(m, bounded))))


def tanh(m: Numbers, x: Value) -> Value:
    """The hyperbolic tangent, rounded once."""
    bounded = m.minimum(m.maximum(x, m.constant(-20.0, "float32")), m.constant(20.0, "float32"))
    wide, one = _wide(m, bounded), m.constant(1.0, "float64")
    power = exp64(m, wide + wide)
    large = m.quotient(power - one, power + one)
    # Below 1e-4 the difference loses digits; there two terms of the series are exact enough.
    cube = m.product(m.product(wide, wide), m.product(wide, m.constant(1 / 3, "float64")))
    is_small = m.absolute(bounded) < m.constant(1e-4, "float32")
    return _narrow(m, m.where(is_small, wide - cube, large))


def expm1(m: Numbers, x: Value) -> Value:
    """e^x - 1 for x up to 0, as ELU needs it; above, e^x - 1 too, up to 88.7."""
    bounded = m.minimum(m.maximum(x, m.constant(-104.0, "float32")), m.constant(88.7, "float32"))
    wide, one = _wide(m, bounded), m.constant(1.0, "float64")
    half = m.product(m.product(wide, wide), m.constant(0.5, "float64"))
    sixth = m.product(m.product(half, wide), m.constant(1 / 3, "float64"))
    is_small = m.absolute(bounded) < m.constant(1e-4, "float32")
    return _narrow(m, m.where(is_small, wide + (half + sixth), exp64(m, wide) - one))


def _quarter_turns(m: Numbers, x: Value) -> tuple[Value, Value]:
    """How many times pi / 2 there is in `x` (int64), and what remains."""
    wide = _wide(m, x)
    count = m.round_even(m.product(wide, m.constant(2 / pi, "float64")))
    for part in HALF_PI_PARTS:
        wide = wide - m.product(count, m.constant(part, "float64"))
    return m.cast(count, "int64"), wide


def _sine_from(m: Numbers, turns: Value, rest: Value) -> Value:
    one, two = m.constant(1, "int64"), m.constant(2, "int64")
    square = m.product(rest, rest)
    sine = m.product(polynomial(m, square, _SIN), rest)
    value = m.where((turns & one) != m.constant(0, "int64"), polynomial(m, square, _COS), sine)
    return _narrow(m, m.where((turns & two) != m.constant(0, "int64"), -value, value))


def sin(m: Numbers, x: Value) -> Value:
    """The sine of an angle in radians, of size up to 2^20."""
    turns, rest = _quarter_turns(m, x)
    return _sine_from(m, turns, rest)


def cos(m: Numbers, x: Value) -> Value:
    """The cosine of an angle in radians, of size up to 2^20."""
    turns, rest = _quarter_turns(m, x)
    return _sine_from(m, turns + m.constant(1, "int64"), rest)


def power(m: Numbers, base: Value, exponent: Value) -> Value:
    """base^exponent; of a negative base only for whole exponents, else NaN."""
    zero, one = m.constant(0.0, "float32"), m.constant(1.0, "float32")
    size = m.absolute(base)
    tiny = m.constant(float(np.finfo(np.float32).smallest_subnormal), "float32")
    scaled = m.product(log64(m, _wide(m, m.maximum(size, tiny))), _wide(m, exponent))
    low, high = m.constant(-104.0, "float64"), m.constant(LARGEST_EXPONENT, "float64")
    value = _narrow(m, exp64(m, m.minimum(m.maximum(scaled, low), high)))
    value = m.where(scaled > high, m.constant(inf, "float32"), value)
    half = m.product(exponent, m.constant(0.5, "float32"))
    is_odd = m.floor(half) != half
    negative = m.where(is_odd, -value, value)
    negative = m.where(m.floor(exponent) == exponent, negative, m.constant(nan, "float32"))
    at_zero = m.where(exponent < zero, m.constant(inf, "float32"), zero)
    at_zero = m.where(exponent == zero, one, at_zero)
    signed = m.where(base < zero, negative, value)
    return m.where(base == zero, at_zero, signed)


def erf64(m: Numbers, x: Value) -> Value:
    """The error function of a float64; beyond 4 it is 1 within 2e-8."""
    four, eight = m.constant(4.0, "float64"), m.constant(8.0, "float64")
    bounded = m.minimum(m.maximum(x, -four), four)
    place = m.product(m.product(bounded, bounded) - eight, m.constant(0.125, "float64"))
    inside = m.product(polynomial(m, place, _ERF), bounded)
    one = m.constant(1.0, "float64")
    return m.where(x >= four, one, m.where(x <= -four, -one, inside))


def erf(m: Numbers, x: Value) -> Value:
    """The error function."""
    return _narrow(m, erf64(m, _wide(m, x)))


def gelu(m: Numbers, x: Value) -> Value:
    """x / 2 * (1 + erf(x / sqrt 2)); 0 below -5.66, where it is smaller than 2^-26 |x|."""
    wide = _wide(m, x)
    inside = m.constant(1.0, "float64") + erf64(
        m, m.product(wide, m.constant(sqrt(0.5), "float64"))
    )
    return _narrow(m, m.product(m.product(wide, m.constant(0.5, "float64")), inside))
