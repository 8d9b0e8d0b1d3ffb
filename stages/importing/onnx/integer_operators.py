"""Converters of ONNX's operators on integers: QLinearConv, QLinearMatMul and their like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import BYTES, shape_of
from stages.importing.onnx.image_geometry import ImageGeometry
from stages.importing.onnx.onnx_builder import OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.onnx.quantize_linear import positive
from stages.importing.onnx.weighted_layers import group_count
from stages.importing.unsupported import UnsupportedError
from stages.numerics import qlinear
from stages.numerics.quantization import Quantization
from stages.numerics.quantization_grid import Grid

Array = np.ndarray[Any, Any]


def grid_at(builder: OnnxBuilder, node: Node, scale: int, zero_point: int, dtype: str) -> Grid:
    """The grid that two constant inputs say; a missing zero point is 0."""
    name = node.inputs[scale]
    scales = positive(builder.constant(name), name)
    zero_points = np.zeros((), dtype)
    if node.has(zero_point):
        zero_points = builder.constant(node.inputs[zero_point])
        if str(zero_points.dtype) != dtype:
            raise UnsupportedError(f"has a zero point of {zero_points.dtype} for values of {dtype}")
    return Grid.of_constants(scales, zero_points, dtype)


def quantization_at(
    builder: OnnxBuilder, node: Node, scale: int, zero_point: int, dtype: str
) -> Quantization:
    """What two constant inputs say of bytes, with one scale and zero point."""
    found = grid_at(builder, node, scale, zero_point, dtype)
    if dtype not in BYTES or found.quantization is None:
        raise UnsupportedError(
            f"has values of {dtype} with {found.scale.size} scales; bytes with one are accepted"
        )
    return found.quantization


def result_at(
    builder: OnnxBuilder, node: Node, scale: int, zero_point: int, like: str
) -> Quantization:
    """What a result's bytes mean; their type is the zero point's, or `like` where there is none."""
    dtype = like
    if node.has(zero_point):
        dtype = builder.dtype(node.inputs[zero_point])
    return quantization_at(builder, node, scale, zero_point, dtype)


def _weights(builder: OnnxBuilder, tensor: str, grid: Grid, shape: Sequence[int]) -> Any:
    """Weights in a shape, with zero points that vary already subtracted (int16)."""
    if grid.common_zero_point is not None:
        if builder.is_constant(tensor):
            return builder.read(tensor, shape)
        return builder.reshaped(builder.read(tensor), shape, f"{tensor}.view")
    values = builder.constant(tensor).astype(np.int16)
    zero_points = grid.zero_point.reshape(-1, *[1] * (values.ndim - 1)).astype(np.int16)
    return builder.tensor(f"{tensor}.numerators", (values - zero_points).reshape(tuple(shape)))


def _check_bytes(builder: OnnxBuilder, *tensors: str) -> None:
    for tensor in tensors:
        if builder.dtype(tensor) not in BYTES:
            raise UnsupportedError(f"reads '{tensor}' of {builder.dtype(tensor)}; bytes are read")


def _sums(
    builder: OnnxBuilder, node: Node, data: Any, zero_point: int, weight: str, grid: Grid,
    bias: Any = None,
) -> tuple[Any, ImageGeometry]:  # fmt: skip
    """The accumulators of a convolution, NHWC, and its geometry.

    The data have one zero point; those of the weights may vary.
    """
    shape, weight_shape = shape_of(data.ty), builder.shape(weight)
    groups = group_count(node, shape, weight_shape)
    image = ImageGeometry(node, shape, weight_shape[2:])
    windows = image.windows
    sums = qlinear.convolution(
        builder,
        node.layer,
        image.to_image(builder, data, node.layer),
        _weights(builder, weight, grid, image.image_shape(weight_shape)),
        bias,
        data_zero_point=zero_point,
        weight_zero_point=grid.common_zero_point or 0,
        strides=windows.strides,
        padding=windows.pads,
        dilation=windows.dilations,
        groups=groups,
    )
    return sums, image


def qlinear_conv(builder: OnnxBuilder, node: Node) -> Any:
    """QLinearConv in one or two dimensions, weights per tensor or per output channel."""
    x, w = node.inputs[0], node.inputs[3]
    _check_bytes(builder, x, w)
    if node.attributes.get("channels_last"):
        raise UnsupportedError("has channels last; ONNX's own layout is accepted")
    data = quantization_at(builder, node, 1, 2, builder.dtype(x))
    weight = grid_at(builder, node, 4, 5, builder.dtype(w))
    channels = builder.shape(w)[0]
    if weight.scale.size not in (1, channels) or weight.zero_point.size not in (1, channels):
        raise UnsupportedError(f"has {weight.scale.size} scales for {channels} channels")
    out = result_at(builder, node, 6, 7, builder.dtype(x))
    bias = builder.read(node.inputs[8], (channels,)) if node.has(8) else None
    sums, image = _sums(builder, node, builder.read(x), data.zero_point.whole, w, weight, bias)
    factor = qlinear.output_factor(data, weight, out)
    result = qlinear.rescaled(builder, node.layer, sums, factor, out)
    return image.from_image(builder, qlinear.nchw(builder, result, node.layer), node.layer)


def conv_integer(builder: OnnxBuilder, node: Node) -> Any:
    """ConvInteger: int32 sums; the data's zero point may be computed."""
    x, w = node.inputs[:2]
    _check_bytes(builder, x, w)
    data, zero_point = builder.read(x), 0
    if node.has(2):
        name = node.inputs[2]
        if name in builder.constants and builder.constant(name).size == 1:
            zero_point = int(builder.constant(name).item())
        else:
            data = without_zero_point(builder, data, name, (), node.layer)
    zero_points = np.zeros((), np.int64)
    if node.has(3):
        zero_points = builder.constant(node.inputs[3]).astype(np.int64)
    weight = Grid(np.ones((), np.float32), zero_points, builder.dtype(w))
    sums, image = _sums(builder, node, data, zero_point, w, weight)
    return image.from_image(builder, qlinear.nchw(builder, sums, node.layer), node.layer)


