"""MXNet's ordinary float32 operators, around and between the quantized ones."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.mxnet.mxnet_builder import Converter, MxnetBuilder, Values, real
from stages.importing.mxnet.mxnet_windows import (
    check_kernel,
    float_convolve,
    pool_windows,
    windows_of,
)
from stages.importing.mxnet.quantized import flattened
from stages.importing.mxnet.symbol import Node
from stages.importing.relax_builder import value_shape
from stages.importing.unsupported import UnsupportedError
from stages.numerics import float_elementwise, float_softmax

_LARGEST = float(np.finfo(np.float32).max)


def convolution(builder: MxnetBuilder, node: Node) -> Values:
    """Convolution: OIHW weights and a bias."""
    channels, groups = builder.image(node)[1], node.attributes.integer("num_group", 1)
    weight = builder.constant_at(node, 1)
    if weight.ndim != 4 or groups < 1 or weight.shape[1] * groups != channels:
        raise UnsupportedError(
            f"has weights of shape {list(weight.shape)} and {groups} groups for {channels} channels"
        )
    data = builder.read_at(node, 0)
    windows = windows_of(node.attributes)
    check_kernel(windows, weight.shape)
    result = float_convolve(builder, data, builder.read_at(node, 1), windows, groups, node.name)
    if node.attributes.flag("no_bias"):
        return [result]
    bias = builder.vector(node, 2, len(weight)).reshape(1, -1, 1, 1)
    call = relax.op.add(result, builder.held(bias, f"{node.name}.bias_view"))
    return [builder.emit(call, f"{node.name}.bias")]


def fully_connected(builder: MxnetBuilder, node: Node) -> Values:
    """FullyConnected: `x @ weight.T + bias`."""
    data, weight = flattened(builder, node), builder.constant_at(node, 1)
    if weight.ndim != 2:
        raise UnsupportedError(f"has weights of shape {list(weight.shape)}; [O, K] is accepted")
    transposed = builder.emit(
        relax.op.permute_dims(builder.read_at(node, 1), [1, 0]), f"{node.name}.transposed"
    )
    result = builder.emit(relax.op.matmul(data, transposed), node.name)
    if node.attributes.flag("no_bias"):
        return [result]
    bias = builder.held(builder.vector(node, 2, len(weight)), f"{node.name}.bias_view")
    return [builder.emit(relax.op.add(result, bias), f"{node.name}.bias")]


def batch_norm(builder: MxnetBuilder, node: Node) -> Values:
    """BatchNorm at inference, as one product and one sum a channel."""
    shape = value_shape(builder.value_at(node, 0))
    if len(shape) not in (2, 4) or node.attributes.integer("axis", 1) != 1:
        raise UnsupportedError(f"normalizes an axis other than 1 of {len(shape)} dimensions")
    gamma, beta, mean, variance = (builder.vector(node, i, shape[1]) for i in range(1, 5))
    if node.attributes.flag("fix_gamma", default=True):
        gamma = np.ones_like(gamma)
    epsilon = np.float32(node.attributes.number("eps", 1e-3))
    if not (variance + epsilon > 0).all():
        raise UnsupportedError("has a variance that is not positive")
    scale = gamma / np.sqrt(variance + epsilon)
    view = (1, -1, 1, 1) if len(shape) == 4 else (1, -1)
    factor = builder.held(scale.reshape(view), f"{node.name}.scale")
    offset = builder.held((beta - mean * scale).reshape(view), f"{node.name}.offset")
    scaled = builder.emit(
        relax.op.multiply(builder.read_at(node, 0), factor), f"{node.name}.scaled"
    )
    return [builder.emit(relax.op.add(scaled, offset), node.name)]


def activation(builder: MxnetBuilder, node: Node) -> Values:
    """Activation by its act_type."""
    kind = node.attributes.text("act_type", "")
    if kind not in ACTIVATIONS:
        raise UnsupportedError(f"has act_type {kind}; {', '.join(ACTIVATIONS)} are accepted")
    return [builder.emit(ACTIVATIONS[kind](builder.read_at(node, 0)), node.name)]


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": relax.op.nn.relu,
    "sigmoid": float_elementwise.sigmoid,
    "tanh": float_elementwise.tanh,
}
"""Functions of one float by MXNet's names."""


