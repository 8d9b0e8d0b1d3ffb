"""Converters of convolutions, matrix products, pools and changes of shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.onnx.image_geometry import Picture
from stages.importing.onnx.onnx_builder import RelaxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.unsupported import UnsupportedError


def conv(builder: RelaxBuilder, node: Node) -> Any:
    """Conv in one or two dimensions; a bias becomes an addition."""
    x_shape, weight_shape = builder.shape(node.inputs[0]), builder.shape(node.inputs[1])
    groups = int(node.attributes.get("group", 1))
    picture = Picture(node, x_shape, weight_shape[2:])
    if groups < 1 or weight_shape[1] * groups != x_shape[1] or weight_shape[0] % groups:
        raise UnsupportedError(
            f"has weights of shape {list(weight_shape)} and {groups} groups for "
            f"{x_shape[1]} input channels"
        )
    windows, filters = picture.windows, picture.flat(weight_shape)
    call = relax.op.nn.conv2d(
        picture.opened(builder, builder.read(node.inputs[0]), node.layer),
        _reshaped(builder, node.inputs[1], filters, f"{node.layer}.filters"),
        strides=list(windows.strides),
        padding=list(windows.pads),
        dilation=list(windows.dilations),
        groups=groups,
    )
    result = builder.emit(call, node.layer)
    if len(node.inputs) > 2 and node.inputs[2]:
        bias_shape = (1, weight_shape[0], 1, 1)
        bias = _reshaped(builder, node.inputs[2], bias_shape, f"{node.layer}.bias_view")
        result = builder.emit(relax.op.add(result, bias), f"{node.layer}.bias")
    return picture.closed(builder, result, node.layer)


def gemm(builder: RelaxBuilder, node: Node) -> Any:
    """Gemm: `alpha * x @ w + beta * bias`."""
    if node.attributes.get("transA"):
        raise UnsupportedError("transposes its first input; only its second may be transposed")
    weight = builder.read(node.inputs[1])
    if node.attributes.get("transB"):
        call = relax.op.permute_dims(weight, [1, 0])
        weight = builder.emit(call, f"{node.layer}.transposed")
    result = builder.emit(relax.op.matmul(builder.read(node.inputs[0]), weight), node.layer)
    result = _scaled(builder, node, result, "alpha")
    if len(node.inputs) < 3 or not node.inputs[2]:
        return result
    bias = _scaled(builder, node, builder.read(node.inputs[2]), "beta")
    return builder.emit(relax.op.add(result, bias), f"{node.layer}.bias")


def _scaled(builder: RelaxBuilder, node: Node, value: Any, attribute: str) -> Any:
    factor = float(node.attributes.get(attribute, 1.0))
    if factor == 1.0:
        return value
    name = f"{node.layer}.{attribute}"
    constant = builder.parameter(name, np.array(factor, np.float32))
    return builder.emit(relax.op.multiply(value, constant), f"{name}_scaled")


def matmul(builder: RelaxBuilder, node: Node) -> Any:
    """MatMul as NumPy has it."""
    left, right = (builder.read(tensor) for tensor in node.inputs)
    return builder.emit(relax.op.matmul(left, right), node.layer)


def max_pool(builder: RelaxBuilder, node: Node) -> Any:
    """MaxPool in one or two dimensions, padding excluded."""
    picture = _pool_picture(builder, node)
    windows = picture.windows
    call = relax.op.nn.max_pool2d(
        picture.opened(builder, builder.read(node.inputs[0]), node.layer),
        pool_size=list(windows.kernel),
        strides=list(windows.strides),
        padding=list(windows.pads),
        dilation=list(windows.dilations),
    )
    return picture.closed(builder, builder.emit(call, node.layer), node.layer)


def average_pool(builder: RelaxBuilder, node: Node) -> Any:
    """AveragePool in one or two dimensions."""
    picture = _pool_picture(builder, node)
    windows = picture.windows
    call = relax.op.nn.avg_pool2d(
        picture.opened(builder, builder.read(node.inputs[0]), node.layer),
        pool_size=list(windows.kernel),
        strides=list(windows.strides),
        padding=list(windows.pads),
        dilation=list(windows.dilations),
        count_include_pad=bool(node.attributes.get("count_include_pad", 0)),
    )
    return picture.closed(builder, builder.emit(call, node.layer), node.layer)


def global_average_pool(builder: RelaxBuilder, node: Node) -> Any:
    """GlobalAveragePool: the mean over height and width, which stay as extents of 1."""
    rank = len(builder.shape(node.inputs[0]))
    if rank not in (3, 4):
        raise UnsupportedError(f"reads a tensor of rank {rank}; [N, C, W] or [N, C, H, W] is")
    return _mean(builder, node, True)


def _mean(builder: RelaxBuilder, node: Node, keepdims: bool) -> Any:
    """The mean over height and width, of a line over its width, seen as a picture."""
    shape = builder.shape(node.inputs[0])
    picture = (*shape[:2], *([1] if len(shape) == 3 else []), *shape[2:])
    x = builder.reshaped(builder.read(node.inputs[0]), picture, f"{node.layer}.picture")
    call = relax.op.mean(x, axis=[2, 3], keepdims=keepdims)
    result = builder.emit(call, node.layer)
    if keepdims and len(shape) == 3:
        return builder.reshaped(result, (*shape[:2], 1), f"{node.layer}.line")
    return result


def reduce_mean(builder: RelaxBuilder, node: Node) -> Any:
    """ReduceMean over height and width of [N, C, H, W], or over the width of [N, C, W]."""
    rank = len(builder.shape(node.inputs[0]))
    axes = node.attributes.get("axes")
    if len(node.inputs) > 1 and node.inputs[1]:
        axes = builder.constant(node.inputs[1]).ravel().tolist()
    found = sorted(int(axis) % rank for axis in axes or ())
    if rank not in (3, 4) or found != list(range(2, rank)):
        raise UnsupportedError(
            f"reduces the axes {axes} of a rank-{rank} tensor; H and W of NCHW, or W of NCW"
        )
    return _mean(builder, node, bool(node.attributes.get("keepdims", 1)))


def identity(builder: RelaxBuilder, node: Node) -> Any:
    """Identity and, at inference, Dropout."""
    if any(node.outputs[1:]):
        raise UnsupportedError("gives a mask; export the model for inference")
    if len(node.inputs) > 2 and node.inputs[2] and builder.constant(node.inputs[2]).any():
        raise UnsupportedError("is in training mode; export the model for inference")
    return builder.read(node.inputs[0])


def transpose(builder: RelaxBuilder, node: Node) -> Any:
    """Transpose; without a permutation the axes are reversed."""
    rank = len(builder.shape(node.inputs[0]))
    order = [int(axis) for axis in node.attributes.get("perm") or range(rank)[::-1]]
    return builder.emit(relax.op.permute_dims(builder.read(node.inputs[0]), order), node.layer)


def flatten(builder: RelaxBuilder, node: Node) -> Any:
    """Flatten to two dimensions."""
    shape = builder.shape(node.inputs[0])
    axis = int(node.attributes.get("axis", 1))
    axis += len(shape) if axis < 0 else 0
    if not 0 <= axis <= len(shape):
        raise UnsupportedError(f"flattens at axis {axis} of a rank-{len(shape)} tensor")
    return _reshape(builder, node, (prod(shape[:axis]), prod(shape[axis:])))


def reshape(builder: RelaxBuilder, node: Node) -> Any:
    """Reshape to a constant shape, with ONNX's 0 (keep) and -1 (the rest)."""
    old = builder.shape(node.inputs[0])
    new = [int(extent) for extent in builder.constant(node.inputs[1]).ravel()]
    if not node.attributes.get("allowzero"):
        new = [old[i] if e == 0 and i < len(old) else e for i, e in enumerate(new)]
    if new.count(-1) == 1:
        known = -prod(new)
        if known > 0:
            new[new.index(-1)] = prod(old) // known
    return _reshape(builder, node, new)


