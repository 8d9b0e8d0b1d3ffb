"""The arithmetic of ONNX Runtime's quantized operators on x86 (MLAS), where it is its own.

Convolutions and matrix products are `rescale` of an integer accumulator: `float32(acc)` times
`float32(xs * ws / ys)`, rounded half to even, then the zero point. The operators here put the zero
point inside the rounding instead, as MLAS's vector code does (`qladd_avx2.cpp`, `qlmul.cpp`,
`qlgavgpool.cpp`).
"""

from __future__ import annotations

from stages.dialect.calls import BYTES
from stages.dialect.elementwise import as_first, by_attribute, elementwise, of_type
from stages.dialect.numbers import Numbers, Value
from stages.dialect.zero_point import ZeroPoint
from stages.numerics.linear_quantizers import FLOAT

FIXED_OPERANDS = ("lhs_ratio", "lhs_zero_point", "rhs_ratio", "rhs_zero_point", "zero_point")


@elementwise(
    "qlinear_add", ["lhs", "rhs", "lhs_ratio", "rhs_ratio", "fixed"], as_first,
    accepts={"lhs": BYTES, "rhs": BYTES}, widened=["lhs", "rhs"],
)  # fmt: skip
def qlinear_add(
    m: Numbers, lhs: Value, rhs: Value, lhs_ratio: Value, rhs_ratio: Value, fixed: Value, *,
    low: int, high: int, offset: int = 0, fits: bool = False,
) -> Value:  # fmt: skip
    """QLinearAdd: `round(fma(lhs, lhs_ratio, fma(rhs, rhs_ratio, fixed)))`, saturated.

    A ratio is an operand's scale over the result's; `fixed` (float32, scalar) is the result's zero
    point less both operands', each times its ratio.
    `offset` is added to all integers meanwhile: on x86, ONNX Runtime turns int8 of QDQ graphs into
    uint8, which changes what is rounded. What `fits` is known to have sums below 2^30 in magnitude.
    """
    left, right = (_moved(m, each, offset) for each in (lhs, rhs))
    value = m.multiply_add(left, lhs_ratio, m.multiply_add(right, rhs_ratio, fixed))
    return m.saturated(value, 0, low + offset, high + offset) - offset


@elementwise(
    "qlinear_add_fixed", FIXED_OPERANDS, as_first, accepts=dict.fromkeys(FIXED_OPERANDS, FLOAT)
)
def qlinear_add_fixed(
    m: Numbers, lhs_ratio: Value, lhs_zero_point: Value, rhs_ratio: Value, rhs_zero_point: Value,
    zero_point: Value,
) -> Value:  # fmt: skip
    """The operand `fixed` of `qlinear_add`, of scales and zero points that are computed."""
    right = m.product(rhs_ratio, rhs_zero_point)
    return zero_point - m.multiply_add(lhs_ratio, lhs_zero_point, right)


@elementwise(
    "qlinear_mul", ["lhs", "rhs", "ratio"], as_first,
    accepts={"lhs": BYTES, "rhs": BYTES}, widened=["lhs", "rhs"],
)  # fmt: skip
def qlinear_mul(
    m: Numbers, lhs: Value, rhs: Value, ratio: Value, *,
    lhs_zero_point: ZeroPoint, rhs_zero_point: ZeroPoint, zero_point: ZeroPoint,
    low: int, high: int, offset: int = 0,
) -> Value:  # fmt: skip
    """QLinearMul: `round(float32((lhs - za) * (rhs - zb)) * ratio + zero_point)`, saturated.

    `offset` as in `qlinear_add`.
    """
    left, right = (
        _moved(m, q, -by.whole) for q, by in ((lhs, lhs_zero_point), (rhs, rhs_zero_point))
    )
    scaled = m.product(m.product(left, right), ratio)  # of two whole numbers it is exact
    moved = scaled + m.constant(zero_point.whole + offset, "float32")
    return m.saturated(moved, 0, low + offset, high + offset) - offset


def _moved(m: Numbers, x: Value, offset: int) -> Value:
    """A whole number plus another, as float32."""
    value = m.cast(x, "float32")
    return value + m.constant(offset, "float32") if offset else value


@elementwise("dynamic_scale", ["low", "high"], as_first, accepts={"low": FLOAT, "high": FLOAT})
def dynamic_scale(m: Numbers, low: Value, high: Value) -> Value:
    """DynamicQuantizeLinear's scale of data between `low` and `high`: 1 where there is only 0."""
    zero = m.constant(0, "float32")
    span = m.maximum(high, zero) - m.minimum(low, zero)
    one = m.constant(1, "float32")
    return m.where(span == zero, one, m.quotient(span, m.constant(255, "float32")))


@elementwise(
    "dynamic_zero_point", ["low", "scale"], of_type("uint8"), accepts={"low": FLOAT, "scale": FLOAT}
)
def dynamic_zero_point(m: Numbers, low: Value, scale: Value) -> Value:
    """DynamicQuantizeLinear's zero point: what `low`, at most 0, is below it, rounded."""
    zero = m.constant(0, "float32")
    return m.saturated(zero - m.quotient(m.minimum(low, zero), scale), 0, 0, 255)


@elementwise("quantize_inside", ["x", "scale"], by_attribute, accepts={"x": FLOAT, "scale": FLOAT})
def quantize_inside(
    m: Numbers,
    x: Value,
    scale: Value,
    *,
    zero_point: ZeroPoint,
    low: int,
    high: int,
    dtype: str,
    offset: int = 0,
) -> Value:
    """`round(x / scale + zero_point)`, saturated: how QLinearAveragePool quantizes.

    `offset` as in `qlinear_add`.
    """
    moved = m.quotient(x, scale) + m.constant(zero_point.whole + offset, "float32")
    return m.saturated(moved, 0, low + offset, high + offset) - offset


@elementwise("float_sum", ["lhs", "rhs"], as_first, accepts={"lhs": FLOAT, "rhs": FLOAT})
def float_sum(_m: Numbers, lhs: Value, rhs: Value) -> Value:
    """ONNX's Sum of two float32 tensors: unlike Add, ONNX Runtime never makes it QLinearAdd."""
    return lhs + rhs
