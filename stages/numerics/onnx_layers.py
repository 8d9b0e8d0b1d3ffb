"""Operators of ONNX Runtime that add up float32 values in an order of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import te, tirx

from stages.dialect.calls import Attrs, dtype_of, shape_of, tensor_type
from stages.dialect.convolve import pad_spatial, windows
from stages.dialect.infer import output_size
from stages.dialect.padding import Sides
from stages.dialect.processor import nearest
from stages.dialect.registry import register
from stages.dialect.zero_point import ZeroPoint
from stages.kinds import Array
from stages.nodes import Index, Scalar, Tensor, TensorType


def _infer_sums(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    shape, kernel = shape_of(types[0]), attrs["kernel"]
    if len(shape) != 4 or dtype_of(types[0]) != "float32":
        raise ValueError(f"data of {dtype_of(types[0])} {list(shape)}; float32 NHWC is expected")
    if str(attrs["accumulator"]) not in ("float32", "float64"):
        raise ValueError(f"accumulators of {attrs['accumulator']}; float32 and float64 exist")
    extents = output_size(attrs["padding"].around(*shape[1:3]), kernel, attrs["strides"])
    if min(extents) < 1:
        raise ValueError(f"a window of {list(kernel)} does not fit into {list(shape[1:3])}")
    return tensor_type((shape[0], *extents, shape[3]), "float32")


def _legalize_sums(
    data: Tensor,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sides,
    accumulator: str,
) -> Tensor:
    top, left, *_ = padding
    n, h, w, c = (int(extent) for extent in data.shape)
    size = padding.around(h, w)

    def inside(b: Scalar, y: Scalar, x: Scalar, k: Scalar) -> Scalar:
        value = data[b, y - top, x - left, k].astype(accumulator)
        if not any(padding):
            return value
        is_inside = tirx.all(y >= top, y < h + top, x >= left, x < w + left)
        return tirx.if_then_else(is_inside, value, tirx.const(0, accumulator))

    padded = te.compute((n, *size, c), inside, name="padded")
    ry, rx = te.reduce_axis((0, kernel[0])), te.reduce_axis((0, kernel[1]))
    sums = te.compute(
        (n, *output_size(size, kernel, strides), c),
        lambda b, y, x, k: te.sum(
            padded[b, y * strides[0] + ry, x * strides[1] + rx, k], axis=[ry, rx]
        ),
        name="window_sum2d",
    )
    if accumulator == "float32":
        return sums
    return te.compute(sums.shape, lambda *i: sums[i].astype("float32"), name="rounded")


@register("window_sum2d", ["data"], _infer_sums, _legalize_sums)
def window_sum2d(
    data: Array,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sides,
    accumulator: str,
) -> Array:
    """Sums over windows of float32 NHWC data, padding counted as 0: float32 NHWC.

    With an `accumulator` of float32, values are added row by row, each sum rounded, as ONNX
    Runtime's pools do (`qlinear_pool.cc`); with float64, the sum is rounded once.
    """
    view = windows(pad_spatial(data, padding, 0.0), kernel, strides)
    rows = view.reshape(*view.shape[:4], -1)
    if accumulator == "float64":
        return np.asarray(rows.sum(axis=-1, dtype=np.float64).astype(np.float32))
    total = np.zeros(rows.shape[:-1], np.float32)
    for i in range(rows.shape[-1]):
        total += rows[..., i]
    return total


def _infer_softmax(types: Sequence[TensorType], _attrs: Attrs) -> TensorType:
    if dtype_of(types[0]) not in ("int8", "uint8"):
        raise ValueError(f"data of {dtype_of(types[0])}; int8 and uint8 are expected")
    if dtype_of(types[1]) != "float32" or shape_of(types[1]) != (256,):
        raise ValueError(f"a table of {dtype_of(types[1])} {list(shape_of(types[1]))}")
    return types[0]


def softmax_place(value: Index, largest: Index) -> Index:
    """Where the exponential of a byte is in the table, of a row with some largest one."""
    return value + 255 - largest


SNAP = 3.0 * 2**10
"""Added to a float64 below 2^10 and taken off again, it leaves 41 bits behind the point."""


def softmax_levels(
    power: Scalar, total: Scalar, dtype: str, *, levels: float, zero_point: ZeroPoint
) -> Scalar:
    """The byte of an exponential in a row with some total, as an expression.

    The quotient is a product by the row's reciprocal. That is off by 2^-44 at most, while a
    quotient that is no tie is 2^-41 or more from one: snapping makes ties of ties and of nothing
    else. (Exponential and total have 24 bits, levels 15 at most: of a smaller scale all is 255.)
    """
    wide = tirx.const(levels, "float64") / total.astype("float64")
    snap = tirx.const(SNAP, "float64")
    share = (power.astype("float64") * wide + snap) - snap
    value = nearest(share) + zero_point.whole
    return tirx.min(value, tirx.const(np.iinfo(dtype).max, "int32")).astype(dtype)


def _legalize_softmax(
    data: Tensor, table: Tensor, *, levels: float, zero_point: ZeroPoint
) -> Tensor:
    *outer, depth = (int(extent) for extent in data.shape)
    r, s = te.reduce_axis((0, depth)), te.reduce_axis((0, depth))
    largest = te.compute(outer, lambda *i: te.max(data[(*i, r)].astype("int32"), axis=r))

    def entry(i: Sequence[Scalar]) -> Scalar:
        return table[softmax_place(data[tuple(i)].astype("int32"), largest[tuple(i[:-1])])]

    exps = te.compute(data.shape, lambda *i: entry(i), name="exps")
    total = te.compute(outer, lambda *i: te.sum(exps[(*i, s)], axis=s), name="total")

    def at(*i: Scalar) -> Scalar:
        dtype = str(data.dtype)
        return softmax_levels(exps[i], total[i[:-1]], dtype, levels=levels, zero_point=zero_point)

    return te.compute(data.shape, at, name="qlinear_softmax")


@register("qlinear_softmax", ["data", "table"], _infer_softmax, _legalize_softmax)
def qlinear_softmax(data: Array, table: Array, *, levels: float, zero_point: ZeroPoint) -> Array:
    """QLinearSoftmax of ONNX Runtime 1.32 along the last axis (`qlinear_softmax.cc`).

    `table` (float32 [256]) holds the exponentials of q - 255, scaled so that their sum fits;
    `levels` is `floor(1 / ys)`. Sums are float32, rounded at every step, from the first value on;
    their product with the levels and the quotient are float64 (float32 in earlier releases).
    """
    wide = data.astype(np.int32)
    exps = table[wide + 255 - wide.max(axis=-1, keepdims=True)]
    total = np.add.accumulate(exps, axis=-1, dtype=np.float32)[..., -1:]
    share = exps.astype(np.float64) * levels / total.astype(np.float64)
    value = np.rint(share).astype(np.int32) + zero_point.whole
    return np.minimum(value, np.iinfo(data.dtype).max).astype(data.dtype)
