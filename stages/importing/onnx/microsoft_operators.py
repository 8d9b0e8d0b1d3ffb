"""Converters of ONNX Runtime's own quantized operators, in the domain `com.microsoft`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import BYTES
from stages.importing.onnx.integer_operators import (
    grid_at,
    integer_product,
    quantization_at,
    result_at,
)
from stages.importing.onnx.onnx_builder import OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.onnx.pooling import averaging
from stages.importing.onnx.quantize_linear import dynamic_quantize_linear, positive
from stages.importing.onnx.tensor_movement import normal
from stages.importing.onnx.weighted_layers import matrices
from stages.importing.unsupported import UnsupportedError
from stages.numerics import linear_quantizers, qlinear
from stages.numerics.onnx_luts import logistic
from stages.numerics.quantization import Quantization, every_byte
from stages.numerics.rescale import table

Array = np.ndarray[Any, Any]


def _bytes(builder: OnnxBuilder, tensor: str) -> str:
    dtype = builder.dtype(tensor)
    if dtype not in BYTES:
        raise UnsupportedError(f"reads '{tensor}' of {dtype}; int8 and uint8 are accepted")
    return dtype


def qlinear_binary(function: Any) -> Any:
    """A converter of QLinearAdd or QLinearMul: A, as, az, B, bs, bz, ys, yz."""

    def convert(builder: OnnxBuilder, node: Node) -> Any:
        dtype = _bytes(builder, node.inputs[0])
        sources = (
            quantization_at(builder, node, 1, 2, dtype),
            quantization_at(builder, node, 4, 5, _bytes(builder, node.inputs[3])),
        )
        out = result_at(builder, node, 6, 7, dtype)
        if any(each.dtype != out.dtype for each in sources):
            raise UnsupportedError("mixes int8 and uint8")
        left, right = builder.read(node.inputs[0]), builder.read(node.inputs[3])
        return function(builder, node.layer, left, right, sources, out)

    return convert


def qlinear_add(builder: OnnxBuilder, node: Node) -> Any:
    """QLinearAdd, also of scales and zero points that are inputs or computed."""
    if all(builder.is_constant(name) for i, name in enumerate(node.inputs) if i % 3 and name):
        return qlinear_binary(qlinear.add)(builder, node)
    dtype = _bytes(builder, node.inputs[0])
    places = ((1, 2), (4, 5), (6, 7))
    scales = [_number(builder, node, scale, "float32") for scale, _ in places]
    zero_points = [_number(builder, node, place, dtype) for _, place in places]
    if _bytes(builder, node.inputs[3]) != dtype:
        raise UnsupportedError("mixes int8 and uint8")
    left, right = builder.read(node.inputs[0]), builder.read(node.inputs[3])
    return qlinear.add_of_computed(builder, node.layer, left, right, scales, zero_points, dtype)


def _number(builder: OnnxBuilder, node: Node, position: int, dtype: str) -> Any:
    """A scalar as float32; one that is left out is 0."""
    if not node.has(position):
        return builder.tensor(f"{node.layer}.no_point{position}", np.zeros((), np.float32))
    name = node.inputs[position]
    if builder.dtype(name) != dtype or builder.shape(name) not in ((), (1,)):
        kind = f"{builder.dtype(name)} {list(builder.shape(name))}"
        raise UnsupportedError(f"has '{name}' of {kind}; one {dtype} is accepted")
    if builder.is_constant(name):
        number = builder.constant(name)
        number = positive(number, name) if dtype == "float32" else number
        return builder.tensor(f"{name}.number", number.astype(np.float32).reshape(()))
    value = builder.reshaped(builder.read(name), (), f"{node.layer}.number{position}")
    if dtype == "float32":
        return value
    return builder.emit(relax.op.astype(value, "float32"), f"{node.layer}.point{position}")


def _looked_up(builder: OnnxBuilder, node: Node, function: Callable[[Array], Array]) -> Any:
    """A function of one byte as a table: X, xs, xz, ys, yz."""
    dtype = _bytes(builder, node.inputs[0])
    data = quantization_at(builder, node, 1, 2, dtype)
    out = result_at(builder, node, 3, 4, dtype)
    return _table(builder, node.layer, builder.read(node.inputs[0]), function, data, out)


def _table(
    builder: OnnxBuilder, name: str, data: Any, function: Callable[[Array], Array],
    source: Quantization, out: Quantization,
) -> Any:  # fmt: skip
    entries = out.quantize(function(source.dequantize(every_byte(source.dtype))))
    values = builder.tensor(f"{name}.table", entries.astype(out.dtype))
    return builder.emit(table(data, values), name)


def qlinear_sigmoid(builder: OnnxBuilder, node: Node) -> Any:
    """QLinearSigmoid."""
    return _looked_up(builder, node, logistic)


def qlinear_leaky_relu(builder: OnnxBuilder, node: Node) -> Any:
    """QLinearLeakyRelu."""
    alpha = np.float32(node.attributes.get("alpha", 0.01))
    return _looked_up(builder, node, lambda x: np.where(x >= 0, x, alpha * x))


def qlinear_concat(builder: OnnxBuilder, node: Node) -> Any:
    """QLinearConcat: ys, yz, then X, xs, xz of every operand."""
    operands = node.inputs[2::3]
    out = result_at(builder, node, 0, 1, "uint8")
    parts = []
    for i, tensor in enumerate(operands):
        source = quantization_at(builder, node, 3 * i + 3, 3 * i + 4, _bytes(builder, tensor))
        value = builder.read(tensor)
        if source != out:
            value = _table(builder, f"{node.layer}.{i}", value, lambda x: x, source, out)
        parts.append(value)
    axis = normal(int(node.attributes.get("axis", 1)), len(builder.shape(operands[0])))
    return builder.emit(relax.op.concat(parts, axis), node.layer)


def qlinear_average_pool(builder: OnnxBuilder, node: Node) -> Any:
    """QLinearAveragePool: float32 sums of dequantized values, in the order of the window."""
    dtype = _bytes(builder, node.inputs[0])
    data, out = quantization_at(builder, node, 1, 2, dtype), result_at(builder, node, 3, 4, dtype)
    _check_layout(node)
    image, count = averaging(builder, node)
    x = image.to_image(builder, builder.read(node.inputs[0]), node.layer)
    windows = image.windows
    result = qlinear.average(
        builder,
        node.layer,
        qlinear.nhwc(builder, x, node.layer),
        count,
        data,
        out,
        kernel=windows.kernel,
        strides=windows.strides,
        padding=windows.pads,
    )
    return image.from_image(builder, qlinear.nchw(builder, result, node.layer), node.layer)


def _check_layout(node: Node) -> None:
    if node.attributes.get("channels_last"):
        raise UnsupportedError("has channels last; ONNX's own layout is accepted")


def qlinear_global_average_pool(builder: OnnxBuilder, node: Node) -> Any:
    """QLinearGlobalAveragePool."""
    dtype = _bytes(builder, node.inputs[0])
    _check_layout(node)
    data, out = quantization_at(builder, node, 1, 2, dtype), result_at(builder, node, 3, 4, dtype)
    n, c, *extents = builder.shape(node.inputs[0])
    height = extents[0] if len(extents) == 2 else 1
    flat = (n, c, height, int(np.prod(extents)) // height)
    x = builder.reshaped(builder.read(node.inputs[0]), flat, f"{node.layer}.image")
    result = qlinear.global_average_pool(builder, node.layer, x, data, out)
    return builder.reshaped(result, (n, c, *[1] * len(extents)), f"{node.layer}.line")


def qlinear_softmax(builder: OnnxBuilder, node: Node) -> Any:
    """QLinearSoftmax along one axis, or (`opset` below 13) over all from an axis on."""
    x = node.inputs[0]
    dtype, shape = _bytes(builder, x), builder.shape(x)
    data, out = quantization_at(builder, node, 1, 2, dtype), result_at(builder, node, 3, 4, dtype)
    is_old = int(node.attributes.get("opset", 13)) < 13
    axis = normal(int(node.attributes.get("axis", 1 if is_old else -1)), len(shape))
    value, order = builder.read(x), list(range(len(shape)))
    if is_old:
        outer = int(np.prod(shape[:axis]))
        value = builder.reshaped(value, (outer, int(np.prod(shape[axis:]))), f"{node.layer}.rows")
    elif axis != len(shape) - 1:
        order[axis], order[-1] = order[-1], order[axis]
        value = builder.emit(relax.op.permute_dims(value, order), f"{node.layer}.last")
    result = qlinear.softmax(builder, node.layer, value, data, out)
    if order != sorted(order):
        return builder.emit(relax.op.permute_dims(result, order), f"{node.layer}.back")
    return builder.reshaped(result, shape, f"{node.layer}.shaped")


def qgemm(builder: OnnxBuilder, node: Node) -> Any:
    """QGemm: A, as, az, B, bs, bz, C (int32), ys, yz; without ys the result is float."""
    layer = node.layer
    left = quantization_at(builder, node, 1, 2, _bytes(builder, node.inputs[0]))
    right = grid_at(builder, node, 4, 5, _bytes(builder, node.inputs[3]))
    if right.common_zero_point is None:
        raise UnsupportedError("has weights with several zero points")
    a, b = matrices(builder, node, (node.inputs[0], node.inputs[3]))
    bias = builder.read(node.inputs[6]) if node.has(6) else None
    sums = qlinear.product(
        builder,
        layer,
        a,
        b,
        bias,
        data_zero_point=left.zero_point.whole,
        weight_zero_point=right.common_zero_point,
    )
    alpha = float(node.attributes.get("alpha", 1.0))
    if node.has(7):
        out = result_at(builder, node, 7, 8, left.dtype)
        factor = qlinear.output_factor(left, right, out, alpha)
        return qlinear.rescaled(builder, layer, sums, factor, out)
    unit = np.float32(alpha) * left.scale * right.scale.ravel()
    return _scaled(builder, layer, sums, unit.reshape(() if unit.size == 1 else (-1,)))


def _scaled(builder: OnnxBuilder, layer: str, sums: Any, unit: Array) -> Any:
    zero_point = builder.tensor(f"{layer}.zero", np.zeros((), np.int32))
    scale = builder.tensor(f"{layer}.unit", np.asarray(unit, np.float32))
    call = linear_quantizers.dequantize_linear(sums, scale, zero_point)
    return builder.emit(call, f"{layer}.float")


def matmul_integer_to_float(builder: OnnxBuilder, node: Node) -> Any:
    """MatMulIntegerToFloat: A, B, as, bs, az, bz, bias; scales may be computed."""
    sums = integer_product(builder, node, (0, 1), (4, 5))
    return _float_product(builder, node, sums, builder.read(node.inputs[2]), 3, 6)


def _float_product(
    builder: OnnxBuilder, node: Node, sums: Any, scale: Any, other: int, bias: int
) -> Any:
    """`float32(sums) * (scale * other) + bias`."""
    name = node.inputs[other]
    if builder.is_constant(name):
        positive(builder.constant(name), name)
    combined = relax.op.multiply(scale, builder.read(name))
    unit = builder.emit(combined, f"{node.layer}.unit")
    zero_point = builder.tensor(f"{node.layer}.zero", np.zeros((), np.int32))
    result = builder.emit(
        linear_quantizers.dequantize_linear(sums, unit, zero_point), f"{node.layer}.float"
    )
    if not node.has(bias):
        return result
    moved = relax.op.add(result, builder.read(node.inputs[bias]))
    return builder.emit(moved, f"{node.layer}.bias")


def dynamic_quantize_matmul(builder: OnnxBuilder, node: Node) -> Any:
    """DynamicQuantizeMatMul: A (float32), B, bs, bz, bias; A is quantized to uint8 first."""
    data, scale, zero_point = dynamic_quantize_linear(builder, node)
    values, offsets = (f"{node.layer}.values", f"{node.layer}.values_zero_point")
    builder.variables.update({values: data, offsets: zero_point})
    inner = Node(
        node.op, node.domain, node.layer,
        (values, node.inputs[1], offsets, node.inputs[3] if node.has(3) else ""),
        node.outputs, node.attributes,
    )  # fmt: skip
    sums = integer_product(builder, inner, (0, 1), (2, 3))
    return _float_product(builder, node, sums, scale, 2, 4)
