"""Layers of float32 data and int8 weights: the data is quantized anew for every sample.

`largest` is the largest size of a sample's values, float32 of the data's rank. Sources:
PortableSymmetricQuantizeFloats and PortableMatrixBatchVectorMultiplyAccumulate in
tensorflow/lite/kernels/internal/reference/portable_tensor_utils.cc.
"""

from __future__ import annotations

from stages.qnn.elementwise import elementwise, of_type
from stages.qnn.numbers import Numbers, Value
from stages.qnn.tflite import round_away

FLOAT = ["float32"]
STEPS = 127.0


def _some(m: Numbers, largest: Value) -> Value:
    """`largest`, or what gives the scale 1 to a sample of zeros."""
    steps = m.constant(STEPS, "float32")
    return m.where(largest == m.constant(0.0, "float32"), steps, largest)


@elementwise(
    "quantize_sample", ["x", "largest"], of_type("int8"), accepts={"x": FLOAT, "largest": FLOAT}
)
def quantize_sample(m: Numbers, x: Value, largest: Value) -> Value:
    """`round(x * (127 / largest))` in float32, halves away from zero."""
    steps = m.constant(STEPS, "float32")
    rounded = round_away(m, m.product(x, m.quotient(steps, _some(m, largest))))
    return m.cast(m.minimum(m.maximum(rounded, -steps), steps), "int8")


@elementwise(
    "sample_output", ["total", "largest", "scale"], of_type("float32"),
    accepts={"total": ["int32"], "largest": FLOAT, "scale": FLOAT},
)  # fmt: skip
def sample_output(m: Numbers, total: Value, largest: Value, scale: Value) -> Value:
    """`float32(total) * ((largest / 127) * scale)`, every operation rounded."""
    unit = m.quotient(_some(m, largest), m.constant(STEPS, "float32"))
    return m.product(m.cast(total, "float32"), m.product(unit, scale))
