"""Converters of quantized layers with weights: exact accumulators, then the kernels' rescaling.

An 8-bit layer is `qnn.conv2d` or `qnn.dense` → bias → `qnn.tflite_requantize`; one with int16
activations has int64 accumulators and `qnn.tflite_requantize_once`. Sources:
tensorflow/lite/kernels/{conv,depthwise_conv,fully_connected,transpose_conv}.cc with
reference/{conv,depthwiseconv_uint8,fully_connected}.h and reference/integer_ops/.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tflite
from tvm import relax

from stages.dialect import integer
from stages.dialect.padding import Padding
from stages.importing.tflite.activations import padding_of, strides_of
from stages.importing.tflite.rescaling import layer_scales, requantized, scaled_in_double
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Operator
from stages.importing.transposed_convolution import Axis, TransposedConvolution
from stages.importing.unsupported import UnsupportedError

_TYPES = {"uint8": "uint8", "int8": "int8", "int16": "int8"}
"""Type of activations → type of weights."""


def _check_types(builder: TfliteBuilder, operator: Operator, data: int, weight: int) -> None:
    found = builder.dtype(data), builder.dtype(weight), builder.dtype(operator.outputs[0])
    if _TYPES.get(found[0]) != found[1] or found[2] != found[0]:
        accepted = ", ".join(f"{a} with {w}" for a, w in _TYPES.items())
        raise UnsupportedError(
            f"has {found[0]} data, {found[1]} weights and gives {found[2]}; accepted: {accepted}"
        )


def _image(builder: TfliteBuilder, index: int, what: str) -> tuple[int, int, int, int]:
    shape = builder.shape(index)
    if len(shape) != 4:
        raise UnsupportedError(f"has {what} of shape {list(shape)}; rank 4 is accepted")
    return shape


def _accumulator(builder: TfliteBuilder, operator: Operator, data: int, bias: int) -> str:
    """The accumulators' type: int64 with int16 activations, unless the bias is int32."""
    if builder.dtype(data) != "int16":
        return "int32"
    if operator.has(bias):
        return builder.dtype(operator.input(bias))
    is_narrow = operator.option("quantized_bias_type", 0) == tflite.TensorType.INT32
    return "int32" if is_narrow else "int64"


def _weights(builder: TfliteBuilder, index: int, layer: str, order: tuple[int, ...]) -> Any:
    """Weights with their axes in another order: at import where they are constant."""
    if builder.is_constant(index):
        name = builder.stated(index).name
        return builder.tensor(name, builder.constants[index].transpose(order))
    return builder.emit(relax.op.permute_dims(builder.read(index), order), f"{layer}.weights")


def _finished(
    builder: TfliteBuilder,
    operator: Operator,
    total: Any,
    data: int,
    weight: int,
    bias: int,
    phases: TransposedConvolution | None = None,
) -> Any:
    """A layer's accumulators, perhaps of `phases`, with the bias added, rescaled to the output."""
    channels, dtype = total.ty.shape[-1], str(total.ty.dtype)
    if operator.has(bias):
        if builder.dtype(operator.input(bias)) != dtype:
            raise UnsupportedError(
                f"has a bias of {builder.dtype(operator.input(bias))}; {dtype} is accepted"
            )
        vector = _bias(builder, operator.input(bias), int(channels), phases)
        total = builder.emit(relax.op.add(total, vector), f"{operator.layer}.bias")
    scales = layer_scales(builder, operator, data, weight)
    if phases is not None and len(scales) > 1:
        scales = phases.repeated(np.array(scales)).tolist()
    if operator.kind == "FULLY_CONNECTED":
        return scaled_in_double(builder, operator, total, scales)
    return requantized(builder, operator, total, scales)


