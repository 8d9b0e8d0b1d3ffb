"""Converters of QONNX's quantizers, and of FINN's thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.importing.onnx.onnx_builder import OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.onnx.oracle_quantizers import channel_axis
from stages.importing.onnx.source_arithmetic import ROUNDING_MODES
from stages.importing.unsupported import UnsupportedError
from stages.numerics import qonnx_operators

Array = np.ndarray[Any, Any]


def quant(builder: OnnxBuilder, node: Node) -> Any:
    """QONNX Quant (newer name: IntQuant)."""
    x, scale_name, zero_name, bits_name = node.inputs
    bits = bit_width(builder, bits_name)
    signed, narrow = bool(node.attributes.get("signed", 1)), bool(node.attributes.get("narrow", 0))
    rounding = str(node.attributes.get("rounding_mode", "ROUND")).upper()
    if rounding not in ROUNDING_MODES:
        raise UnsupportedError(
            f"rounds by '{rounding}'; {', '.join(sorted(ROUNDING_MODES))} are accepted"
        )
    scale, zero_point = _scale(builder, scale_name, x), _zero_point(builder, zero_name)
    _check_broadcast(builder, zero_name, x)
    if bits == 1 and signed:
        if zero_point.any():
            raise UnsupportedError("has one signed bit and a zero point; only zero point 0 has one")
        call = qonnx_operators.bipolar_quant(builder.read(x), scale)
    else:
        call = qonnx_operators.quant(
            builder.read(x),
            scale,
            builder.parameter(zero_name, zero_point),
            bits=bits,
            signed=signed,
            narrow=narrow,
            rounding=rounding,
        )
    return builder.emit(call, node.layer)


def bipolar_quant(builder: OnnxBuilder, node: Node) -> Any:
    """QONNX BipolarQuant."""
    x, scale_name = node.inputs
    call = qonnx_operators.bipolar_quant(builder.read(x), _scale(builder, scale_name, x))
    return builder.emit(call, node.layer)


def multi_threshold(builder: OnnxBuilder, node: Node) -> Any:
    """FINN MultiThreshold with constant thresholds."""
    x, thresholds_name = node.inputs
    shape = builder.shape(x)
    axis = channel_axis(str(node.attributes.get("data_layout", "")), len(shape))
    if axis >= len(shape):
        raise UnsupportedError(f"has a data layout that does not fit the shape {list(shape)}")
    thresholds = builder.constant(thresholds_name)
    if thresholds.ndim != 2 or thresholds.shape[0] not in (1, shape[axis]):
        raise UnsupportedError(
            f"has thresholds of shape {list(thresholds.shape)} for {shape[axis]} channels"
        )
    ascending = np.sort(thresholds, axis=1)  # the result counts them, whatever their order
    is_sorted = np.array_equal(ascending, thresholds)
    call = qonnx_operators.multi_threshold(
        builder.read(x),
        builder.parameter(thresholds_name + ("" if is_sorted else ".ascending"), ascending),
        out_scale=float(node.attributes.get("out_scale", 1.0)),
        out_bias=float(node.attributes.get("out_bias", 0.0)),
        channel_axis=axis,
    )
    return builder.emit(call, node.layer)


def bit_width(builder: OnnxBuilder, tensor: str) -> int:
    """A constant number of bits."""
    value = builder.constant(tensor)
    if value.size != 1 or value.item() != int(value.item()) or not 1 <= value.item() <= 32:
        raise UnsupportedError(f"has the bit width {value.tolist()}; 1 to 32 are accepted")
    return int(value.item())


def _zero_point(builder: OnnxBuilder, tensor: str) -> Any:
    """As float32; beside another of int64 than 0 qonnx computes in float64."""
    value = builder.constant(tensor)
    if value.dtype != np.float32 and value.any():
        raise UnsupportedError(
            f"has the zero point '{tensor}' of type {value.dtype}; float32, or 0, is accepted"
        )
    return value.astype(np.float32)


def scale_of(builder: OnnxBuilder, tensor: str, x: str) -> Array:
    """A constant scale of the values x: positive, and no wider than they are."""
    scale = builder.constant(tensor)
    if not (scale > 0).all():
        raise UnsupportedError(f"has the scale '{tensor}', which is not positive everywhere")
    _check_broadcast(builder, tensor, x)
    return scale


def _scale(builder: OnnxBuilder, tensor: str, x: str) -> Any:
    scale_of(builder, tensor, x)
    return builder.read(tensor)


def _check_broadcast(builder: OnnxBuilder, tensor: str, x: str) -> None:
    """The result has the shape of x: a parameter may not widen it."""
    shape, parameter = builder.shape(x), builder.shape(tensor)
    padded = (1,) * (len(shape) - len(parameter)) + parameter
    if len(padded) != len(shape) or any(
        p not in (1, extent) for p, extent in zip(padded, shape, strict=True)
    ):
        raise UnsupportedError(
            f"has '{tensor}' of shape {list(parameter)} for values of shape {list(shape)}"
        )
