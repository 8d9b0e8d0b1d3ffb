"""Converters of ONNX nodes that compute every position on its own, or reduce axes; any type."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import dtype_of
from stages.importing.onnx.onnx_builder import Converter, OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.onnx.tensor_movement import ints, normal
from stages.importing.unsupported import UnsupportedError
from stages.numerics import float_elementwise as functions


def unary(function: Any) -> Converter:
    """A converter of an operator of one tensor."""

    def convert(builder: OnnxBuilder, node: Node) -> Any:
        return builder.emit(function(builder.read(node.inputs[0])), node.layer)

    return convert


def elementwise(function: Any) -> Converter:
    """A converter of a binary operator that broadcasts as NumPy does."""

    def convert(builder: OnnxBuilder, node: Node) -> Any:
        left, right = (builder.read(tensor) for tensor in node.inputs)
        return builder.emit(function(left, right), node.layer)

    return convert


def relu(builder: OnnxBuilder, node: Node) -> Any:
    """Relu."""
    return builder.emit(relax.op.nn.relu(builder.read(node.inputs[0])), node.layer)


def sign(builder: OnnxBuilder, node: Node) -> Any:
    """Sign: -1, 0 or 1."""
    return builder.emit(relax.op.sign(builder.read(node.inputs[0])), node.layer)


def variadic(function: Any) -> Converter:
    """A converter of an operator that joins any number of tensors, two by two."""

    def convert(builder: OnnxBuilder, node: Node) -> Any:
        values = [builder.read(tensor) for tensor in node.inputs]
        return reduce(lambda a, b: builder.emit(function(a, b), node.layer), values)

    return convert


def constant(builder: OnnxBuilder, value: float, like: Any, name: str) -> Any:
    """A scalar parameter of the type of `like`."""
    return builder.tensor(name, np.array(value, dtype_of(like.ty)))


def affine(builder: OnnxBuilder, x: Any, factor: float, offset: float, name: str) -> Any:
    """`x * factor + offset`, each rounded."""
    scaled = relax.op.multiply(x, constant(builder, factor, x, f"{name}.factor"))
    product = builder.emit(scaled, f"{name}.scaled")
    return builder.emit(
        relax.op.add(product, constant(builder, offset, x, f"{name}.offset")), f"{name}.moved"
    )


def clip(builder: OnnxBuilder, node: Node) -> Any:
    """Clip with constant limits, from attributes (before opset 11) or inputs."""
    x = builder.read(node.inputs[0])
    kind = np.dtype(dtype_of(x.ty))
    info: Any = np.iinfo(kind) if kind.kind in "iu" else np.finfo(kind)
    limits = [node.attributes.get("min", info.min), node.attributes.get("max", info.max)]
    for position, tensor in enumerate(node.inputs[1:3]):
        if tensor:
            limits[position] = builder.constant(tensor).item()
    low, high = max(limits[0], info.min), min(limits[1], info.max)
    if np.isnan(low) or np.isnan(high) or low > high:
        raise UnsupportedError(f"clips to {limits[0]} .. {limits[1]}, which holds no value")
    if low == 0 and high == info.max:
        return builder.emit(relax.op.nn.relu(x), node.layer)
    number = int if kind.kind in "iu" else lambda limit: float(np.float32(limit))
    return builder.emit(relax.op.clip(x, number(low), number(high)), node.layer)


def leaky_relu(builder: OnnxBuilder, node: Node) -> Any:
    """LeakyRelu: negative values times a slope."""
    alpha = float(np.float32(node.attributes.get("alpha", 0.01)))
    return builder.emit(functions.leaky_relu(builder.read(node.inputs[0]), alpha=alpha), node.layer)


def elu(builder: OnnxBuilder, node: Node) -> Any:
    """Elu: negative values become `alpha * (e^x - 1)`."""
    x = builder.read(node.inputs[0])
    alpha = float(np.float32(node.attributes.get("alpha", 1.0)))
    curve = builder.emit(functions.elu(x), node.layer)
    return (
        curve
        if alpha == 1
        else builder.emit(functions.leaky_relu(curve, alpha=alpha), f"{node.layer}.scaled")
    )


def softmax(function: Any) -> Converter:
    """A converter of Softmax or LogSoftmax along an axis; before opset 13, over all from it on."""

    def convert(builder: OnnxBuilder, node: Node) -> Any:
        shape, layer = builder.shape(node.inputs[0]), node.layer
        is_old = builder.opset < 13
        axis = normal(int(node.attributes.get("axis", 1 if is_old else -1)), len(shape))
        value, order = builder.read(node.inputs[0]), list(range(len(shape)))
        if is_old:
            rows = (prod(shape[:axis]), prod(shape[axis:]))
            value = builder.reshaped(value, rows, f"{layer}.rows")
        elif axis != len(shape) - 1:
            order[axis], order[-1] = order[-1], order[axis]
            value = builder.emit(relax.op.permute_dims(value, order), f"{layer}.last")
        result = builder.emit(function(value), layer)
        if order != sorted(order):
            return builder.emit(relax.op.permute_dims(result, order), f"{layer}.back")
        return builder.reshaped(result, shape, f"{layer}.shaped")

    return convert


def gelu(builder: OnnxBuilder, node: Node) -> Any:
    """Gelu by the error function."""
    if str(node.attributes.get("approximate", "none")) != "none":
        raise UnsupportedError("approximates by tanh; the error function is accepted")
    return builder.emit(functions.gelu(builder.read(node.inputs[0])), node.layer)


def hard_sigmoid(builder: OnnxBuilder, node: Node) -> Any:
    """HardSigmoid, and HardSwish, which multiplies by it (alpha 1/6, beta 1/2)."""
    is_swish = node.op == "HardSwish"
    alpha = 1 / 6 if is_swish else float(node.attributes.get("alpha", 0.2))
    beta = 0.5 if is_swish else float(node.attributes.get("beta", 0.5))
    x = builder.read(node.inputs[0])
    moved = affine(builder, x, float(np.float32(alpha)), beta, node.layer)
    gate = builder.emit(relax.op.clip(moved, 0.0, 1.0), f"{node.layer}.gate")
    return builder.emit(relax.op.multiply(x, gate), node.layer) if is_swish else gate


def power(builder: OnnxBuilder, node: Node) -> Any:
    """Pow: products for small whole exponents, a square root for 1/2."""
    x = builder.read(node.inputs[0])
    exponent = builder.known(node.inputs[1])
    value = exponent.item() if exponent is not None and exponent.size == 1 else None
    if value == 0.5:
        return builder.emit(relax.op.sqrt(x), node.layer)
    if value in (1, 2, 3, 4):
        return reduce(
            lambda a, _: builder.emit(relax.op.multiply(a, x), node.layer), range(int(value) - 1), x
        )
    power_of = builder.read(node.inputs[1])
    if dtype_of(power_of.ty) != "float32":
        power_of = builder.emit(relax.op.astype(power_of, "float32"), f"{node.layer}.exponent")
    return builder.emit(functions.power(x, power_of), node.layer)


def reciprocal(builder: OnnxBuilder, node: Node) -> Any:
    """Reciprocal."""
    x = builder.read(node.inputs[0])
    return builder.emit(
        relax.op.divide(constant(builder, 1, x, f"{node.layer}.one"), x), node.layer
    )


def divide(builder: OnnxBuilder, node: Node) -> Any:
    """Div of floats."""
    left, right = (builder.read(tensor) for tensor in node.inputs)
    if dtype_of(left.ty) != "float32":
        raise UnsupportedError(f"divides {dtype_of(left.ty)}; float32 is accepted")
    return builder.emit(relax.op.divide(left, right), node.layer)


def batch_norm(builder: OnnxBuilder, node: Node) -> Any:
    """BatchNormalization at inference with constant statistics: one factor and one offset.

    ONNX Runtime computes `scale * (1 / sqrt(var + epsilon))` and `bias - mean * that` beforehand,
    every step rounded to float32.
    """
    if node.attributes.get("training_mode") or any(node.outputs[1:]):
        raise UnsupportedError("is in training mode; export the model for inference")
    shape = builder.shape(node.inputs[0])
    gamma, beta, mean, variance = (builder.constant(tensor) for tensor in node.inputs[1:5])
    if len(shape) < 2 or any(each.shape != (shape[1],) for each in (gamma, beta, mean, variance)):
        raise UnsupportedError(f"has statistics that do not fit data of shape {list(shape)}")
    epsilon = np.float32(node.attributes.get("epsilon", 1e-5))
    if not (variance + epsilon > 0).all():
        raise UnsupportedError("has a variance that is not positive")
    factor = (gamma * (np.float32(1) / np.sqrt(variance + epsilon))).astype(np.float32)
    offset = (beta - mean * factor).astype(np.float32)
    view = (-1, *[1] * (len(shape) - 2))
    names = (f"{node.layer}.factor", f"{node.layer}.offset")
    scaled = relax.op.multiply(
        builder.read(node.inputs[0]), builder.tensor(names[0], factor.reshape(view))
    )
    product = builder.emit(scaled, node.layer)
    moved = relax.op.add(product, builder.tensor(names[1], offset.reshape(view)))
    return builder.emit(moved, f"{node.layer}.moved")


def lrn(builder: OnnxBuilder, node: Node) -> Any:
    """LRN with an exponent of 0.5, 0.75 or 1, which square roots compute."""
    x = builder.read(node.inputs[0])
    channels = builder.shape(node.inputs[0])[1]
    size = int(node.attributes.get("size", 0))
    beta = float(node.attributes.get("beta", 0.75))
    if not 1 <= size <= 64 or beta not in (0.5, 0.75, 1.0):
        raise UnsupportedError(f"has size {size} and exponent {beta}; 0.5, 0.75 and 1 are accepted")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squared = builder.emit(relax.op.multiply(x, x), f"{node.layer}.squared")
    width = [0, 0, before, after, *[0] * (2 * (len(x.ty.shape) - 2))]
    padded = builder.emit(relax.op.nn.pad(squared, width), f"{node.layer}.padded")
    parts = [
        builder.emit(
            relax.op.strided_slice(padded, [1], [start], [start + channels]), f"{node.layer}.part"
        )
        for start in range(size)
    ]
    total = reduce(lambda a, b: builder.emit(relax.op.add(a, b), f"{node.layer}.sum"), parts)
    alpha = float(np.float32(node.attributes.get("alpha", 1e-4)) / np.float32(size))
    base = affine(builder, total, alpha, float(node.attributes.get("bias", 1.0)), node.layer)
    if beta != 1.0:
        base = _root(builder, base, beta, node.layer)
    return builder.emit(relax.op.divide(x, base), node.layer)


def _root(builder: OnnxBuilder, base: Any, exponent: float, name: str) -> Any:
    root = builder.emit(relax.op.sqrt(base), f"{name}.root")
    if exponent == 0.5:
        return root
    fourth = builder.emit(relax.op.sqrt(root), f"{name}.fourth_root")
    return builder.emit(relax.op.multiply(root, fourth), f"{name}.power")


def reducing(function: Any) -> Converter:
    """A converter of a reduction over constant axes, all of them where none is named."""

    def convert(builder: OnnxBuilder, node: Node) -> Any:
        rank = len(builder.shape(node.inputs[0]))
        axes = ints(builder, node, 1, "axes")
        if not axes and node.attributes.get("noop_with_empty_axes"):
            return builder.read(node.inputs[0])
        chosen = sorted({normal(axis, rank) for axis in axes or range(rank)})
        keep = bool(node.attributes.get("keepdims", 1))
        x = builder.read(node.inputs[0])
        return builder.emit(function(x, axis=chosen, keepdims=keep), node.layer)

    return convert


def global_pool(function: Any) -> Converter:
    """A converter of a reduction over every axis but batch and channels, which stay as 1."""

    def convert(builder: OnnxBuilder, node: Node) -> Any:
        rank = len(builder.shape(node.inputs[0]))
        if rank < 3:
            raise UnsupportedError(f"reads a tensor of rank {rank}; [N, C, ...] is accepted")
        call = function(builder.read(node.inputs[0]), axis=list(range(2, rank)), keepdims=True)
        return builder.emit(call, node.layer)

    return convert
