"""Arithmetic and activations of exported programs (ATen), in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.relax_builder import value_dtype, value_shape
from stages.importing.torch_export.exported_program import Node
from stages.importing.torch_export.torch_builder import TorchBuilder
from stages.importing.unsupported import UnsupportedError
from stages.numerics import float_elementwise, float_softmax

Converter = Callable[[TorchBuilder, Node], list[Any]]
_LARGEST = float(np.finfo(np.float32).max)


def binary(function: Any) -> Converter:
    """An operator of two tensors, or of a tensor and a number; `alpha` scales the second."""

    def convert(builder: TorchBuilder, node: Node) -> list[Any]:
        alpha = builder.number(node, "alpha", 1)
        other = builder.read_at(node, "other")
        if alpha != 1:
            factor = builder.held(np.asarray(alpha, np.float32), f"{node.name}.alpha")
            other = builder.emit(relax.op.multiply(other, factor), f"{node.name}.scaled")
        if builder.has(node, "rounding_mode"):
            raise UnsupportedError("rounds its quotient; true division is accepted")
        return [builder.emit(function(builder.read_at(node, "self"), other), node.name)]

    return convert


def unary(function: Any) -> Converter:
    """A function of one tensor."""

    def convert(builder: TorchBuilder, node: Node) -> list[Any]:
        return [builder.emit(function(builder.read_at(node, "self")), node.name)]

    return convert


def clip(low: str, high: str, defaults: tuple[float, float] = (-np.inf, np.inf)) -> Converter:
    """Clip to limits, which are the arguments of these names."""

    def convert(builder: TorchBuilder, node: Node) -> list[Any]:
        limits = [
            builder.number(node, name) if builder.has(node, name) else default
            for name, default in zip((low, high), defaults, strict=True)
        ]
        smallest, largest = (max(-_LARGEST, min(_LARGEST, float(limit))) for limit in limits)
        if not smallest <= largest:
            raise UnsupportedError(f"clips to {smallest} .. {largest}, which holds no value")
        data = builder.read_at(node, "self")
        if smallest == 0 and largest == _LARGEST:
            return [builder.emit(relax.op.nn.relu(data), node.name)]
        return [builder.emit(relax.op.clip(data, smallest, largest), node.name)]

    return convert


def hard_sigmoid(builder: TorchBuilder, node: Node) -> list[Any]:
    """`min(max(x + 3, 0), 6) / 6`."""
    three, six = (builder.held(np.asarray(n, np.float32), f"{node.name}.{n}") for n in (3, 6))
    shifted = builder.emit(
        relax.op.add(builder.read_at(node, "self"), three), f"{node.name}.shifted"
    )
    clipped = builder.emit(relax.op.clip(shifted, 0.0, 6.0), f"{node.name}.clipped")
    return [builder.emit(relax.op.divide(clipped, six), node.name)]


def silu(builder: TorchBuilder, node: Node) -> list[Any]:
    """`x * sigmoid(x)`."""
    data = builder.read_at(node, "self")
    gate = builder.emit(float_elementwise.sigmoid(data), f"{node.name}.gate")
    return [builder.emit(relax.op.multiply(data, gate), node.name)]


def gelu(builder: TorchBuilder, node: Node) -> list[Any]:
    """The error function's gelu."""
    if builder.argument(node, "approximate", "none") != "none":
        raise UnsupportedError("is approximated by tanh; approximate='none' is accepted")
    return [builder.emit(float_elementwise.gelu(builder.read_at(node, "self")), node.name)]


def leaky_relu(builder: TorchBuilder, node: Node) -> list[Any]:
    """Leaky ReLU."""
    slope = float(np.float32(builder.number(node, "negative_slope", 0.01)))
    return [
        builder.emit(
            float_elementwise.leaky_relu(builder.read_at(node, "self"), alpha=slope), node.name
        )
    ]


def softmax(builder: TorchBuilder, node: Node) -> list[Any]:
    """Softmax over any axis."""
    if builder.argument(node, "half_to_float", False) or builder.has(node, "dtype"):
        raise UnsupportedError("changes its type; float32 is accepted")
    data = builder.read_at(node, "self")
    rank = len(value_shape(data))
    axis = builder.axis(builder.whole(node, "dim"), rank)
    if axis == rank - 1:
        return [builder.emit(float_softmax.softmax(data, beta=1.0), node.name)]
    order = [*(i for i in range(rank) if i != axis), axis]
    transposed = builder.emit(relax.op.permute_dims(data, order), f"{node.name}.transposed")
    result = builder.emit(float_softmax.softmax(transposed, beta=1.0), f"{node.name}.last")
    back = [order.index(i) for i in range(rank)]
    return [builder.emit(relax.op.permute_dims(result, back), node.name)]


def mean(builder: TorchBuilder, node: Node) -> list[Any]:
    """Mean over axes, or all of them."""
    rank = len(value_shape(builder.value_at(node, "self")))
    axes = builder.integers(node, "dim") if builder.has(node, "dim") else list(range(rank))
    axes = [builder.axis(axis, rank) for axis in axes] or list(range(rank))
    if builder.has(node, "dtype") and builder.argument(node, "dtype") != "float32":
        raise UnsupportedError("changes its type; float32 is accepted")
    keep = bool(builder.argument(node, "keepdim", False))
    call = relax.op.mean(builder.read_at(node, "self"), axis=axes, keepdims=keep)
    return [builder.emit(call, node.name)]


def to_type(builder: TorchBuilder, node: Node) -> list[Any]:
    """A change of type that keeps float32 as it is."""
    value = builder.value_at(node, "self")
    wanted = builder.argument(node, "dtype", None)
    if wanted not in (None, value_dtype(value)):
        raise UnsupportedError(f"makes {wanted} of {value_dtype(value)}")
    return [value]
