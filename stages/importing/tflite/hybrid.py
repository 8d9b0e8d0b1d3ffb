"""Converters of hybrid layers: float32 data, int8 weights of one scale ("dynamic range").

Sources: EvalHybrid in tensorflow/lite/kernels/conv.cc and in
tensorflow/lite/kernels/fully_connected.cc. Weights with a scale a channel, for which the kernels
quantize asymmetrically, are not accepted.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.tflite import float_layers
from stages.importing.tflite.activations import padding_of, strides_of
from stages.importing.tflite.builder import TfliteBuilder
from stages.importing.tflite.graph import Operator
from stages.importing.unsupported import UnsupportedError
from stages.qnn import dynamic, integer


def _is_hybrid(builder: TfliteBuilder, operator: Operator) -> bool:
    """Whether a layer of floats has weights of int8."""
    return builder.dtype(operator.input(1)) == "int8"


def _weight_scale(builder: TfliteBuilder, operator: Operator) -> np.float32:
    weight = operator.input(1)
    found = builder.quantization(weight)
    if not found.is_per_tensor or found.zero_point.any():
        raise UnsupportedError(
            f"quantizes float32 data as it runs, with {found.scale.size} scales of the weights; "
            "one scale without a zero point is accepted"
        )
    if operator.option("asymmetric_quantize_inputs", False):
        raise UnsupportedError("quantizes float32 data asymmetrically as it runs")
    return np.float32(found.scale[0])


def _quantized(builder: TfliteBuilder, operator: Operator, data: Any) -> tuple[Any, Any]:
    """Data as int8, and the largest size in each sample."""
    layer, rank = operator.layer, len(data.ty.shape)
    sizes = builder.emit(relax.op.abs(data), f"{layer}.sizes")
    size = builder.emit(relax.op.max(sizes, list(range(1, rank)), True), f"{layer}.size")
    return builder.emit(dynamic.dynamic_symmetric(data, size), f"{layer}.stored"), size


def _finished(builder: TfliteBuilder, operator: Operator, total: Any, size: Any) -> Any:
    scale = np.array([_weight_scale(builder, operator)])
    parameter = builder.parameter(f"{operator.layer}.scale", scale)
    call = dynamic.dynamic_sum(total, size, parameter)
    return float_layers.biased(builder, operator, builder.emit(call, f"{operator.layer}.real"))


def conv_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """CONV_2D of floats, with weights of float32 or int8."""
    if not _is_hybrid(builder, operator):
        return float_layers.conv_2d(builder, operator)
    _weight_scale(builder, operator)
    shape, filters = builder.shape(operator.input(0)), builder.shape(operator.input(1))
    dilation = [int(operator.option(f"dilation_{a}_factor", 1)) for a in "hw"]
    if len(shape) != 4 or len(filters) != 4 or shape[3] != filters[3] or dilation != [1, 1]:
        raise UnsupportedError(
            f"has data of {list(shape)}, int8 weights of {list(filters)} and dilation {dilation}"
        )
    strides, window = strides_of(operator), (filters[1], filters[2])
    stored, size = _quantized(builder, operator, builder.read(operator.input(0)))
    call = integer.conv2d(
        stored,
        builder.read(operator.input(1)),
        strides=list(strides),
        padding=list(padding_of(operator, (shape[1], shape[2]), window, strides)),
        groups=1,
        data_zero_point_x2=0,
        weight_zero_point_x2=0,
        pad_value=0,
    )
    return _finished(builder, operator, builder.emit(call, operator.layer), size)


def fully_connected(builder: TfliteBuilder, operator: Operator) -> Any:
    """FULLY_CONNECTED of floats, with weights of float32 or int8."""
    if not _is_hybrid(builder, operator):
        return float_layers.fully_connected(builder, operator)
    _weight_scale(builder, operator)
    layer, shape = operator.layer, builder.shape(operator.input(0))
    units, depth = builder.shape(operator.input(1))
    if operator.option("weights_format", 0) or prod(shape) % depth:
        raise UnsupportedError(f"has weights of {depth} features for data of {list(shape)}")
    call = relax.op.reshape(builder.read(operator.input(0)), (prod(shape) // depth, depth))
    stored, size = _quantized(builder, operator, builder.emit(call, f"{layer}.rows"))
    weights = builder.read(operator.input(1))
    call = integer.dense(stored, weights, data_zero_point_x2=0, weight_zero_point_x2=0)
    result = _finished(builder, operator, builder.emit(call, layer), size)
    if not operator.option("keep_num_dims", False):
        return result
    return builder.emit(relax.op.reshape(result, (*shape[:-1], units)), f"{layer}.shape")


FLOAT = {"CONV_2D": conv_2d, "FULLY_CONNECTED": fully_connected}
