"""Converters of layers that networks with quantizers (QONNX, FINN) have otherwise than others.

Every tensor of such a network is float32, and qonnx's executor says what an operator gives. So
these converters accept less than those of the same operators beside them, or keep another order
of roundings.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from stages.importing.onnx.image_geometry import ImageGeometry
from stages.importing.onnx.onnx_builder import OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.onnx.pooling import max_pool, pool_geometry
from stages.importing.unsupported import UnsupportedError
from stages.nodes import Var
from stages.numerics import qonnx_operators


def qonnx_max_pool(builder: OnnxBuilder, node: Node) -> Var:
    """MaxPool in one or two dimensions, padding excluded."""
    _check_windows(node)
    return max_pool(builder, node)


def qonnx_average_pool(builder: OnnxBuilder, node: Node) -> Var:
    """AveragePool in one or two dimensions."""
    image = _simple_geometry(builder, node)
    windows = image.windows
    call = relax.op.nn.avg_pool2d(
        image.to_image(builder, builder.read(node.inputs[0]), node.layer),
        pool_size=list(windows.kernel),
        strides=list(windows.strides),
        padding=list(windows.pads),
        dilation=list(windows.dilations),
        count_include_pad=bool(node.attributes.get("count_include_pad", 0)),
    )
    return image.from_image(builder, builder.emit(call, node.layer), node.layer)


def global_average_pool(builder: OnnxBuilder, node: Node) -> Var:
    """GlobalAveragePool: the mean over height and width, which stay as extents of 1."""
    rank = len(builder.shape(node.inputs[0]))
    if rank not in (3, 4):
        raise UnsupportedError(
            f"reads a tensor of rank {rank}; [N, C, W] or [N, C, H, W] is accepted"
        )
    return _mean(builder, node, True)


def _mean(builder: OnnxBuilder, node: Node, keepdims: bool) -> Var:
    """The mean over height and width, of a row [N, C, W] over its width."""
    shape = builder.shape(node.inputs[0])
    image = (*shape[:2], *([1] if len(shape) == 3 else []), *shape[2:])
    x = builder.reshaped(builder.read(node.inputs[0]), image, f"{node.layer}.image")
    call = relax.op.mean(x, axis=[2, 3], keepdims=keepdims)
    result = builder.emit(call, node.layer)
    if keepdims and len(shape) == 3:
        return builder.reshaped(result, (*shape[:2], 1), f"{node.layer}.line")
    return result


def reduce_mean(builder: OnnxBuilder, node: Node) -> Var:
    """ReduceMean over height and width of [N, C, H, W], or over the width of [N, C, W]."""
    rank = len(builder.shape(node.inputs[0]))
    axes = node.attributes.get("axes")
    if node.has(1):
        axes = builder.constant(node.inputs[1]).ravel().tolist()
    found = sorted(int(axis) % rank for axis in axes or ())
    if rank not in (3, 4) or found != list(range(2, rank)):
        raise UnsupportedError(
            f"reduces the axes {axes} of a rank-{rank} tensor; H and W of NCHW, or W of NCW"
        )
    return _mean(builder, node, bool(node.attributes.get("keepdims", 1)))


def qonnx_clip(builder: OnnxBuilder, node: Node) -> Var:
    """Clip with constant limits, from attributes (before opset 11) or inputs."""
    limits = [node.attributes.get("min", -np.inf), node.attributes.get("max", np.inf)]
    for position, tensor in enumerate(node.inputs[1:3]):
        if tensor:
            limits[position] = float(builder.constant(tensor).item())
    low, high = (float(np.float32(limit)) for limit in limits)
    if np.isnan(low) or np.isnan(high) or low > high:
        raise UnsupportedError(f"clips to {low} .. {high}, which holds no value")
    x = builder.read(node.inputs[0])
    if low == 0 and high == np.inf:
        return builder.emit(relax.op.nn.relu(x), node.layer)
    largest = float(np.finfo(np.float32).max)
    low, high = max(low, -largest), min(high, largest)
    return builder.emit(relax.op.clip(x, low, high), node.layer)


def qonnx_batch_norm(builder: OnnxBuilder, node: Node) -> Var:
    """BatchNormalization at inference, channels along axis 1."""
    if node.attributes.get("training_mode"):
        raise UnsupportedError("is in training mode; export the model for inference")
    if any(node.outputs[1:]):
        raise UnsupportedError("gives running statistics; export the model for inference")
    channels = (builder.shape(node.inputs[0])[1],)
    for tensor in node.inputs[1:]:
        if builder.shape(tensor) != channels:
            raise UnsupportedError(
                f"has '{tensor}' of shape {list(builder.shape(tensor))} for {channels[0]} channels"
            )
    variance = builder.constant(node.inputs[4])
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    if not (variance + np.float32(epsilon) > 0).all():
        raise UnsupportedError("has a variance that is not positive")
    arguments = [builder.read(tensor) for tensor in node.inputs]
    call = qonnx_operators.batch_norm(*arguments, epsilon=epsilon, channel_axis=1)
    return builder.emit(call, node.layer)


def _simple_geometry(builder: OnnxBuilder, node: Node) -> ImageGeometry:
    _check_windows(node)
    return pool_geometry(builder, node)


def _check_windows(node: Node) -> None:
    """UnsupportedError for windows that only other networks may have."""
    if node.attributes.get("ceil_mode"):
        raise UnsupportedError(
            "rounds its output size up (ceil_mode); export it with explicit pads"
        )
    if any(each != 1 for each in node.attributes.get("dilations") or ()):
        raise UnsupportedError("has dilated windows; only neighbouring values are pooled")
