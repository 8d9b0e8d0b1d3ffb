"""Layers of float32 data and int8 weights: the data is quantized anew for every sample.

`largest` is the largest size of a sample's values, `low` and `high` are its least and greatest
value, all float32 of the data's rank. Sources: PortableSymmetricQuantizeFloats,
PortableAsymmetricQuantizeFloats and PortableMatrixBatchVectorMultiplyAccumulate in
tensorflow/lite/kernels/internal/reference/portable_tensor_utils.cc, HybridConvPerChannel in
internal/reference/conv.h.
"""

from __future__ import annotations

from stages.dialect.elementwise import elementwise, of_type
from stages.dialect.numbers import Numbers, Value
from stages.numerics.tflite import round_away

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


def _range(m: Numbers, low: Value, high: Value) -> tuple[Value, Value, Value]:
    """Ends of a sample's range with 0 in it, and its 255th, as float64; 1 for one of zeros.

    The kernel takes the difference of the ends in float32.
    """
    zero = m.constant(0.0, "float64")
    least = m.minimum(m.cast(low, "float64"), zero)
    most = m.maximum(m.cast(high, "float64"), zero)
    width = m.cast(m.cast(most, "float32") - m.cast(least, "float32"), "float64")
    step = m.quotient(width, m.constant(255.0, "float64"))
    return least, most, m.where(step == zero, m.constant(1.0, "float64"), step)


def _zero_point(m: Numbers, least: Value, most: Value, step: Value) -> Value:
    """The zero point that errs less, seen from either end of the range: float32, whole."""
    below, above = m.quotient(least, step), m.quotient(most, step)
    bottom, top = m.constant(-128.0, "float64"), m.constant(127.0, "float64")
    errs_less = m.absolute(below) - bottom < m.absolute(above) + top
    nearest = round_away(m, m.where(errs_less, bottom - below, top - above))
    return m.cast(m.minimum(m.maximum(nearest, bottom), top), "float32")


@elementwise(
    "center_sample", ["x", "low", "high"], of_type("int16"),
    accepts={"x": FLOAT, "low": FLOAT, "high": FLOAT},
)  # fmt: skip
def center_sample(m: Numbers, x: Value, low: Value, high: Value) -> Value:
    """A sample quantized asymmetrically to int8, less its zero point."""
    least, most, step = _range(m, low, high)
    zero_point = _zero_point(m, least, most, step)
    inverse = m.quotient(m.constant(1.0, "float32"), m.cast(step, "float32"))
    rounded = round_away(m, zero_point + m.product(x, inverse))
    limits = m.constant(-128.0, "float32"), m.constant(127.0, "float32")
    return m.cast(m.minimum(m.maximum(rounded, limits[0]), limits[1]) - zero_point, "int16")


@elementwise(
    "centered_output", ["total", "low", "high", "scale"], of_type("float32"),
    accepts={"total": ["int32"], "low": FLOAT, "high": FLOAT, "scale": FLOAT},
)  # fmt: skip
def centered_output(
    m: Numbers, total: Value, low: Value, high: Value, scale: Value, *, joined: bool
) -> Value:
    """`float32(total) * scale * step`, every operation rounded; `scale` is [C].

    Where `joined`, the scales are multiplied first, as in depthwise convolutions.
    """
    step = m.cast(_range(m, low, high)[2], "float32")
    if joined:
        return m.product(m.cast(total, "float32"), m.product(scale, step))
    return m.product(m.product(m.cast(total, "float32"), scale), step)