def single(name: str) -> Converter:
    """The converter of an activation that is an operator of its own."""

    def convert(builder: MxnetBuilder, node: Node) -> Values:
        return [builder.emit(ACTIVATIONS[name](builder.read_at(node, 0)), node.name)]

    return convert


def leaky_relu(builder: MxnetBuilder, node: Node) -> Values:
    """LeakyReLU with a constant slope."""
    kind = node.attributes.text("act_type", "leaky")
    if kind != "leaky":
        raise UnsupportedError(f"has act_type {kind}; leaky is accepted")
    slope = float(np.float32(node.attributes.number("slope", 0.25)))
    return [
        builder.emit(float_elementwise.leaky_relu(builder.read_at(node, 0), alpha=slope), node.name)
    ]


def softmax(builder: MxnetBuilder, node: Node) -> Values:
    """Softmax over the last axis."""
    rank = len(value_shape(builder.value_at(node, 0)))
    if _axis(node.attributes.integer("axis", -1), rank) != rank - 1:
        raise UnsupportedError("has an axis other than the last")
    if node.attributes.has("temperature") or len(node.inputs) > 1:
        raise UnsupportedError("has a temperature or lengths; plain softmax is accepted")
    return [builder.emit(float_softmax.softmax(builder.read_at(node, 0), beta=1.0), node.name)]


def exponential(builder: MxnetBuilder, node: Node) -> Values:
    """Exp."""
    return [builder.emit(float_elementwise.exp(builder.read_at(node, 0)), node.name)]


def pooling(builder: MxnetBuilder, node: Node) -> Values:
    """Pooling: largest values or averages."""
    attributes, shape = node.attributes, builder.image(node)
    kind, data = attributes.text("pool_type", "max"), builder.read_at(node, 0)
    if attributes.flag("global_pool") and kind == "avg":
        return [builder.emit(relax.op.mean(data, axis=[2, 3], keepdims=True), node.name)]
    windows = pool_windows(attributes, (shape[2], shape[3]))
    sizes: dict[str, Any] = {
        "pool_size": list(windows.kernel),
        "strides": list(windows.strides),
        "padding": list(windows.pads),
    }
    if kind == "max":
        return [builder.emit(relax.op.nn.max_pool2d(data, **sizes), node.name)]
    if kind != "avg":
        raise UnsupportedError(f"has pool_type {kind}; max and avg are accepted")
    include = attributes.flag("count_include_pad", default=True)
    if include and windows.pads[:2] != windows.pads[2:]:
        raise UnsupportedError("averages windows that reach over the padding's edge")
    call = relax.op.nn.avg_pool2d(data, **sizes, count_include_pad=include)
    return [builder.emit(call, node.name)]


def binary(function: Any) -> Converter:
    """The converter of an operator of two tensors that broadcast."""

    def convert(builder: MxnetBuilder, node: Node) -> Values:
        return [
            builder.emit(function(builder.read_at(node, 0), builder.read_at(node, 1)), node.name)
        ]

    return convert


def with_scalar(function: Any) -> Converter:
    """The converter of an operator of a tensor and its attribute `scalar`."""

    def convert(builder: MxnetBuilder, node: Node) -> Values:
        scalar = builder.held(real(node.attributes.number("scalar")), f"{node.name}.scalar")
        return [builder.emit(function(builder.read_at(node, 0), scalar), node.name)]

    return convert


def clip(builder: MxnetBuilder, node: Node) -> Values:
    """Clip to constant limits."""
    low, high = (
        max(-_LARGEST, min(_LARGEST, node.attributes.number(name))) for name in ("a_min", "a_max")
    )
    if not low <= high:
        raise UnsupportedError(f"clips to {low} .. {high}, which holds no value")
    return [builder.emit(relax.op.clip(builder.read_at(node, 0), low, high), node.name)]


def identity(builder: MxnetBuilder, node: Node) -> Values:
    """Operators that do nothing at inference."""
    return [builder.value_at(node, 0)]


