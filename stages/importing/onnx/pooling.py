"""Converters of float and integer pools, and of convolutions of any rank accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import dtype_of
from stages.importing.limits import MAX_ELEMENTS
from stages.importing.onnx.image_geometry import Picture
from stages.importing.onnx.integer_operators import present
from stages.importing.onnx.onnx_builder import RelaxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.sliding_windows import Windows
from stages.importing.unsupported import UnsupportedError
from stages.numerics import qlinear
from stages.numerics.onnx_layers import window_sum2d

Array = np.ndarray[Any, Any]


def picture_of(builder: RelaxBuilder, node: Node) -> Picture:
    """The geometry of a pool, its last windows reaching past the padding if it rounds up."""
    if any(node.outputs[1:]):
        raise UnsupportedError("gives the indices of the largest values; only the values")
    picture = Picture(node, builder.shape(node.inputs[0]), node.attributes.get("kernel_shape", ()))
    windows = picture.windows
    for i in (0, 1):
        reach = windows.dilations[i] * (windows.kernel[i] - 1)
        if max(windows.pads[i], windows.pads[i + 2]) > reach:
            raise UnsupportedError("has pads as large as its kernel")
    if node.attributes.get("ceil_mode"):
        picture.windows = _rounded_up(windows, picture.shape[2:])
    return picture


def _rounded_up(windows: Windows, extents: Sequence[int]) -> Windows:
    """Windows with as much more padding as one more output needs that starts inside."""
    pads = list(windows.pads)
    for i in (0, 1):
        padded = extents[i] + pads[i] + pads[i + 2]
        span = windows.dilations[i] * (windows.kernel[i] - 1) + 1
        outputs = -(-(padded - span) // windows.strides[i]) + 1
        if (outputs - 1) * windows.strides[i] >= extents[i] + pads[i]:
            outputs -= 1  # a window may not start in the padding at the end
        needed = (outputs - 1) * windows.strides[i] + span
        pads[i + 2] += max(0, needed - padded)
    return replace(windows, pads=(pads[0], pads[1], pads[2], pads[3]))


def max_pool(builder: RelaxBuilder, node: Node) -> Any:
    """MaxPool of floats or bytes; padding never wins."""
    picture = picture_of(builder, node)
    x = picture.opened(builder, builder.read(node.inputs[0]), node.layer)
    windows = picture.windows
    if windows.dilations != (1, 1):
        result = _dilated(builder, node, x, windows, picture.shape)
    elif dtype_of(x.ty) == "float32":
        call = relax.op.nn.max_pool2d(
            x,
            pool_size=list(windows.kernel),
            strides=list(windows.strides),
            padding=list(windows.pads),
        )
        result = builder.emit(call, node.layer)
    else:
        result = qlinear.max_pool(
            builder, node.layer, x, windows.kernel, windows.strides, windows.pads
        )
    return picture.closed(builder, result, node.layer)


def _dilated(
    builder: RelaxBuilder, node: Node, x: Any, windows: Windows, shape: Sequence[int]
) -> Any:
    """The largest of shifted slices, one a position of the window."""
    if windows.kernel[0] * windows.kernel[1] > 1024:
        raise UnsupportedError(f"has dilated windows of {list(windows.kernel)}; 1,024 values fit")
    kind = np.dtype(dtype_of(x.ty))
    lowest = np.finfo(kind).min if kind.kind == "f" else np.iinfo(kind).min
    top, left, bottom, right = windows.pads
    width = [0, 0, 0, 0, top, bottom, left, right]
    padded = builder.emit(
        relax.op.nn.pad(x, width, "constant", float(lowest)), f"{node.layer}.padded"
    )
    extents, result = windows.output_extents(shape[2:]), None
    for offset in np.ndindex(*windows.kernel):
        begin = [position * windows.dilations[i] for i, position in enumerate(offset)]
        end = [b + (extents[i] - 1) * windows.strides[i] + 1 for i, b in enumerate(begin)]
        call = relax.op.strided_slice(padded, [2, 3], begin, end, list(windows.strides))
        part = builder.emit(call, f"{node.layer}.shifted")
        result = (
            part if result is None else builder.emit(relax.op.maximum(result, part), node.layer)
        )
    return result


def averaging(builder: RelaxBuilder, node: Node) -> tuple[Picture, Array]:
    """The geometry of an average pool, and how many values each window averages.

    The count is float32, [] where it is the same everywhere, else NHWC [1, OH, OW, 1].
    """
    picture = picture_of(builder, node)
    if picture.windows.dilations != (1, 1):
        raise UnsupportedError("averages dilated windows; only neighbouring values are averaged")
    kernel = node.attributes.get("kernel_shape", ())
    stated = Picture(node, builder.shape(node.inputs[0]), kernel).windows
    windows, include = picture.windows, bool(node.attributes.get("count_include_pad"))
    lengths = []
    for i in (0, 1):
        extent = picture.shape[2 + i]
        starts = np.arange(windows.output_extents(picture.shape[2:])[i]) * windows.strides[i]
        ends = starts + windows.kernel[i]
        low, high = windows.pads[i], windows.pads[i] + extent
        if include:
            low, high = 0, high + stated.pads[i + 2]
        lengths.append(np.minimum(ends, high) - np.maximum(starts, low))
    if len(lengths[0]) * len(lengths[1]) > MAX_ELEMENTS:
        raise UnsupportedError(f"averages {len(lengths[0])} x {len(lengths[1])} windows")
    result = np.multiply.outer(lengths[0], lengths[1]).astype(np.float32)
    if result.min() < 1:
        raise UnsupportedError("has windows that hold nothing but padding")
    if (result == result[0, 0]).all():
        return picture, np.asarray(result[0, 0])
    return picture, np.asarray(result[None, :, :, None])


def average_pool(builder: RelaxBuilder, node: Node) -> Any:
    """AveragePool of floats; sums are exact up to one rounding."""
    picture, count = averaging(builder, node)
    windows, layer = picture.windows, node.layer
    x = picture.opened(builder, builder.read(node.inputs[0]), layer)
    call = window_sum2d(
        qlinear.nhwc(builder, x, layer),
        kernel=list(windows.kernel),
        strides=list(windows.strides),
        padding=list(windows.pads),
        accumulator="float64",
    )
    sums = builder.emit(call, layer)
    divided = relax.op.divide(sums, builder.tensor(f"{layer}.count", count))
    average = builder.emit(divided, f"{layer}.average")
    return picture.closed(builder, qlinear.nchw(builder, average, layer), layer)


def conv(builder: RelaxBuilder, node: Node) -> Any:
    """Conv of floats in one or two dimensions."""
    x, weight = node.inputs[:2]
    shape, weight_shape = builder.shape(x), builder.shape(weight)
    groups = int(node.attributes.get("group", 1))
    if (
        groups < 1
        or len(shape) != len(weight_shape)
        or weight_shape[1] * groups != shape[1]
        or weight_shape[0] % groups
    ):
        raise UnsupportedError(
            f"has weights of shape {list(weight_shape)} and {groups} groups for data of "
            f"shape {list(shape)}"
        )
    picture = Picture(node, shape, weight_shape[2:])
    windows = picture.windows
    filters = builder.read(weight)
    call = relax.op.nn.conv2d(
        picture.opened(builder, builder.read(x), node.layer),
        builder.reshaped(filters, picture.flat(weight_shape), f"{node.layer}.filters"),
        strides=list(windows.strides),
        padding=list(windows.pads),
        dilation=list(windows.dilations),
        groups=groups,
    )
    result = builder.emit(call, node.layer)
    if present(node, 2):
        bias = builder.reshaped(
            builder.read(node.inputs[2]), (1, weight_shape[0], 1, 1), f"{node.layer}.bias_view"
        )
        result = builder.emit(relax.op.add(result, bias), f"{node.layer}.bias")
    return picture.closed(builder, result, node.layer)


def gemm(builder: RelaxBuilder, node: Node) -> Any:
    """Gemm: `alpha * A @ B + beta * C`."""
    layer = node.layer
    a, b = (builder.read(tensor) for tensor in node.inputs[:2])
    if node.attributes.get("transA"):
        a = builder.emit(relax.op.permute_dims(a, [1, 0]), f"{layer}.a")
    if node.attributes.get("transB"):
        b = builder.emit(relax.op.permute_dims(b, [1, 0]), f"{layer}.b")
    result = _times(builder, node, builder.emit(relax.op.matmul(a, b), layer), "alpha")
    if not present(node, 2):
        return result
    bias = _times(builder, node, builder.read(node.inputs[2]), "beta")
    return builder.emit(relax.op.add(result, bias), f"{layer}.bias")


def _times(builder: RelaxBuilder, node: Node, value: Any, attribute: str) -> Any:
    factor = float(node.attributes.get(attribute, 1.0))
    if factor == 1.0:
        return value
    constant = builder.tensor(f"{node.layer}.{attribute}", np.array(factor, np.float32))
    return builder.emit(relax.op.multiply(value, constant), f"{node.layer}.{attribute}_scaled")
