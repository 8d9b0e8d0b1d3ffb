"""Converters of normalizations whose mean and variance are those of the data itself; float32."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.mean_variance import Normalized, normalized
from stages.importing.onnx.onnx_builder import OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.onnx.tensor_movement import normal
from stages.importing.unsupported import UnsupportedError


def layer_norm(builder: OnnxBuilder, node: Node) -> tuple[Any, Any, Any]:
    """LayerNormalization over an axis and all after it; also gives mean and 1 / deviation."""
    rank = len(builder.shape(node.inputs[0]))
    axis = normal(int(node.attributes.get("axis", -1)), rank)
    x = builder.read(node.inputs[0])
    found = _normalized(builder, node, x, range(axis, rank))
    scaled = _moved(builder, node, found.values, None)
    return scaled, found.mean, found.factor


def instance_norm(builder: OnnxBuilder, node: Node) -> Any:
    """InstanceNormalization of [N, C, ...]: every channel of every image on its own."""
    shape = _image(builder, node)
    x = builder.read(node.inputs[0])
    found = _normalized(builder, node, x, range(2, len(shape)))
    per_channel = (shape[1], *[1] * (len(shape) - 2))
    return _moved(builder, node, found.values, per_channel)


def group_norm(builder: OnnxBuilder, node: Node) -> Any:
    """GroupNormalization of [N, C, ...], opset 21: groups of channels that lie together.

    Scale and bias are one a channel. Opset 18 had one a group, and was withdrawn for that.
    """
    shape = _image(builder, node)
    groups = int(node.attributes.get("num_groups", 0))
    if groups < 1 or shape[1] % groups:
        raise UnsupportedError(f"has {groups} groups for {shape[1]} channels")
    rows = (shape[0], groups, prod(shape[1:]) // groups)
    x = builder.reshaped(builder.read(node.inputs[0]), rows, f"{node.layer}.groups")
    value = _normalized(builder, node, x, [2]).values
    value = builder.reshaped(value, shape, f"{node.layer}.shaped")
    return _moved(builder, node, value, (shape[1], *[1] * (len(shape) - 2)))


def _image(builder: OnnxBuilder, node: Node) -> tuple[int, ...]:
    shape = builder.shape(node.inputs[0])
    if len(shape) < 3:
        raise UnsupportedError(f"reads a tensor of rank {len(shape)}; [N, C, ...] is accepted")
    return shape


def _normalized(builder: OnnxBuilder, node: Node, x: Any, axes: Sequence[int]) -> Normalized:
    value = np.array(node.attributes.get("epsilon", 1e-5), np.float32)
    if not value >= 0:
        raise UnsupportedError(f"has the epsilon {value}; 0 and more are accepted")
    epsilon = builder.tensor(f"{node.layer}.epsilon", value)
    return normalized(builder.emit, x, axes, epsilon, node.layer)


def _moved(builder: OnnxBuilder, node: Node, value: Any, shape: tuple[int, ...] | None) -> Any:
    """A value times the scale plus the bias that a node has, both seen in a shape if given."""
    for position, function, what in ((1, relax.op.multiply, "scaled"), (2, relax.op.add, "moved")):
        if node.has(position):
            tensor = builder.read(node.inputs[position])
            if shape is not None:
                if prod(builder.shape(node.inputs[position])) != prod(shape):
                    found = list(builder.shape(node.inputs[position]))
                    raise UnsupportedError(f"has a parameter of shape {found}; {shape[0]} fit")
                tensor = builder.reshaped(tensor, shape, f"{node.layer}.{what}_by")
            value = builder.emit(function(value, tensor), f"{node.layer}.{what}")
    return value
