"""The converter of ConvTranspose, in one or two dimensions: a plain convolution of its phases."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import shape_of
from stages.importing.onnx.onnx_builder import Dequantized, OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.sliding_windows import MAX_EXTENT
from stages.importing.transposed_convolution import Axis, TransposedConvolution
from stages.importing.unsupported import UnsupportedError
from stages.numerics import linear_quantizers, qlinear

Array = np.ndarray[Any, Any]


def conv_transpose(builder: OnnxBuilder, node: Node) -> Any:
    """ConvTranspose of [N, C, H, W] or [N, C, W] with constant weights [C, M / groups, ...].

    Weights that constants are dequantized to stay integers: what computes with them goes on to be
    a convolution of integers where the data is quantized, too.
    """
    layer, (x, w) = node.layer, node.inputs[:2]
    shape, phases = _phases(builder, node)
    flat = (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape

    def emit(call: Any, what: str) -> Any:
        return builder.emit(call, f"{layer}.{what}")

    image = builder.reshaped(builder.read(x), flat, f"{layer}.image")
    data, padding = phases.inside(image, 2, emit)
    call = relax.op.nn.conv2d(
        data, _phase_weights(builder, w, phases, layer), strides=[1, 1], padding=padding,
        groups=phases.groups,
    )  # fmt: skip
    value = builder.emit(call, layer)
    bias = node.inputs[2] if node.has(2) else None
    known = builder.known(bias) if bias else None
    if known is not None:
        every = phases.repeated(known.astype(np.float32)).reshape(1, -1, 1, 1)
        value = builder.emit(
            relax.op.add(value, builder.tensor(f"{bias}.phases", every)), f"{layer}.bias"
        )
    channels_last = qlinear.nhwc(builder, value, f"{layer}.phases")
    value = qlinear.nchw(builder, phases.pixels(channels_last, emit), f"{layer}.pixels")
    if bias and known is None:
        view = builder.reshaped(builder.read(bias), (1, -1, 1, 1), f"{layer}.bias_view")
        value = builder.emit(relax.op.add(value, view), f"{layer}.bias")
    if len(shape) == 4:
        return value
    n, m, _, width = shape_of(value.ty)
    return builder.reshaped(value, (n, m, width), f"{layer}.line")


def _phases(builder: OnnxBuilder, node: Node) -> tuple[tuple[int, ...], TransposedConvolution]:
    """The data's shape, and the geometry over it."""
    shape, weights = builder.shape(node.inputs[0]), builder.shape(node.inputs[1])
    groups, rank = int(node.attributes.get("group", 1)), len(shape) - 2
    if rank not in (1, 2) or len(weights) != len(shape):
        raise UnsupportedError(
            f"reads a tensor of rank {len(shape)} with weights of shape {list(weights)}; "
            "one and two dimensions are accepted"
        )
    if groups < 1 or weights[0] != shape[1] or shape[1] % groups or min(weights) < 1:
        raise UnsupportedError(
            f"has weights of shape {list(weights)} and {groups} groups for {shape[1]} channels"
        )
    kernel = weights[2:]
    strides, dilations = (_each(node, name, rank, 1) for name in ("strides", "dilations"))
    more = _each(node, "output_padding", rank, 0, least=0)
    if max(*kernel, *strides, *dilations, *more) > MAX_EXTENT:
        raise UnsupportedError(f"has a kernel, stride, dilation or pad above {MAX_EXTENT:,}")
    natural = [
        strides[i] * (shape[2 + i] - 1) + more[i] + dilations[i] * (kernel[i] - 1) + 1
        for i in range(rank)
    ]
    begins, outputs = _ends(node, shape[2:], strides, natural)
    if min(outputs) < 1 or min(begins) < 0:
        raise UnsupportedError(f"has pads that leave the extents {outputs} of {natural}")
    axes = [
        Axis(shape[2 + i], outputs[i], kernel[i], strides[i], dilations[i], begins[i])
        for i in range(rank)
    ]
    rows = axes[0] if rank == 2 else Axis(1, 1, 1, 1, 1, 0)
    phases = TransposedConvolution(rows, axes[-1], groups)
    phases.require_room(prod(weights[:2]))
    return shape, phases