def _bias(
    builder: TfliteBuilder, index: int, channels: int, phases: TransposedConvolution | None
) -> Any:
    """The bias of all channels of the accumulators."""
    if phases is None:
        return builder.read(index, (channels,))
    own = builder.constant(index).reshape(channels // phases.count)
    return builder.tensor(builder.stated(index).name, phases.repeated(own))


def _weight_zero_point(builder: TfliteBuilder, weight: int, *, ignored: bool) -> int:
    """The zero point of a layer's weights; kernels of int8 convolutions do not look at it."""
    found = builder.axis_quantization(weight).zero_point
    if (found != found[0]).any() or (ignored and found[0]):
        name = builder.stated(weight).name
        raise UnsupportedError(f"has int8 weights '{name}' with zero points; 0 is accepted")
    return int(found[0])


def _convolution(
    builder: TfliteBuilder,
    operator: Operator,
    weight: Any,
    groups: int,
) -> Any:
    data, stored = operator.input(0), operator.input(1)
    _, height, width, _ = _image(builder, data, "data")
    _, kh, kw, _ = (int(extent) for extent in weight.ty.shape)
    dilation = tuple(int(operator.option(f"dilation_{a}_factor", 1)) for a in "hw")
    if min(dilation) < 1:
        raise UnsupportedError(f"has the dilation {list(dilation)}")
    strides = strides_of(operator)
    span = (kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1
    ignored = builder.dtype(data) != "uint8"
    call = integer.conv2d(
        builder.read(data),
        weight,
        strides=list(strides),
        padding=Padding(padding_of(operator, (height, width), span, strides)),
        groups=groups,
        data_zero_point=builder.quantization(data).zero_point,
        weight_zero_point=_weight_zero_point(builder, stored, ignored=ignored),
        dilation=list(dilation),
        dtype=_accumulator(builder, operator, data, 2),
    )
    total = builder.emit(call, operator.layer)
    return _finished(builder, operator, total, data, stored, 2)


def conv_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """CONV_2D: weights [O, KH, KW, C / groups]."""
    data, weight = operator.input(0), operator.input(1)
    _check_types(builder, operator, data, weight)
    channels, depth = _image(builder, data, "data")[3], _image(builder, weight, "weights")[3]
    if channels % depth:
        raise UnsupportedError(f"has weights of depth {depth} for {channels} channels")
    return _convolution(builder, operator, builder.read(weight), channels // depth)


def depthwise_conv_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """DEPTHWISE_CONV_2D: weights [1, KH, KW, C * multiplier]."""
    data, weight = operator.input(0), operator.input(1)
    _check_types(builder, operator, data, weight)
    channels, shape = _image(builder, data, "data")[3], _image(builder, weight, "weights")
    if shape[0] != 1 or shape[3] % channels:
        raise UnsupportedError(f"has weights of shape {list(shape)} for {channels} channels")
    weights = _weights(builder, weight, operator.layer, (3, 1, 2, 0))
    return _convolution(builder, operator, weights, channels)


def fully_connected(builder: TfliteBuilder, operator: Operator) -> Any:
    """FULLY_CONNECTED: weights [O, K]; data of any shape is seen as [N, K]."""
    data, weight = operator.input(0), operator.input(1)
    _check_types(builder, operator, data, weight)
    if operator.option("weights_format", 0):
        raise UnsupportedError("has shuffled weights")
    shape, (units, depth) = builder.shape(data), builder.shape(weight)
    if prod(shape) % depth:
        raise UnsupportedError(f"has weights of {depth} features for data of {list(shape)}")
    rows = builder.read(data, (prod(shape) // depth, depth))
    if tuple(rows.ty.shape) != (prod(shape) // depth, depth):
        call = relax.op.reshape(rows, (prod(shape) // depth, depth))
        rows = builder.emit(call, f"{operator.layer}.rows")
    call = integer.dense(
        rows,
        builder.read(weight),
        data_zero_point=builder.quantization(data).zero_point,
        weight_zero_point=_weight_zero_point(builder, weight, ignored=False),
        dtype=_accumulator(builder, operator, data, 2),
    )
    total = builder.emit(call, operator.layer)
    result = _finished(builder, operator, total, data, weight, 2)
    if not operator.option("keep_num_dims", False) or len(shape) == 2:
        return result
    call = relax.op.reshape(result, (*shape[:-1], units))
    return builder.emit(call, f"{operator.layer}.shape")


def transpose_conv(builder: TfliteBuilder, operator: Operator) -> Any:
    """TRANSPOSE_CONV: a plain convolution of all its phases."""
    weight, data = operator.input(1), operator.input(2)
    _check_types(builder, operator, data, weight)
    n, height, width, _ = _image(builder, data, "data")
    units, kh, kw, depth = _image(builder, weight, "weights")
    wanted = builder.integers(operator.input(0))
    if len(wanted) != 4 or wanted[0] != n or wanted[3] != units or min(wanted) < 1:
        raise UnsupportedError(f"gives the shape {wanted} of {n} images and {units} channels")
    strides = strides_of(operator)
    top, left, _, _ = padding_of(operator, (wanted[1], wanted[2]), (kh, kw), strides)
    phases = TransposedConvolution(
        Axis(height, wanted[1], kh, strides[0], 1, top),
        Axis(width, wanted[2], kw, strides[1], 1, left),
    )
    phases.require_room(units * depth)

    def emit(call: Any, what: str) -> Any:
        return builder.emit(call, f"{operator.layer}.{what}")

    image, padding = phases.inside(builder.read(data), 1, emit)
    ignored = builder.dtype(data) != "uint8"
    zero_point = _weight_zero_point(builder, weight, ignored=ignored)
    call = integer.conv2d(
        image,
        _phase_weights(builder, weight, phases, zero_point),
        strides=[1, 1],
        padding=Padding(padding),
        groups=1,
        data_zero_point=builder.quantization(data).zero_point,
        weight_zero_point=zero_point,
        dtype=_accumulator(builder, operator, data, 3),
    )
    total = builder.emit(call, operator.layer)
    result = _finished(builder, operator, total, data, weight, 3, phases)
    return phases.pixels(result, emit)


def _phase_weights(
    builder: TfliteBuilder, index: int, phases: TransposedConvolution, zero_point: int
) -> Any:
    """OHWI weights of all phases, the zero point where a phase has no tap."""
    stored = builder.constant(index)
    wide = (stored.astype(np.int32) - zero_point).transpose(3, 0, 1, 2)
    weight = phases.weight(wide).transpose(0, 2, 3, 1) + zero_point
    return builder.tensor(builder.stated(index).name, weight.astype(stored.dtype))


CONVERTERS = {
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "FULLY_CONNECTED": fully_connected,
    "TRANSPOSE_CONV": transpose_conv,
}