def _reshape(builder: MxnetBuilder, node: Node, shape: tuple[int, ...]) -> Values:
    old = value_shape(builder.value_at(node, 0))
    if min(shape, default=1) < 1 or prod(shape) != prod(old):
        raise UnsupportedError(f"reshapes {list(old)} to {list(shape)}")
    return [builder.emit(relax.op.reshape(builder.read_at(node, 0), shape), node.name)]


def flatten(builder: MxnetBuilder, node: Node) -> Values:
    """Flatten: [N, K]."""
    shape = value_shape(builder.value_at(node, 0))
    return _reshape(builder, node, (shape[0], prod(shape[1:])))


def reshape(builder: MxnetBuilder, node: Node) -> Values:
    """Reshape with 0 (keep) and -1 (the rest)."""
    old = value_shape(builder.value_at(node, 0))
    wanted = list(node.attributes.integers("shape"))
    if min(wanted, default=0) < -1 or wanted.count(-1) > 1 or node.attributes.flag("reverse"):
        raise UnsupportedError(f"has shape {wanted}; extents, 0 and one -1 are accepted")
    new = [old[i] if e == 0 and i < len(old) else e for i, e in enumerate(wanted)]
    if -1 in new and 0 not in new:
        new[new.index(-1)] = prod(old) // -prod(new)
    return _reshape(builder, node, tuple(new))


def expand_dims(builder: MxnetBuilder, node: Node) -> Values:
    """expand_dims: an axis of extent 1 more."""
    shape = list(value_shape(builder.value_at(node, 0)))
    axis = _axis(node.attributes.integer("axis"), len(shape) + 1)
    return _reshape(builder, node, (*shape[:axis], 1, *shape[axis:]))


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise UnsupportedError(f"has axis {axis} for {rank} dimensions")
    return axis % rank


def transpose(builder: MxnetBuilder, node: Node) -> Values:
    """Transpose; without axes they are reversed."""
    rank = len(value_shape(builder.value_at(node, 0)))
    axes = node.attributes.integers("axes") or tuple(range(rank))[::-1]
    if sorted(axes) != list(range(rank)):
        raise UnsupportedError(f"has axes {list(axes)} for {rank} dimensions")
    return [builder.emit(relax.op.permute_dims(builder.read_at(node, 0), list(axes)), node.name)]


def concat(builder: MxnetBuilder, node: Node) -> Values:
    """Concat along `dim`."""
    parts = [builder.read_at(node, position) for position in range(len(node.inputs))]
    rank = len(value_shape(builder.value_at(node, 0)))
    axis = _axis(node.attributes.integer("dim", 1), rank)
    return [builder.emit(relax.op.concat(parts, axis), node.name)]


def slice_axis(builder: MxnetBuilder, node: Node) -> Values:
    """slice_axis: `begin` to `end` along one axis, both counted from the end where negative."""
    shape = value_shape(builder.value_at(node, 0))
    axis = _axis(node.attributes.integer("axis"), len(shape))
    extent = shape[axis]
    begin, end = node.attributes.integer("begin"), node.attributes.integer("end", extent)
    begin, end = (place + extent if place < 0 else place for place in (begin, end))
    if not 0 <= begin < end <= extent:
        raise UnsupportedError(f"takes {begin} to {end} of an axis of {extent}")
    call = relax.op.strided_slice(builder.read_at(node, 0), [axis], [begin], [end], [1])
    return [builder.emit(call, node.name)]


def split(builder: MxnetBuilder, node: Node) -> Values:
    """SliceChannel: equal parts of one axis."""
    shape = value_shape(builder.value_at(node, 0))
    axis = _axis(node.attributes.integer("axis", 1), len(shape))
    count = node.attributes.integer("num_outputs")
    if count < 1 or shape[axis] % count or node.attributes.flag("squeeze_axis"):
        raise UnsupportedError(f"splits an axis of {shape[axis]} into {count}")
    step = shape[axis] // count
    return [
        builder.emit(
            relax.op.strided_slice(
                builder.read_at(node, 0), [axis], [i * step], [(i + 1) * step], [1]
            ),
            f"{node.name}.{i}",
        )
        for i in range(count)
    ]
