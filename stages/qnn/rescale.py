"""Elementwise operators that every framework's integer networks share."""

from __future__ import annotations

from stages.qnn.elementwise import by_attribute, elementwise
from stages.qnn.numbers import Numbers, Value

BYTES = ("int8", "uint8")


@elementwise("rescale", ["data", "scale"], by_attribute, accepts={"scale": ["float32"]})
def rescale(
    m: Numbers, data: Value, scale: Value, *, zero_point: int, low: int, high: int, dtype: str
) -> Value:
    """Requantize in float32: `clip(round_half_even(float32(data) * scale) + zero_point)`.

    ONNX Runtime's MLAS does so for QLinearConv and its like: the zero point comes after rounding.
    """
    scaled = m.product(m.cast(data, "float32"), scale)
    bounded = m.minimum(
        m.maximum(scaled, m.constant(low - zero_point, "float32")),
        m.constant(high - zero_point, "float32"),
    )
    return m.cast(m.cast(m.round_even(bounded), "int32") + zero_point, dtype)


@elementwise(
    "table", ["data", "values"], lambda dtypes, _: dtypes[1], accepts={"data": BYTES},
    whole=["values"],
)  # fmt: skip
def table(m: Numbers, data: Value, values: Value) -> Value:
    """`values[q - smallest]`: any function of one byte, as the 256 values [256] it takes."""
    is_signed = m.dtype(data) == "int8"
    return m.look_up(values, m.cast(data, "int32") + (128 if is_signed else 0))
