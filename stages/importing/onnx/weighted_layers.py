"""Converters of Conv, Gemm and MatMul over floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from tvm import relax

from stages.importing.onnx.image_geometry import ImageGeometry
from stages.importing.onnx.onnx_builder import Converter, OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.unsupported import UnsupportedError
from stages.nodes import Var

View = Callable[[OnnxBuilder, str, Sequence[int], str], Var]
"""Gives a tensor in another shape: builder, tensor, shape, and the name of a reshape."""


def view_computed(builder: OnnxBuilder, tensor: str, shape: Sequence[int], name: str) -> Var:
    """A tensor reshaped by the graph, constant or not, as quantizers of it are found then."""
    return builder.reshaped(builder.read(tensor), shape, name)


def view_at_import(builder: OnnxBuilder, tensor: str, shape: Sequence[int], name: str) -> Var:
    """A tensor in another shape, which a constant has from the beginning."""
    if prod(builder.shape(tensor)) != prod(shape):
        raise UnsupportedError(f"has '{tensor}' of shape {list(builder.shape(tensor))}")
    if builder.is_constant(tensor):
        return builder.read(tensor, shape)
    return builder.reshaped(builder.read(tensor), shape, name)


def group_count(node: Node, shape: Sequence[int], weight_shape: Sequence[int]) -> int:
    """The groups of a convolution; UnsupportedError unless weights [O, I / groups, ...] fit."""
    groups = int(node.attributes.get("group", 1))
    fits = groups >= 1 and len(shape) == len(weight_shape) and weight_shape[0] % groups == 0
    if not fits or weight_shape[1] * groups != shape[1]:
        raise UnsupportedError(
            f"has weights of shape {list(weight_shape)} and {groups} groups for data of "
            f"shape {list(shape)}"
        )
    return groups


def conv(view: View) -> Converter:
    """The converter of Conv in one or two dimensions; a bias becomes an addition."""

    def convert(builder: OnnxBuilder, node: Node) -> Var:
        x, weight = node.inputs[:2]
        weight_shape = builder.shape(weight)
        groups = group_count(node, builder.shape(x), weight_shape)
        image = ImageGeometry(node, builder.shape(x), weight_shape[2:])
        windows, widened = image.windows, image.image_shape(weight_shape)
        call = relax.op.nn.conv2d(
            image.to_image(builder, builder.read(x), node.layer),
            view(builder, weight, widened, f"{node.layer}.filters"),
            strides=list(windows.strides),
            padding=list(windows.pads),
            dilation=list(windows.dilations),
            groups=groups,
        )
        result = builder.emit(call, node.layer)
        if node.has(2):
            bias_shape = (1, weight_shape[0], 1, 1)
            bias = view(builder, node.inputs[2], bias_shape, f"{node.layer}.bias_view")
            result = builder.emit(relax.op.add(result, bias), f"{node.layer}.bias")
        return image.from_image(builder, result, node.layer)

    return convert


def gemm(builder: OnnxBuilder, node: Node) -> Var:
    """Gemm: `alpha * A @ B + beta * C`."""
    a, b = matrices(builder, node, node.inputs[:2])
    product = builder.emit(relax.op.matmul(a, b), node.layer)
    result = _scaled(builder, node, product, "alpha")
    if not node.has(2):
        return result
    bias = _scaled(builder, node, builder.read(node.inputs[2]), "beta")
    return builder.emit(relax.op.add(result, bias), f"{node.layer}.bias")


def gemm_of_rows(builder: OnnxBuilder, node: Node) -> Var:
    """Gemm whose data is not transposed, as networks with quantizers have it."""
    if node.attributes.get("transA"):
        raise UnsupportedError("transposes its first input; only its second may be transposed")
    return gemm(builder, node)


def matrices(builder: OnnxBuilder, node: Node, tensors: Sequence[str]) -> tuple[Var, Var]:
    """The two factors of Gemm or QGemm, transposed where the node says so."""
    a, b = (builder.read(tensor) for tensor in tensors)
    if node.attributes.get("transA"):
        a = builder.emit(relax.op.permute_dims(a, [1, 0]), f"{node.layer}.a")
    if node.attributes.get("transB"):
        b = builder.emit(relax.op.permute_dims(b, [1, 0]), f"{node.layer}.b")
    return a, b


def _scaled(builder: OnnxBuilder, node: Node, value: Var, attribute: str) -> Var:
    factor = float(node.attributes.get(attribute, 1.0))
    if factor == 1.0:
        return value
    name = f"{node.layer}.{attribute}"
    constant = builder.tensor(name, np.array(factor, np.float32))
    return builder.emit(relax.op.multiply(value, constant), f"{name}_scaled")


def matmul(builder: OnnxBuilder, node: Node) -> Var:
    """MatMul as NumPy has it."""
    left, right = (builder.read(tensor) for tensor in node.inputs)
    return builder.emit(relax.op.matmul(left, right), node.layer)
