"""Float32 functions of one or two tensors, position by position, for float networks and islands.

Each is one reading of `stages.numerics.transcendental`: the same bits in NumPy and compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stages.dialect.elementwise import as_first, elementwise
from stages.dialect.numbers import Numbers, Value
from stages.numerics import transcendental as functions

FLOAT = ["float32"]


def _unary(name: str, function: Callable[[Numbers, Value], Value]) -> Callable[..., Any]:
    def arithmetic(m: Numbers, x: Value) -> Value:
        return function(m, x)

    arithmetic.__doc__ = function.__doc__
    return elementwise(name, ["x"], as_first, accepts={"x": FLOAT})(arithmetic)


exp = _unary("exp", functions.exp)
log = _unary("log", functions.log_)
sigmoid = _unary("sigmoid", functions.sigmoid)
tanh = _unary("tanh", functions.tanh)
expm1 = _unary("expm1", functions.expm1)
sin = _unary("sin", functions.sin)
cos = _unary("cos", functions.cos)
erf = _unary("erf", functions.erf)
gelu = _unary("gelu", functions.gelu)


@elementwise("power", ["base", "exponent"], as_first, accepts={"base": FLOAT, "exponent": FLOAT})
def power(m: Numbers, base: Value, exponent: Value) -> Value:
    """base^exponent in float32; of a negative base only for whole exponents, else NaN."""
    return functions.power(m, base, exponent)


@elementwise("leaky_relu", ["x"], as_first, accepts={"x": FLOAT})
def leaky_relu(m: Numbers, x: Value, *, alpha: float) -> Value:
    """x where it is positive, else alpha * x."""
    slope = m.product(x, m.constant(alpha, "float32"))
    return m.where(x > m.constant(0.0, "float32"), x, slope)


@elementwise("prelu", ["x", "alpha"], as_first, accepts={"x": FLOAT, "alpha": FLOAT})
def prelu(m: Numbers, x: Value, alpha: Value) -> Value:
    """x where it is not negative, else alpha * x."""
    return m.where(x >= m.constant(0.0, "float32"), x, m.product(x, alpha))


@elementwise("elu", ["x"], as_first, accepts={"x": FLOAT})
def elu(m: Numbers, x: Value) -> Value:
    """x where it is not negative, else e^x - 1."""
    return m.where(x < m.constant(0.0, "float32"), functions.expm1(m, x), x)


@elementwise("hard_swish", ["x"], as_first, accepts={"x": FLOAT})
def hard_swish(m: Numbers, x: Value) -> Value:
    """`x * min(6, max(0, x + 3)) / 6`, every operation rounded."""
    zero, three, six = (m.constant(value, "float32") for value in (0.0, 3.0, 6.0))
    return m.quotient(m.product(x, m.minimum(six, m.maximum(zero, x + three))), six)