def _each(node: Node, name: str, rank: int, default: int, least: int = 1) -> list[int]:
    """An attribute of one number a dimension."""
    values = [int(value) for value in node.attributes.get(name) or [default] * rank]
    if len(values) != rank or min(values) < least:
        raise UnsupportedError(
            f"has {name} {values}; {rank} values of at least {least} are accepted"
        )
    return values


def _ends(
    node: Node, extents: Sequence[int], strides: Sequence[int], natural: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What is cut off at the beginning of each dimension, and the extents of the result.

    The natural extents are those without pads. Where the result's are stated instead, the odd one
    of what is too much is cut off at the beginning, with SAME_UPPER at the end.
    """
    rank, auto_pad = len(extents), str(node.attributes.get("auto_pad") or "NOTSET")
    outputs = [int(each) for each in node.attributes.get("output_shape") or ()][-rank:]
    if not outputs and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        outputs = [extent * stride for extent, stride in zip(extents, strides, strict=True)]
    if outputs:
        total = [max(0, all_ - kept) for all_, kept in zip(natural, outputs, strict=True)]
        is_upper = auto_pad == "SAME_UPPER"
        return [each // 2 if is_upper else each - each // 2 for each in total], outputs
    if auto_pad not in ("NOTSET", "VALID"):
        raise UnsupportedError(f"has auto_pad {auto_pad}, which ONNX does not define")
    stated = None if auto_pad == "VALID" else node.attributes.get("pads")
    pads = [int(pad) for pad in stated or [0] * (2 * rank)]
    if len(pads) != 2 * rank or min(pads) < 0:
        raise UnsupportedError(f"has pads {pads}; {2 * rank} values of at least 0 are accepted")
    return pads[:rank], [natural[i] - pads[i] - pads[rank + i] for i in range(rank)]


def _phase_weights(
    builder: OnnxBuilder, tensor: str, phases: TransposedConvolution, layer: str
) -> Any:
    """OIHW weights of the plain convolution; dequantized ones with one scale an output channel."""
    found = builder.dequantized.get(tensor)
    scales = None if found is None else _per_channel(found, found.scale, phases)
    if found is None or scales is None:
        weights = _flat(builder.constant(tensor))
        return builder.tensor(f"{layer}.filters", phases.weight(weights))
    zero_points = _per_channel(found, found.zero_point, phases)
    assert zero_points is not None  # it is of the scale's shape
    wide = found.stored.astype(np.int32) - found.zero_point.astype(np.int32)
    # Where a phase has no tap, the weight is the zero point.
    numbers = phases.weight(_flat(wide)) + zero_points.astype(np.int32)
    stored = found.stored.dtype
    call = linear_quantizers.dequantize_linear(
        builder.tensor(f"{tensor}.phases", numbers.astype(stored)),
        builder.tensor(f"{tensor}.phases_scale", scales),
        builder.tensor(f"{tensor}.phases_zero_point", zero_points.astype(stored)),
    )
    return builder.emit(call, f"{layer}.filters")


def _flat(weights: Array) -> Array:
    """Weights of an image."""
    return weights[:, :, None] if weights.ndim == 3 else weights


def _per_channel(found: Dequantized, values: Array, phases: TransposedConvolution) -> Array | None:
    """Scales or zero points along the plain convolution's channels; None for other directions."""
    if values.size == 1:
        return values.reshape(())
    channels, units = found.stored.shape[:2]
    along, is_depthwise = values.shape[:2], channels == phases.groups
    is_in_blocks = found.stored.shape != found.shape
    if is_in_blocks or values.size != prod(along) or (along[0] > 1 and not is_depthwise):
        return None
    every = np.broadcast_to(values.reshape(along), (phases.groups, units))
    return phases.repeated(every).reshape(-1, 1, 1, 1)
