"""Operators of the integer dialect: NHWC activations, OHWI weights, int32 accumulators.

Between two of them no float tensor exists. NumPy meanings of products are exact (`convolve.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.dialect import infer, integer_te
from stages.dialect.calls import Attrs
from stages.dialect.convolve import convolve, pad_spatial, windows
from stages.dialect.elementwise import Rows, by_attribute, elementwise, of_type
from stages.dialect.numbers import Numbers, Value, clip
from stages.dialect.padding import Padding, Sides
from stages.dialect.registry import register
from stages.dialect.rounding_modes import MODES, within
from stages.dialect.zero_point import ZeroPoint
from stages.kinds import Array
from stages.nodes import TensorType


def _conv2d_meaning(
    data: Array,
    weight: Array,
    *,
    strides: Sequence[int],
    padding: Padding,
    groups: int,
    data_zero_point: ZeroPoint,
    weight_zero_point: ZeroPoint,
    dilation: Sequence[int] = (1, 1),
    dtype: str = "int32",
    of_levels: bool = False,
) -> Array:
    """Convolution of numerators; padded positions have that of the padding.

    The accumulator `dtype` is int32, or int64 where int16 activations could overflow it.
    `of_levels` says that it comes from between simulated quantizers: its data are levels that
    nothing but layers read, and what becomes of its sums are levels or floats. It changes no value.
    """
    del of_levels
    padded = pad_spatial(data_zero_point.numerators(data), padding.sides, padding.numerator)
    numerators = weight_zero_point.numerators(weight)
    return convolve(padded, numerators, strides, groups, dilation, dtype)


def _dense_meaning(
    data: Array,
    weight: Array,
    *,
    data_zero_point: ZeroPoint,
    weight_zero_point: ZeroPoint,
    dtype: str = "int32",
    of_levels: bool = False,
) -> Array:
    """Matrix product of numerators: data [N, K], weight [O, K], result [N, O].

    `of_levels` is that of `conv2d`.
    """
    del of_levels
    a = data_zero_point.numerators(data).astype(np.float64)
    w = weight_zero_point.numerators(weight).astype(np.float64)
    return (a @ w.T).astype(dtype)


_LINEAR = ["data", "weight"]
_CONV2D = infer.conv2d, integer_te.conv2d
_DENSE = infer.dense, integer_te.dense
conv2d = register("conv2d", _LINEAR, *_CONV2D)(_conv2d_meaning)
bitserial_conv2d = register("bitserial_conv2d", _LINEAR, *_CONV2D)(_conv2d_meaning)
lookup_conv2d = register("lookup_conv2d", _LINEAR, *_CONV2D)(_conv2d_meaning)
dense = register("dense", _LINEAR, *_DENSE)(_dense_meaning)
bitserial_dense = register("bitserial_dense", _LINEAR, *_DENSE)(_dense_meaning)
lookup_dense = register("lookup_dense", _LINEAR, *_DENSE)(_dense_meaning)


@register("max_pool2d", ["data"], infer.max_pool2d, integer_te.max_pool2d)
def max_pool2d(
    data: Array, *, kernel: Sequence[int], strides: Sequence[int], padding: Sides
) -> Array:
    """Maximum over windows; padded positions never win."""
    lowest = -np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).min
    return windows(pad_spatial(data, padding, lowest), kernel, strides).max(axis=(4, 5))


@register("sum_pool2d", ["data"], infer.sum_pool2d, integer_te.sum_pool2d)
def sum_pool2d(
    data: Array,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sides,
    zero_point: ZeroPoint,
) -> Array:
    """Sum over windows with the zero point removed (an average before its division): int32."""
    padded = pad_spatial(data.astype(np.int32) - zero_point.whole, padding, 0)
    return windows(padded, kernel, strides).sum(axis=(4, 5), dtype=np.int32)


@elementwise("add", ["lhs", "rhs"], of_type("int32"), infer=infer.add)
def add(
    m: Numbers, lhs: Value, rhs: Value, *, lhs_zero_point: ZeroPoint, rhs_zero_point: ZeroPoint
) -> Value:
    """Sum of two tensors that share one scale, zero points removed: int32."""
    left = m.cast(lhs, "int32") - lhs_zero_point.whole
    return left + (m.cast(rhs, "int32") - rhs_zero_point.whole)


@elementwise(
    "threshold", ["data", "thresholds", "flip"], by_attribute,
    rows=["thresholds"], infer=infer.threshold,
)  # fmt: skip
def threshold(
    m: Numbers,
    data: Value,
    thresholds: Rows,
    flip: Value,
    *,
    dtype: str,
    rising: bool = False,
    of_levels: bool = False,
) -> Value:
    """Level = number of thresholds `t` with `data >= t` (where `flip` is 1, without).

    `thresholds` is [T, C], float32 or integers as the data is, `flip` uint8 [C]; C is the last
    axis of `data`.
    `rising` says that `flip` is 0 everywhere, `of_levels` that the result is that of a simulated
    quantizer (`conv2d`).
    """
    del dtype, of_levels
    wide = "float32" if thresholds.dtype == "float32" else "int32"
    kind = thresholds.dtype if m.dtype(data) == thresholds.dtype else wide
    value = m.cast(data, kind)

    def is_reached(limit: Value) -> Value:
        hit = value >= m.cast(limit, kind)
        if rising:
            return hit
        return m.where(m.equal(flip, m.constant(0, "uint8")), hit, m.logical_not(hit))

    return thresholds.count(is_reached)


@elementwise("requantize", ["data", "multiplier", "offset"], by_attribute, infer=infer.requantize)
def requantize(
    m: Numbers,
    data: Value,
    multiplier: Value,
    offset: Value,
    *,
    low: int,
    high: int,
    dtype: str,
    fits: bool = False,
) -> Value:
    """`clip(round_half_even(float32(data) * multiplier + offset), low, high)` in float32.

    `multiplier` and `offset` are float32 [C]; the product is rounded before the sum (no fma). What
    `fits` is known to have sums below 2^31 in magnitude.
    """
    del dtype, fits
    scaled = m.product(m.cast(data, "float32"), multiplier) + offset
    return m.saturated(scaled, 0, low, high)


@elementwise("saturate", ["data"], by_attribute, infer=infer.saturate)
def saturate(m: Numbers, data: Value, *, offset: int, low: int, high: int, dtype: str) -> Value:
    """`clip(data + offset, low, high)`: a requantization between equal scales."""
    del dtype
    return clip(m, m.cast(data, "int32") + offset, low, high, "int32")


def _quantize_type(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    # Here, not in `infer`: kernels share that file, and no kernel depends on QONNX's roundings.
    if (rounding := attrs["rounding"]) not in MODES:
        raise ValueError(f"rounding mode {rounding}; known: {', '.join(MODES)}")
    return infer.quantize(types, attrs)


@elementwise("quantize", ["x", "scale", "zero_point"], by_attribute, infer=_quantize_type)
def quantize(
    m: Numbers,
    x: Value,
    scale: Value,
    zero_point: Value,
    *,
    low: int,
    high: int,
    shift: int,
    rounding: str,
    dtype: str,
) -> Value:
    """Integers of a QONNX Quant: `round(clip(x / scale + zero_point, low, high)) + shift`."""
    del dtype
    moved = m.quotient(x, scale) + zero_point
    return within(m, rounding, moved, low, high) + shift


@elementwise("dequantize", ["data", "scale"], of_type("float32"), infer=infer.dequantize)
def dequantize(m: Numbers, data: Value, scale: Value, *, zero_point: ZeroPoint) -> Value:
    """`float32(data - zero_point) * scale`; `scale` is float32, scalar or [C] (last axis)."""
    return m.product(m.cast(m.cast(data, "int32") - zero_point.whole, "float32"), scale)
