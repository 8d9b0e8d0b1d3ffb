"""Converters of layers with float32 data and int8 weights of one scale.

The kernels quantize each sample symmetrically to int8, multiply integers and give float32. Sources:
EvalHybrid in tensorflow/lite/kernels/{conv,fully_connected}.cc, HybridConv in
internal/optimized/optimized_ops.h.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.tflite.activations import activated, padding_of, strides_of
from stages.importing.tflite.builder import TfliteBuilder
from stages.importing.tflite.graph import Operator
from stages.importing.unsupported import UnsupportedError
from stages.qnn import hybrid, integer


def is_hybrid(builder: TfliteBuilder, operator: Operator) -> bool:
    """Whether a layer has float32 data and int8 weights."""
    kinds = builder.dtype(operator.input(0)), builder.dtype(operator.input(1))
    return kinds == ("float32", "int8")


def _scale(builder: TfliteBuilder, operator: Operator) -> Any:
    """The weights' one scale as a parameter; their zero point must be 0."""
    scale, zero_point = builder.affine(operator.input(1))
    if zero_point:
        raise UnsupportedError(f"has int8 weights with the zero point {zero_point}; 0 is accepted")
    return builder.parameter(f"{operator.layer}.scale", np.array([scale], np.float32))


def _largest(builder: TfliteBuilder, data: Any, name: str) -> Any:
    sizes = builder.emit(relax.op.abs(data), f"{name}.sizes")
    axes = list(range(1, len(data.ty.shape)))
    return builder.emit(relax.op.max(sizes, axes, True), f"{name}.largest")


def _finished(
    builder: TfliteBuilder, operator: Operator, total: Any, largest: Any, scale: Any
) -> Any:
    name = operator.layer
    value = builder.emit(hybrid.sample_output(total, largest, scale), f"{name}.real")
    if operator.has(2):
        bias = builder.read(operator.input(2), (int(total.ty.shape[-1]),))
        value = builder.emit(relax.op.add(value, bias), f"{name}.bias")
    return activated(builder, operator, value)


def conv_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """CONV_2D: weights [O, KH, KW, C]."""
    data, layer, scale = builder.read(operator.input(0)), operator.layer, _scale(builder, operator)
    shape, filters = builder.shape(operator.input(0)), builder.shape(operator.input(1))
    if len(shape) != 4 or len(filters) != 4 or shape[3] != filters[3]:
        raise UnsupportedError(f"has data of {list(shape)} and weights of {list(filters)}")
    dilation = [int(operator.option(f"dilation_{axis}_factor", 1)) for axis in "hw"]
    if min(dilation) < 1:
        raise UnsupportedError(f"has the dilation {dilation}")
    strides = strides_of(operator)
    span = (filters[1] - 1) * dilation[0] + 1, (filters[2] - 1) * dilation[1] + 1
    largest = _largest(builder, data, layer)
    quantized = builder.emit(hybrid.quantize_sample(data, largest), f"{layer}.quantized")
    call = integer.conv2d(
        quantized,
        builder.read(operator.input(1)),
        strides=list(strides),
        padding=list(padding_of(operator, (shape[1], shape[2]), span, strides)),
        groups=1,
        data_zero_point_x2=0,
        weight_zero_point_x2=0,
        pad_value=0,
        dilation=dilation,
    )
    return _finished(builder, operator, builder.emit(call, layer), largest, scale)


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
    quantized = builder.emit(hybrid.quantize_sample(rows, largest), f"{layer}.quantized")
    weight = builder.read(operator.input(1))
    call = integer.dense(quantized, weight, data_zero_point_x2=0, weight_zero_point_x2=0)
    result = _finished(builder, operator, builder.emit(call, layer), largest, scale)
    if not operator.option("keep_num_dims", False):
        return result
    return builder.emit(relax.op.reshape(result, (*shape[:-1], units)), f"{layer}.shape")
