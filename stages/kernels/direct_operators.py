"""Products in the form that TE kernels compute: output channels last in the weights, no padding.

    direct_conv2d: data [N, H, W, I] in groups, weight [KH, KW, I / groups, O]
    direct_dense:  data [N, K], weight [K, O]

Vectors then run along the output channels; padding and zero points have become operators and
constants of their own (`stages.legalizing.legalize_products`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import te

from stages.dialect import infer
from stages.dialect.calls import shape_of, tensor_type
from stages.dialect.convolve import convolve
from stages.dialect.registry import register
from stages.dialect.zero_point import ZeroPoint
from stages.nodes import Index, Scalar, Tensor, TensorType

Array = np.ndarray[Any, Any]
Attrs = Mapping[str, Any]


def _conv_type(types: Sequence[TensorType], attrs: Attrs) -> Any:
    kh, kw, depth, outputs = shape_of(types[1])
    weight = tensor_type((outputs, kh, kw, depth), str(types[1].dtype))
    return infer.conv2d([types[0], weight], attrs)


def _conv_expression(
    data: Tensor,
    weight: Tensor,
    *,
    strides: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_zero_point: ZeroPoint,
    weight_zero_point: ZeroPoint,
    dtype: str,
) -> Any:
    kh, kw, depth, outputs = (int(extent) for extent in weight.shape)
    n, h, w, _ = (int(extent) for extent in data.shape)
    share = outputs // groups
    size = infer.output_size((h, w), (kh, kw), strides, dilation)
    (sh, sw), (dh, dw) = strides, dilation
    ry, rx, rk = (te.reduce_axis((0, extent)) for extent in (kh, kw, depth))

    def at(b: Index, y: Index, x: Index, o: Index) -> Scalar:
        if groups == 1:
            channel = rk
        elif depth == 1:
            channel = o if share == 1 else o // share
        else:
            channel = (o // share) * depth + rk
        activation = data[b, y * sh + ry * dh, x * sw + rx * dw, channel].astype(dtype)
        filtered = weight[ry, rx, rk, o].astype(dtype)
        if data_zero_point:
            activation = activation - data_zero_point.whole
        if weight_zero_point:
            filtered = filtered - weight_zero_point.whole
        return te.sum(activation * filtered, axis=[ry, rx, rk])

    return te.compute((n, *size, outputs), at, name="conv2d")


@register("direct_conv2d", ["data", "weight"], _conv_type, _conv_expression)
def direct_conv2d(
    data: Array,
    weight: Array,
    *,
    strides: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    data_zero_point: ZeroPoint,
    weight_zero_point: ZeroPoint,
    dtype: str,
) -> Array:
    """Convolution of an already padded image; accumulators are int32, int64 or, of floats,
    float16, float32 or float64."""
    kind = np.float64 if dtype.startswith("float") else np.int32
    numerators = weight.transpose(3, 0, 1, 2).astype(kind) - weight_zero_point.whole
    levels = data.astype(kind) - data_zero_point.whole
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return convolve(levels, numerators, strides, groups, dilation, dtype)


def _dense_type(types: Sequence[TensorType], attrs: Attrs) -> Any:
    depth, outputs = shape_of(types[1])
    return infer.dense([types[0], tensor_type((outputs, depth), str(types[1].dtype))], attrs)


def _dense_expression(
    data: Tensor,
    weight: Tensor,
    *,
    data_zero_point: ZeroPoint,
    weight_zero_point: ZeroPoint,
    dtype: str,
) -> Any:
    k = te.reduce_axis((0, weight.shape[0]))

    def at(row: Index, o: Index) -> Scalar:
        activation, filtered = data[row, k].astype(dtype), weight[k, o].astype(dtype)
        if data_zero_point:
            activation = activation - data_zero_point.whole
        if weight_zero_point:
            filtered = filtered - weight_zero_point.whole
        return te.sum(activation * filtered, axis=k)

    return te.compute((data.shape[0], weight.shape[1]), at, name="dense")


@register("direct_dense", ["data", "weight"], _dense_type, _dense_expression)
def direct_dense(
    data: Array,
    weight: Array,
    *,
    data_zero_point: ZeroPoint,
    weight_zero_point: ZeroPoint,
    dtype: str,
) -> Array:
    """Matrix product; accumulators are int32 or int64."""
    levels = data.astype(np.float64) - data_zero_point.whole
    return (levels @ (weight.astype(np.float64) - weight_zero_point.whole)).astype(dtype)