def without_zero_point(
    builder: OnnxBuilder, value: Any, zero_point: str, shape: Sequence[int], layer: str
) -> Any:
    """`value - zero_point` as int32, the zero point computed or one per row or column."""
    wide = builder.emit(relax.op.astype(value, "int32"), f"{layer}.wide")
    offset = builder.emit(
        relax.op.astype(builder.read(zero_point), "int32"), f"{layer}.wide_zero_point"
    )
    offset = builder.reshaped(offset, shape, f"{layer}.zero_point_view")
    return builder.emit(relax.op.subtract(wide, offset), f"{layer}.moved")


def matmul_integer(builder: OnnxBuilder, node: Node) -> Any:
    """MatMulInteger: int32 sums; zero points may be computed, per row of A or column of B."""
    return integer_product(builder, node, (0, 1), (2, 3))


def integer_product(
    builder: OnnxBuilder, node: Node, operands: tuple[int, int], zero_points: tuple[int, int]
) -> Any:
    """The int32 product of two inputs less the zero points that two other inputs hold."""
    _check_bytes(builder, *(node.inputs[i] for i in operands))
    values, offsets = [], []
    for side, (operand, position) in enumerate(zip(operands, zero_points, strict=True)):
        value, offset = builder.read(node.inputs[operand]), 0
        if node.has(position):
            name = node.inputs[position]
            if name in builder.constants and builder.constant(name).size == 1:
                offset = int(builder.constant(name).item())
            else:
                shape = builder.shape(name)
                if len(shape) == 1 and shape != (1,):
                    shape = (shape[0], 1) if side == 0 else (shape[0],)
                layer = f"{node.layer}.{'ab'[side]}"
                value = without_zero_point(builder, value, name, shape, layer)
        values.append(value)
        offsets.append(offset)
    kinds = {str(value.ty.dtype) for value in values}
    if not kinds <= set(BYTES):
        wide = [
            qlinear.moved(builder, value, offset, f"{node.layer}.{side}")
            for value, offset, side in zip(values, offsets, "ab", strict=True)
        ]
        return builder.emit(relax.op.matmul(*wide), node.layer)
    return qlinear.product(
        builder,
        node.layer,
        values[0],
        values[1],
        None,
        data_zero_point=offsets[0],
        weight_zero_point=offsets[1],
    )


def qlinear_matmul(builder: OnnxBuilder, node: Node) -> Any:
    """QLinearMatMul, the second operand per tensor or per column."""
    a, b = node.inputs[0], node.inputs[3]
    _check_bytes(builder, a, b)
    left = quantization_at(builder, node, 1, 2, builder.dtype(a))
    right = grid_at(builder, node, 4, 5, builder.dtype(b))
    columns = builder.shape(b)[-1]
    if right.scale.ravel().size not in (1, columns):
        raise UnsupportedError(f"has {right.scale.size} scales for {columns} columns")
    out = result_at(builder, node, 6, 7, builder.dtype(a))
    sums = integer_product(builder, node, (0, 3), (2, 5))
    factor = qlinear.output_factor(left, right, out)
    return qlinear.rescaled(builder, node.layer, sums, factor, out)