def squeeze(builder: RelaxBuilder, node: Node) -> Any:
    """Squeeze; without axes, every extent of 1 goes."""
    shape = builder.shape(node.inputs[0])
    axes = _axes(builder, node, len(shape))
    gone = {i for i, extent in enumerate(shape) if extent == 1} if axes is None else set(axes)
    return _reshape(builder, node, [e for i, e in enumerate(shape) if i not in gone])


def unsqueeze(builder: RelaxBuilder, node: Node) -> Any:
    """Unsqueeze at the given axes of the result."""
    shape = list(builder.shape(node.inputs[0]))
    axes = _axes(builder, node, None) or []
    rank = len(shape) + len(axes)
    added = {axis % rank for axis in axes}
    return _reshape(builder, node, [1 if i in added else shape.pop(0) for i in range(rank)])


def _axes(builder: RelaxBuilder, node: Node, rank: int | None) -> list[int] | None:
    axes = node.attributes.get("axes")
    if len(node.inputs) > 1 and node.inputs[1]:
        axes = builder.constant(node.inputs[1]).ravel().tolist()
    if axes is None:
        return None
    return [int(axis) if rank is None else int(axis) % rank for axis in axes]


def _reshape(builder: RelaxBuilder, node: Node, shape: Sequence[int]) -> Any:
    old = builder.shape(node.inputs[0])
    if any(extent < 1 for extent in shape) or prod(shape) != prod(old):
        raise UnsupportedError(f"reshapes {list(old)} to {list(shape)}")
    if tuple(shape) == old:
        return builder.read(node.inputs[0])
    call = relax.op.reshape(builder.read(node.inputs[0]), tuple(shape))
    return builder.emit(call, node.layer)


def _reshaped(builder: RelaxBuilder, tensor: str, shape: Sequence[int], name: str) -> Any:
    if builder.shape(tensor) == tuple(shape):
        return builder.read(tensor)
    if prod(builder.shape(tensor)) != prod(shape):
        raise UnsupportedError(f"has '{tensor}' of shape {list(builder.shape(tensor))}")
    if builder.is_constant(tensor):
        return builder.read(tensor, shape)
    return builder.emit(relax.op.reshape(builder.read(tensor), tuple(shape)), name)


def _pool_picture(builder: RelaxBuilder, node: Node) -> Picture:
    if node.attributes.get("ceil_mode"):
        raise UnsupportedError(
            "rounds its output size up (ceil_mode); export it with explicit pads"
        )
    if any(node.outputs[1:]):
        raise UnsupportedError("gives the indices of the largest values; only the values")
    picture = Picture(node, builder.shape(node.inputs[0]), node.attributes.get("kernel_shape", ()))
    windows = picture.windows
    if windows.dilations != (1, 1):
        raise UnsupportedError("has dilated windows; only neighbouring values are pooled")
    for i in (0, 1):
        if max(windows.pads[i], windows.pads[i + 2]) >= windows.kernel[i]:
            raise UnsupportedError("has pads as large as its kernel")
    return picture
