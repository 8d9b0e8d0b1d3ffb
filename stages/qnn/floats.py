"""Products of floats that micro-kernels compute: NHWC pictures, constant OHWI weights.

Pictures come with their padding. Meanings and tensor expressions take sums in float64 and round
them once; kernels round after every product, so that the two differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import te

from stages.qnn import infer
from stages.qnn.integer import convolve
from stages.qnn.registry import dtype_of, register, shape_of, tensor_type

Array = np.ndarray[Any, Any]


def _conv_type(types: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    whole = {**attrs, "padding": [0, 0, 0, 0], "groups": 1, "dtype": "float64"}
    return tensor_type(shape_of(infer.conv2d(types, whole)), "float32")


def _conv_expression(data: Any, weight: Any, *, strides: Sequence[int]) -> Any:
    outputs, kh, kw, depth = (int(extent) for extent in weight.shape)
    n, h, w, _ = (int(extent) for extent in data.shape)
    size = [
        infer.output_size(extent, k, s, 0, 0)
        for extent, k, s in zip((h, w), (kh, kw), strides, strict=True)
    ]
    ry, rx, rk = (te.reduce_axis((0, extent)) for extent in (kh, kw, depth))

    def at(b: Any, y: Any, x: Any, o: Any) -> Any:
        value = data[b, y * strides[0] + ry, x * strides[1] + rx, rk].astype("float64")
        return te.sum(value * weight[o, ry, rx, rk].astype("float64"), axis=[ry, rx, rk])

    sums = te.compute((n, *size, outputs), at, name="conv2d")
    return te.compute(sums.shape, lambda *i: sums[i].astype("float32"), name="rounded")


@register("float_conv2d", ["data", "weight"], _conv_type, _conv_expression)
def float_conv2d(data: Array, weight: Array, *, strides: Sequence[int]) -> Array:
    """Convolution of float32 [N, H, W, C], padded already, by float32 [O, KH, KW, C]."""
    return convolve(data, weight, strides, 1, dtype="float32")


def _dense_type(types: Sequence[Any], _attrs: Mapping[str, Any]) -> Any:
    (rows, depth), (outputs, own) = shape_of(types[0]), shape_of(types[1])
    if depth != own or {dtype_of(kind) for kind in types} != {"float32"}:
        raise ValueError(f"data of {depth} channels, weights of {own}; float32 is expected")
    return tensor_type((rows, outputs), "float32")


def _dense_expression(data: Any, weight: Any) -> Any:
    k = te.reduce_axis((0, data.shape[1]))

    def at(row: Any, o: Any) -> Any:
        return te.sum(data[row, k].astype("float64") * weight[o, k].astype("float64"), axis=k)

    sums = te.compute((data.shape[0], weight.shape[0]), at, name="dense")
    return te.compute(sums.shape, lambda *i: sums[i].astype("float32"), name="rounded")


@register("float_dense", ["data", "weight"], _dense_type, _dense_expression)
def float_dense(data: Array, weight: Array) -> Array:
    """Matrix product of float32 [N, K] by float32 [O, K]: [N, O]."""
    return (data.astype(np.float64) @ weight.astype(np.float64).T).astype(np.float32)
