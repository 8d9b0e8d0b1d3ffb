"""Operators of the integer dialect: NHWC activations, OHWI weights, int32 accumulators.

Between two of them no float tensor exists. Their NumPy meanings are exact: sums are taken in
float64, whose 53 bits hold every accumulator that int32 can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.qnn import infer, legalize
from stages.qnn.algebra import numerators
from stages.qnn.registry import register, storage_dtype
from stages.qnn.source import ROUNDING

Array = np.ndarray[Any, Any]


def windows(
    x: Array, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int] = (1, 1)
) -> Array:
    """Sliding windows of a padded NHWC tensor: [N, OH, OW, C, KH, KW] (a view)."""
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(1, 2))
    return view[:, :: strides[0], :: strides[1], :, :: dilation[0], :: dilation[1]]


def pad_spatial(x: Array, padding: Sequence[int], value: float) -> Array:
    """`x` (NHWC) padded by (top, left, bottom, right) with `value`."""
    top, left, bottom, right = padding
    return np.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)], constant_values=value)


def convolve(
    data: Array,
    weight: Array,
    strides: Sequence[int],
    groups: int,
    dilation: Sequence[int] = (1, 1),
    dtype: str = "int32",
) -> Array:
    """Integer convolution of padded NHWC numerators with OHWI numerators: [N, OH, OW, O]."""
    oc, kh, kw, group_channels = weight.shape
    view = windows(data.astype(np.float64), (kh, kw), strides, dilation)
    n, oh, ow = view.shape[:3]
    if group_channels == 1:
        filters = weight.reshape(groups, oc // groups, kh, kw).astype(np.float64)
        sums = np.einsum("nhwckl,cmkl->nhwcm", view, filters, optimize=True)
        return sums.reshape(n, oh, ow, oc).astype(dtype)
    parts = []
    for group in range(groups):
        channels = slice(group * group_channels, (group + 1) * group_channels)
        outputs = slice(group * oc // groups, (group + 1) * oc // groups)
        columns = view[:, :, :, channels].transpose(0, 1, 2, 4, 5, 3).reshape(n * oh * ow, -1)
        matrix = weight[outputs].reshape(oc // groups, -1).astype(np.float64)
        parts.append((columns @ matrix.T).reshape(n, oh, ow, -1))
    return np.concatenate(parts, axis=3).astype(dtype)


def _conv2d_meaning(
    data: Array,
    weight: Array,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    groups: int,
    data_zero_point_x2: int,
    weight_zero_point_x2: int,
    pad_value: int,
    dilation: Sequence[int] = (1, 1),
    dtype: str = "int32",
) -> Array:
    """Convolution of numerators; padded positions have the numerator `pad_value`.

    The accumulator `dtype` is int32, or int64 where int16 activations could overflow it.
    """
    padded = pad_spatial(numerators(data, data_zero_point_x2), padding, pad_value)
    filters = numerators(weight, weight_zero_point_x2)
    return convolve(padded, filters, strides, groups, dilation, dtype)


def _dense_meaning(
    data: Array,
    weight: Array,
    *,
    data_zero_point_x2: int,
    weight_zero_point_x2: int,
    dtype: str = "int32",
) -> Array:
    """Matrix product of numerators: data [N, K], weight [O, K], result [N, O]."""
    a = numerators(data, data_zero_point_x2).astype(np.float64)
    w = numerators(weight, weight_zero_point_x2).astype(np.float64)
    return (a @ w.T).astype(dtype)


conv2d = register("conv2d", ["data", "weight"], infer.conv2d, legalize.conv2d)(_conv2d_meaning)
bitserial_conv2d = register("bitserial_conv2d", ["data", "weight"], infer.conv2d, legalize.conv2d)(
    _conv2d_meaning
)
lookup_conv2d = register("lookup_conv2d", ["data", "weight"], infer.conv2d, legalize.conv2d)(
    _conv2d_meaning
)
dense = register("dense", ["data", "weight"], infer.dense, legalize.dense)(_dense_meaning)
bitserial_dense = register("bitserial_dense", ["data", "weight"], infer.dense, legalize.dense)(
    _dense_meaning
)
lookup_dense = register("lookup_dense", ["data", "weight"], infer.dense, legalize.dense)(
    _dense_meaning
)


@register("add", ["lhs", "rhs"], infer.add, legalize.add)
def add(lhs: Array, rhs: Array, *, lhs_zero_point: int, rhs_zero_point: int) -> Array:
    """Sum of two tensors that share one scale, zero points removed: int32."""
    return (lhs.astype(np.int32) - lhs_zero_point) + (rhs.astype(np.int32) - rhs_zero_point)


@register("max_pool2d", ["data"], infer.max_pool2d, legalize.max_pool2d)
def max_pool2d(
    data: Array, *, kernel: Sequence[int], strides: Sequence[int], padding: Sequence[int]
) -> Array:
    """Maximum over windows; padded positions never win."""
    lowest = -np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).min
    return windows(pad_spatial(data, padding, lowest), kernel, strides).max(axis=(4, 5))


@register("sum_pool2d", ["data"], infer.sum_pool2d, legalize.sum_pool2d)
def sum_pool2d(
    data: Array,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    zero_point: int,
) -> Array:
    """Sum over windows with the zero point removed (an average before its division): int32."""
    padded = pad_spatial(data.astype(np.int32) - zero_point, padding, 0)
    return windows(padded, kernel, strides).sum(axis=(4, 5), dtype=np.int32)


@register("threshold", ["data", "thresholds", "flip"], infer.threshold, legalize.threshold)
def threshold(
    data: Array, thresholds: Array, flip: Array, *, dtype: str, rising: bool = False
) -> Array:
    """Level = number of thresholds `t` with `data >= t` (with `data < t` where `flip` is 1).

    `thresholds` is [T, C], float32 or integers as the data is, `flip` uint8 [C]; C is the last
    axis of `data`.
    `rising` says that `flip` is 0 everywhere.
    """
    assert not (rising and np.any(flip))
    level = np.zeros(data.shape, storage_dtype(dtype))
    for row in thresholds:
        level += (data >= row) ^ (flip != 0)
    return level


@register("requantize", ["data", "multiplier", "offset"], infer.requantize, legalize.requantize)
def requantize(
    data: Array,
    multiplier: Array,
    offset: Array,
    *,
    low: int,
    high: int,
    dtype: str,
    fits: bool = False,
) -> Array:
    """`clip(round_half_even(float32(data) * multiplier + offset), low, high)` in float32.

    `multiplier` and `offset` are float32 [C]; the product is rounded before the sum (no fma). What
    `fits` is known to have sums below 2^31 in size.
    """
    scaled = data.astype(np.float32) * multiplier + offset
    return np.clip(np.rint(scaled), low, high).astype(storage_dtype(dtype))


@register("saturate", ["data"], infer.saturate, legalize.saturate)
def saturate(data: Array, *, offset: int, low: int, high: int, dtype: str) -> Array:
    """`clip(data + offset, low, high)`: a requantization between equal scales."""
    return np.clip(data.astype(np.int32) + offset, low, high).astype(storage_dtype(dtype))


@register("quantize", ["x", "scale", "zero_point"], infer.quantize, legalize.quantize)
def quantize(
    x: Array,
    scale: Array,
    zero_point: Array,
    *,
    low: int,
    high: int,
    shift: int,
    rounding: str,
    dtype: str,
) -> Array:
    """Integers of a QONNX Quant: `round(clip(x / scale + zero_point, low, high)) + shift`."""
    clipped = np.clip(x / scale + zero_point, np.float32(low), np.float32(high))
    return (ROUNDING[rounding](clipped) + np.float32(shift)).astype(storage_dtype(dtype))


@register("dequantize", ["data", "scale"], infer.dequantize, legalize.dequantize)
def dequantize(data: Array, scale: Array, *, zero_point: int) -> Array:
    """`float32(data - zero_point) * scale`; `scale` is float32, scalar or [C] (last axis)."""
    return (data.astype(np.int32) - zero_point).astype(np.float32) * scale
