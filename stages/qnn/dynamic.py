"""Floats quantized by their own range while the network runs: TensorFlow Lite's hybrid layers.

A layer of float32 data and int8 weights quantizes each sample symmetrically by its largest size,
multiplies integers, and scales the sums back to float32. Source: SymmetricQuantizeFloats in
tensorflow/lite/kernels/internal/reference/portable_tensor_utils.cc, HybridConv in
tensorflow/lite/kernels/internal/optimized/optimized_ops.h.
"""

from __future__ import annotations

from stages.qnn.elementwise import elementwise, of_type
from stages.qnn.numbers import Numbers, Value
from stages.qnn.tflite import round_away

FLOAT = ("float32",)


@elementwise(
    "dynamic_symmetric", ["x", "size"], of_type("int8"), accepts={"x": FLOAT, "size": FLOAT}
)
def dynamic_symmetric(m: Numbers, x: Value, size: Value) -> Value:
    """`round(x * (127 / size))`, halves away from zero; int8, 0 where the size is 0."""
    zero, levels = m.constant(0, "float32"), m.constant(127, "float32")
    divisor = m.where(size == zero, levels, size)
    steps = round_away(m, m.product(x, m.quotient(levels, divisor)))
    bounded = m.minimum(m.maximum(steps, zero - levels), levels)
    return m.cast(m.where(size == zero, zero, bounded), "int8")


@elementwise(
    "dynamic_sum", ["total", "size", "scale"], of_type("float32"),
    accepts={"total": ["int32"], "size": FLOAT, "scale": FLOAT},
)  # fmt: skip
def dynamic_sum(m: Numbers, total: Value, size: Value, scale: Value) -> Value:
    """`total * (size / 127 * scale)`: what sums of products of stored integers mean."""
    step = m.product(m.quotient(size, m.constant(127, "float32")), scale)
    return m.product(m.cast(total, "float32"), step)
