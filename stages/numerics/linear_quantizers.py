"""QuantizeLinear and DequantizeLinear: the two operators every QDQ graph is made of.

A quantized tensor is `scale * (q - zero_point)`. Scale and zero point are operands that broadcast
to the data as in NumPy, which says where they vary:

* per tensor: shape [];
* per axis: every extent 1 but the axis's, such as [O, 1, 1, 1] along axis 0 of OIHW weights;
* in blocks of B along an axis of extent K: the data is seen as [..., K / B, B, ...], the scale as
  [..., K / B, 1, ...] (a reshape before and after; a scale repeated element by element where B
  does not divide K).

Scale and zero point may be computed by the graph, as DynamicQuantizeLinear does. Results have the
zero point's dtype; dtypes below 8 bits are stored in bytes like everywhere in the dialect.
"""

from __future__ import annotations

from stages.dialect.elementwise import elementwise, of_type
from stages.dialect.numbers import Numbers, Value
from stages.numerics.division import quotient_by_products

FLOAT = ("float32",)
QUANTIZED = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (2, 4, 8, 16))
"""What QuantizeLinear gives."""
DEQUANTIZED = (*QUANTIZED, "int32")
"""What DequantizeLinear takes."""


@elementwise(
    "quantize_linear", ["x", "scale", "zero_point"], lambda dtypes, _: dtypes[2],
    accepts={"x": FLOAT, "scale": FLOAT, "zero_point": QUANTIZED},
)  # fmt: skip
def quantize_linear(
    m: Numbers, x: Value, scale: Value, zero_point: Value, *, low: int, high: int,
    reciprocal: bool = False, rounds_alike: bool = False,
) -> Value:  # fmt: skip
    """`clip(round_half_even(x / scale) + zero_point, low, high)`, all in float32 up to the sum.

    ONNX's QuantizeLinear as ONNX Runtime's MLAS computes it: a division, a clip (NaN becomes
    `low`), a rounding, the zero point. `low` and `high` are the dtype's own limits, or narrower as
    in PyTorch's `quant_min` and `quant_max`. With `reciprocal`, x is multiplied by
    `float32(1) / scale`, as `quantized_decomposed.quantize_per_tensor` does. If it `rounds_alike`,
    products give the same integers as the division (`stages.numerics.division`).
    """
    zero_point = m.cast(zero_point, "int32")
    if reciprocal:
        scaled = m.product(x, m.quotient(m.constant(1, "float32"), scale))
    else:
        scaled = m.quotient(x, scale)
    smallest, largest = (m.cast(limit - zero_point, "float32") for limit in (low, high))
    if rounds_alike and m.divides_by_products():
        ends = (m.product(bound, scale) for bound in (smallest, largest))
        x = m.where(x > (least := next(ends)), x, least)
        x = m.where(x < (most := next(ends)), x, most)
        return m.nearest(quotient_by_products(m, x, scale)) + zero_point
    bounded = m.where(scaled > smallest, scaled, smallest)
    bounded = m.where(bounded < largest, bounded, largest)
    return m.nearest(bounded) + zero_point


@elementwise(
    "dequantize_linear", ["data", "scale", "zero_point"], of_type("float32"),
    accepts={"data": DEQUANTIZED, "scale": FLOAT, "zero_point": DEQUANTIZED},
)  # fmt: skip
def dequantize_linear(m: Numbers, data: Value, scale: Value, zero_point: Value) -> Value:
    """`float32(data - zero_point) * scale`; int32 is for biases and accumulators."""
    wide = "int64" if m.dtype(data) == "int32" else "int32"
    difference = m.cast(data, wide) - m.cast(zero_point, wide)
    return m.product(m.cast(difference, "float32"), scale)
