"""Elementwise operators that every framework's integer networks share."""

from __future__ import annotations

from stages.qnn.elementwise import by_attribute, elementwise
from stages.qnn.numbers import Numbers, Value

BYTES = ("int8", "uint8")


@elementwise("rescale", ["data", "scale"], by_attribute, accepts={"scale": ["float32"]})
def rescale(
    m: Numbers, data: Value, scale: Value, *,
    zero_point: int, low: int, high: int, dtype: str, fits: bool = False,
) -> Value:  # fmt: skip
    """Requantize in float32: `clip(round_half_even(float32(data) * scale) + zero_point)`.

    ONNX Runtime's MLAS does so for QLinearConv and its like: the zero point comes after rounding.
    What `fits` is known to have products of at most 2^30 in size.
    """
    scaled = m.product(m.cast(data, "float32"), scale)
    return m.saturated(scaled, zero_point, low, high)


@elementwise(
    "rescaled_sum", ["lhs", "rhs", "lhs_scale", "rhs_scale"], by_attribute,
    accepts={"lhs_scale": ["float32"], "rhs_scale": ["float32"]}, widened=["lhs", "rhs"],
)  # fmt: skip
def rescaled_sum(
    m: Numbers, lhs: Value, rhs: Value, lhs_scale: Value, rhs_scale: Value, *,
    fused: bool, low: int, high: int, dtype: str,
) -> Value:  # fmt: skip
    """`clip(round_half_even(lhs * lhs_scale + rhs * rhs_scale))` in float32.

    oneDNN's sum rounds both products; the sum that it appends to a convolution is `fused`: only
    the left product is rounded (vfmadd).
    """
    left = m.product(m.cast(lhs, "float32"), lhs_scale)
    if fused:
        total = m.multiply_add(m.cast(rhs, "float32"), rhs_scale, left)
    else:
        total = left + m.product(m.cast(rhs, "float32"), rhs_scale)
    return m.saturated(total, 0, low, high)


@elementwise(
    "table", ["data", "values"], lambda dtypes, _: dtypes[1], accepts={"data": BYTES},
    whole=["values"],
)  # fmt: skip
def table(m: Numbers, data: Value, values: Value) -> Value:
    """`values[q - smallest]`: any function of one byte, as the 256 values [256] it takes."""
    is_signed = m.dtype(data) == "int8"
    return m.look_up(values, m.cast(data, "int32") + (128 if is_signed else 0))
