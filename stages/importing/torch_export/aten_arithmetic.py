"""Arithmetic and activations of exported programs (ATen), in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.torch_export.exported_program import Node
from stages.importing.torch_export.torch_builder import Walk
from stages.importing.unsupported import UnsupportedError
from stages.numerics import float_elementwise, float_softmax

Converter = Callable[[Walk, Node], list[Any]]
_LARGEST = float(np.finfo(np.float32).max)


def binary(function: Any) -> Converter:
    """An operator of two tensors, or of a tensor and a number; `alpha` scales the second."""

    def convert(walk: Walk, node: Node) -> list[Any]:
        alpha = walk.number(node, "alpha", 1)
        other = walk.read(node, "other")
        if alpha != 1:
            factor = walk.tensor(np.asarray(alpha, np.float32), f"{node.name}.alpha")
            other = walk.emit(relax.op.multiply(other, factor), f"{node.name}.scaled")
        if walk.has(node, "rounding_mode"):
            raise UnsupportedError("rounds its quotient; true division is accepted")
        return [walk.emit(function(walk.read(node, "self"), other), node.name)]

    return convert


def unary(function: Any) -> Converter:
    """A function of one tensor."""

    def convert(walk: Walk, node: Node) -> list[Any]:
        return [walk.emit(function(walk.read(node, "self")), node.name)]

    return convert


def clip(low: str, high: str, defaults: tuple[float, float] = (-np.inf, np.inf)) -> Converter:
    """Clip to limits, which are the arguments of these names."""

    def convert(walk: Walk, node: Node) -> list[Any]:
        limits = [
            walk.number(node, name) if walk.has(node, name) else default
            for name, default in zip((low, high), defaults, strict=True)
        ]
        smallest, largest = (max(-_LARGEST, min(_LARGEST, float(limit))) for limit in limits)
        if not smallest <= largest:
            raise UnsupportedError(f"clips to {smallest} .. {largest}, which holds no value")
        data = walk.read(node, "self")
        if smallest == 0 and largest == _LARGEST:
            return [walk.emit(relax.op.nn.relu(data), node.name)]
        return [walk.emit(relax.op.clip(data, smallest, largest), node.name)]

    return convert


def hard_sigmoid(walk: Walk, node: Node) -> list[Any]:
    """`min(max(x + 3, 0), 6) / 6`."""
    three, six = (walk.tensor(np.asarray(n, np.float32), f"{node.name}.{n}") for n in (3, 6))
    shifted = walk.emit(relax.op.add(walk.read(node, "self"), three), f"{node.name}.shifted")
    clipped = walk.emit(relax.op.clip(shifted, 0.0, 6.0), f"{node.name}.clipped")
    return [walk.emit(relax.op.divide(clipped, six), node.name)]


def silu(walk: Walk, node: Node) -> list[Any]:
    """`x * sigmoid(x)`."""
    data = walk.read(node, "self")
    gate = walk.emit(float_elementwise.sigmoid(data), f"{node.name}.gate")
    return [walk.emit(relax.op.multiply(data, gate), node.name)]


def gelu(walk: Walk, node: Node) -> list[Any]:
    """The error function's gelu."""
    if walk.argument(node, "approximate", "none") != "none":
        raise UnsupportedError("is approximated by tanh; approximate='none' is accepted")
    return [walk.emit(float_elementwise.gelu(walk.read(node, "self")), node.name)]


def leaky_relu(walk: Walk, node: Node) -> list[Any]:
    """Leaky ReLU."""
    slope = float(np.float32(walk.number(node, "negative_slope", 0.01)))
    return [
        walk.emit(float_elementwise.leaky_relu(walk.read(node, "self"), alpha=slope), node.name)
    ]


def softmax(walk: Walk, node: Node) -> list[Any]:
    """Softmax over any axis."""
    if walk.argument(node, "half_to_float", False) or walk.has(node, "dtype"):
        raise UnsupportedError("changes its type; float32 is accepted")
    data = walk.read(node, "self")
    rank = len(walk.shape(data))
    axis = walk.axis(walk.whole(node, "dim"), rank)
    if axis == rank - 1:
        return [walk.emit(float_softmax.softmax(data, beta=1.0), node.name)]
    order = [*(i for i in range(rank) if i != axis), axis]
    turned = walk.emit(relax.op.permute_dims(data, order), f"{node.name}.turned")
    result = walk.emit(float_softmax.softmax(turned, beta=1.0), f"{node.name}.last")
    back = [order.index(i) for i in range(rank)]
    return [walk.emit(relax.op.permute_dims(result, back), node.name)]


def mean(walk: Walk, node: Node) -> list[Any]:
    """Mean over axes, or all of them."""
    rank = len(walk.shape(walk.value(node, "self")))
    axes = walk.integers(node, "dim") if walk.has(node, "dim") else list(range(rank))
    axes = [walk.axis(axis, rank) for axis in axes] or list(range(rank))
    if walk.has(node, "dtype") and walk.argument(node, "dtype") != "float32":
        raise UnsupportedError("changes its type; float32 is accepted")
    keep = bool(walk.argument(node, "keepdim", False))
    call = relax.op.mean(walk.read(node, "self"), axis=axes, keepdims=keep)
    return [walk.emit(call, node.name)]


def to_type(walk: Walk, node: Node) -> list[Any]:
    """A change of type that keeps float32 as it is."""
    value = walk.value(node, "self")
    wanted = walk.argument(node, "dtype", None)
    if wanted not in (None, walk.dtype(value)):
        raise UnsupportedError(f"makes {wanted} of {walk.dtype(value)}")
    return [value]
