"""Converters of pools over floats and integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import dtype_of
from stages.importing.limits import MAX_ELEMENTS
from stages.importing.onnx.image_geometry import ImageGeometry
from stages.importing.onnx.onnx_builder import OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.sliding_windows import Windows
from stages.importing.unsupported import UnsupportedError
from stages.numerics import qlinear
from stages.numerics.onnx_layers import window_sum2d

Array = np.ndarray[Any, Any]


def pool_geometry(builder: OnnxBuilder, node: Node) -> ImageGeometry:
    """The geometry of a pool, its last windows reaching past the padding if it rounds up."""
    if any(node.outputs[1:]):
        raise UnsupportedError("gives the indices of the largest values; only the values")
    image = ImageGeometry(
        node, builder.shape(node.inputs[0]), node.attributes.get("kernel_shape", ())
    )
    windows = image.windows
    for i in (0, 1):
        reach = windows.dilations[i] * (windows.kernel[i] - 1)
        if max(windows.pads[i], windows.pads[i + 2]) > reach:
            raise UnsupportedError("has pads as large as its kernel")
    if node.attributes.get("ceil_mode"):
        image.windows = _rounded_up(windows, image.shape[2:])
    return image


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


def max_pool(builder: OnnxBuilder, node: Node) -> Any:
    """MaxPool of floats or bytes; padding never wins."""
    image = pool_geometry(builder, node)
    x = image.to_image(builder, builder.read(node.inputs[0]), node.layer)
    windows = image.windows
    if windows.dilations != (1, 1):
        result = _dilated(builder, node, x, windows, image.shape)
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
    return image.from_image(builder, result, node.layer)


def _dilated(
    builder: OnnxBuilder, node: Node, x: Any, windows: Windows, shape: Sequence[int]
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


def averaging(builder: OnnxBuilder, node: Node) -> tuple[ImageGeometry, Array]:
    """The geometry of an average pool, and how many values each window averages.

    The count is float32, [] where it is the same everywhere, else NHWC [1, OH, OW, 1].
    """
    image = pool_geometry(builder, node)
    if image.windows.dilations != (1, 1):
        raise UnsupportedError("averages dilated windows; only neighbouring values are averaged")
    kernel = node.attributes.get("kernel_shape", ())
    stated = ImageGeometry(node, builder.shape(node.inputs[0]), kernel).windows
    windows, include = image.windows, bool(node.attributes.get("count_include_pad"))
    lengths = []
    for i in (0, 1):
        extent = image.shape[2 + i]
        starts = np.arange(windows.output_extents(image.shape[2:])[i]) * windows.strides[i]
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
        return image, np.asarray(result[0, 0])
    return image, np.asarray(result[None, :, :, None])


def average_pool(builder: OnnxBuilder, node: Node) -> Any:
    """AveragePool of floats; sums are exact up to one rounding."""
    image, count = averaging(builder, node)
    windows, layer = image.windows, node.layer
    x = image.to_image(builder, builder.read(node.inputs[0]), layer)
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
    return image.from_image(builder, qlinear.nchw(builder, average, layer), layer)
