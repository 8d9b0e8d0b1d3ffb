"""What Larq's binarised layers compute besides convolutions: levels 0 and 1 stand for -1 and +1.

Source: larq_compute_engine/core/bconv2d/output_transform.h.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.dialect.calls import Attrs
from stages.dialect.elementwise import by_attribute, elementwise, of_type
from stages.dialect.numbers import Numbers, Value
from stages.numerics.tflite import round_away

BIT = "uint1"
FLOAT = ["float32"]


@elementwise("from_bits", ["bits"], by_attribute, accepts={"bits": [BIT, "uint8"]})
def from_bits(m: Numbers, bits: Value, *, low: int, high: int, dtype: str) -> Value:
    """`high` for a level of 1, `low` for 0."""
    values = m.constant(low, dtype), m.constant(high, dtype)
    return m.where(m.cast(bits, "int32") != m.constant(0, "int32"), values[1], values[0])


@elementwise("sign", ["x"], of_type("float32"), accepts={"x": FLOAT})
def sign(m: Numbers, x: Value) -> Value:
    """+1 from 0 upwards, else -1, in float32."""
    one = m.constant(1.0, "float32")
    return m.where(x >= m.constant(0.0, "float32"), one, -one)


def _result(_dtypes: Sequence[str], attrs: Attrs) -> str:
    return str(attrs["dtype"])


@elementwise(
    "larq_output", ["total", "multiplier", "bias"], _result,
    accepts={"total": ["int32"], "multiplier": FLOAT, "bias": FLOAT},
)  # fmt: skip
def larq_output(
    m: Numbers,
    total: Value,
    multiplier: Value,
    bias: Value,
    *,
    depth: int,
    low: int,
    high: int,
    dtype: str,
) -> Value:
    """`float32(clip(depth - total, low, high)) * multiplier + bias`, of products of +-1.

    `depth` is how many there are, `depth - total` twice how many are -1. An int8 result is rounded
    halves away from zero and saturates.
    """
    mismatches = m.constant(depth, "int32") - total
    bounded = m.minimum(m.maximum(mismatches, m.constant(low, "int32")), m.constant(high, "int32"))
    real = m.product(m.cast(bounded, "float32"), multiplier) + bias
    if dtype == "float32":
        return real
    limits = m.constant(-128.0, "float32"), m.constant(127.0, "float32")
    return m.cast(m.minimum(m.maximum(round_away(m, real), limits[0]), limits[1]), dtype)
