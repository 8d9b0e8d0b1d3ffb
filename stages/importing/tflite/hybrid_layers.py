"""Converters of layers with float32 data and int8 weights.

The kernels quantize each sample to int8, multiply integers and give float32: symmetrically where
the weights have one scale, else around a zero point. Sources: EvalHybrid and EvalHybridPerChannel
in tensorflow/lite/kernels/{conv,depthwise_conv,fully_connected}.cc, HybridConv in
internal/optimized/optimized_ops.h, HybridConvPerChannel in internal/reference/conv.h.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import integer
from stages.dialect.padding import Padding
from stages.importing.relax_builder import value_shape
from stages.importing.tflite.activations import activated, padding_of, strides_of
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import tflite_hybrid


def is_hybrid(builder: TfliteBuilder, operator: Operator) -> bool:
    """Whether a layer has float32 data and int8 weights."""
    kinds = builder.dtype(operator.input(0)), builder.dtype(operator.input(1))
    return kinds == ("float32", "int8")


def _scale(builder: TfliteBuilder, operator: Operator) -> Any:
    """The weights' one scale as a parameter; their zero point must be 0."""
    stored = builder.quantization(operator.input(1))
    if stored.zero_point:
        raise UnsupportedError(
            f"has int8 weights with the zero point {stored.zero_point}; 0 is accepted"
        )
    return builder.tensor(f"{operator.layer}.scale", np.array([stored.scale], np.float32))


def _largest(builder: TfliteBuilder, data: Any, name: str) -> Any:
    sizes = builder.emit(relax.op.abs(data), f"{name}.sizes")
    axes = list(range(1, len(data.ty.shape)))
    return builder.emit(relax.op.max(sizes, axes, True), f"{name}.largest")


def _finished(builder: TfliteBuilder, operator: Operator, value: Any) -> Any:
    """Real values with the bias added, after the fused activation."""
    if operator.has(2):
        bias = builder.read(operator.input(2), (int(value.ty.shape[-1]),))
        value = builder.emit(relax.op.add(value, bias), f"{operator.layer}.bias")
    return activated(builder, operator, value)


def _total(builder: TfliteBuilder, operator: Operator, data: Any, weight: Any, groups: int) -> Any:
    """The exact sums of a convolution with OHWI weights."""
    _, height, width, _ = value_shape(data)
    _, kh, kw, _ = value_shape(weight)
    dilation = [int(operator.option(f"dilation_{axis}_factor", 1)) for axis in "hw"]
    if min(dilation) < 1:
        raise UnsupportedError(f"has the dilation {dilation}")
    strides, span = strides_of(operator), ((kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1)
    call = integer.conv2d(
        data,
        weight,
        strides=list(strides),
        padding=Padding(padding_of(operator, (height, width), span, strides)),
        groups=groups,
        data_zero_point=0,
        weight_zero_point=0,
        dilation=dilation,
    )
    return builder.emit(call, operator.layer)


def _centered(builder: TfliteBuilder, operator: Operator, weight: Any, groups: int) -> Any:
    """A convolution whose weights have a scale a channel, along the output's last axis."""
    data, layer = builder.read(operator.input(0)), operator.layer
    found = builder.axis_quantization(operator.input(1))
    units = value_shape(weight)[0]
    if found.zero_point.any() or found.scale.size not in (1, units):
        raise UnsupportedError(f"has {found.scale.size} scales and zero points of int8 weights")
    scale = builder.tensor(f"{layer}.scale", found.scale)
    ends = [
        builder.emit(reduce(data, [1, 2, 3], True), f"{layer}.{name}")
        for name, reduce in (("low", relax.op.min), ("high", relax.op.max))
    ]
    centered = builder.emit(tflite_hybrid.center_sample(data, *ends), f"{layer}.quantized")
    total = _total(builder, operator, centered, weight, groups)
    joined = operator.kind == "DEPTHWISE_CONV_2D"
    call = tflite_hybrid.centered_output(total, *ends, scale, joined=joined)
    value = builder.emit(call, f"{layer}.real")
    return _finished(builder, operator, value)


def conv_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """CONV_2D: weights [O, KH, KW, C / groups]; several scales are per channel."""
    shape, weight_shape = builder.shape(operator.input(0)), builder.shape(operator.input(1))
    if len(shape) != 4 or len(weight_shape) != 4 or shape[3] % weight_shape[3]:
        raise UnsupportedError(f"has data of {list(shape)} and weights of {list(weight_shape)}")
    weight, groups = builder.read(operator.input(1)), shape[3] // weight_shape[3]
    found = builder.axis_quantization(operator.input(1))
    if not found.is_per_tensor:
        if found.axis != 0:
            raise UnsupportedError(f"has weights with scales along axis {found.axis}")
        return _centered(builder, operator, weight, groups)
    if groups != 1:
        raise UnsupportedError(f"has {groups} groups of float data and int8 weights of one scale")
    data, layer, scale = builder.read(operator.input(0)), operator.layer, _scale(builder, operator)
    largest = _largest(builder, data, layer)
    quantized = builder.emit(tflite_hybrid.quantize_sample(data, largest), f"{layer}.quantized")
    total = _total(builder, operator, quantized, weight, 1)
    value = builder.emit(tflite_hybrid.sample_output(total, largest, scale), f"{layer}.real")
    return _finished(builder, operator, value)


def depthwise_conv_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """DEPTHWISE_CONV_2D: weights [1, KH, KW, C * multiplier], scales along the last axis."""
    shape, weight_shape = builder.shape(operator.input(0)), builder.shape(operator.input(1))
    fits = len(shape) == 4 and len(weight_shape) == 4 and weight_shape[0] == 1
    if not fits or weight_shape[3] % shape[3]:
        raise UnsupportedError(f"has data of {list(shape)} and weights of {list(weight_shape)}")
    found = builder.axis_quantization(operator.input(1))
    if found.is_per_tensor or found.axis != 3:
        raise UnsupportedError("has float data and int8 weights without a scale a channel")
    order = (3, 1, 2, 0)
    transposed = builder.constant(operator.input(1)).transpose(order)
    weight = builder.tensor(builder.stated(operator.input(1)).name, transposed)
    return _centered(builder, operator, weight, shape[3])


def fully_connected(builder: TfliteBuilder, operator: Operator) -> Any:
    """FULLY_CONNECTED: weights [O, K]; each row of the data seen as [N, K] is a sample."""
    layer, scale = operator.layer, _scale(builder, operator)
    if operator.option("asymmetric_quantize_inputs", False) or operator.option("weights_format", 0):
        raise UnsupportedError("quantizes float data asymmetrically, or has shuffled weights")
    shape, (units, depth) = builder.shape(operator.input(0)), builder.shape(operator.input(1))
    if prod(shape) % depth:
        raise UnsupportedError(f"has weights of {depth} features for data of {list(shape)}")
    call = relax.op.reshape(builder.read(operator.input(0)), (prod(shape) // depth, depth))
    rows = builder.emit(call, f"{layer}.rows")
    largest = _largest(builder, rows, layer)
    quantized = builder.emit(tflite_hybrid.quantize_sample(rows, largest), f"{layer}.quantized")
    weight = builder.read(operator.input(1))
    call = integer.dense(quantized, weight, data_zero_point=0, weight_zero_point=0)
    total = builder.emit(call, layer)
    value = builder.emit(tflite_hybrid.sample_output(total, largest, scale), f"{layer}.real")
    result = _finished(builder, operator, value)
    if not operator.option("keep_num_dims", False):
        return result
    return builder.emit(relax.op.reshape(result, (*shape[:-1], units)), f"{layer}.shape")
