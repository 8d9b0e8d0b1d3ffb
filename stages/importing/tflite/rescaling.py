"""From accumulators and other scales to an output's scale: factors as the kernels derive them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.dialect.numbers_numpy import NUMPY
from stages.importing.relax_builder import value_dtype
from stages.importing.tflite.activations import stored_range
from stages.importing.tflite.byte_luts import numerators_of_byte, tabled
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import tflite

MAX_SHIFT_OF_INT64 = 7
"""Factors of 2^7 and more cannot be applied to 64-bit accumulators."""


def fixed_point(real: float) -> tuple[int, int]:
    """A factor's multiplier and shift; UnsupportedError for one out of range."""
    try:
        return tflite.quantize_multiplier(float(real))
    except ValueError as error:
        raise UnsupportedError(f"rescales by {error}") from error


def layer_scales(builder: TfliteBuilder, operator: Operator, data: int, weight: int) -> list[float]:
    """The real factors from a layer's accumulators to its output: one, or one a channel.

    The kernels of uint8 convolutions multiply the scales of data and weights in float32, all others
    in float64. Sources: GetQuantizedConvolutionMultipler and PopulateConvolutionQuantizationParams
    in tensorflow/lite/kernels/kernel_util.cc.
    """
    source, out = builder.quantization(data), builder.quantization(operator.outputs[0])
    weights = builder.axis_quantization(weight)
    if not weights.is_per_tensor and (weights.axis != _channel_axis(operator)):
        raise UnsupportedError(f"has weights with scales along axis {weights.axis}")
    if builder.dtype(data) == "uint8" and not weights.is_per_tensor:
        raise UnsupportedError("has uint8 weights with several scales; one is accepted")
    if builder.dtype(data) == "uint8" and operator.kind != "FULLY_CONNECTED":
        product = np.float32(source.scale * np.float32(weights.scale[0]))
        return [float(product) / float(out.scale)]
    return [float(source.scale) * float(scale) / float(out.scale) for scale in weights.scale]


def _channel_axis(operator: Operator) -> int:
    return 3 if operator.kind == "DEPTHWISE_CONV_2D" else 0


def scaled_in_double(
    builder: TfliteBuilder, operator: Operator, total: Any, scales: Sequence[float]
) -> Any:
    """Accumulators rescaled as fully connected layers do."""
    output, layer = operator.outputs[0], operator.layer
    low, high = stored_range(builder, operator)
    call = tflite.rescale(
        total,
        builder.tensor(f"{layer}.scale", np.array(scales, np.float64)),
        zero_point=builder.quantization(output).zero_point,
        low=low,
        high=high,
        dtype=builder.dtype(output),
    )
    return builder.emit(call, f"{layer}.requantize")


def requantized(
    builder: TfliteBuilder,
    operator: Operator,
    total: Any,
    scales: Sequence[float],
) -> Any:
    """Accumulators rescaled in fixed point and clipped to the activation's range."""
    factors = [fixed_point(scale) for scale in scales]
    output, name = operator.outputs[0], f"{operator.layer}.requantize"
    low, high = stored_range(builder, operator)
    dtype, zero_point = builder.dtype(output), builder.quantization(output).zero_point
    if value_dtype(total) != "int64":
        multiplier, shift = _vectors(builder, operator, factors)
        call = tflite.requantize(
            total, multiplier, shift, zero_point=zero_point, low=low, high=high, dtype=dtype
        )
        return builder.emit(call, name)
    if zero_point:
        raise UnsupportedError(f"gives {dtype} with the zero point {zero_point}; 0 is accepted")
    if max(shift for _, shift in factors) > MAX_SHIFT_OF_INT64:
        raise UnsupportedError("rescales 64-bit sums by 128 or more")
    once = [(tflite.reduced_multiplier(m), 15 - shift) for m, shift in factors]
    multiplier, shift = _vectors(builder, operator, once)
    call = tflite.requantize_once(total, multiplier, shift, low=low, high=high, dtype=dtype)
    return builder.emit(call, name)


def _vectors(
    builder: TfliteBuilder, operator: Operator, factors: Sequence[tuple[int, int]]
) -> tuple[Any, Any]:
    """Multipliers and shifts as parameters int32 [C] or [1]."""
    multiplier, shift = np.array(factors, np.int32).T
    layer = operator.layer
    return (
        builder.tensor(f"{layer}.multiplier", multiplier),
        builder.tensor(f"{layer}.shift", shift),
    )


def rescaled(builder: TfliteBuilder, operator: Operator, index: int) -> Any:
    """A quantized tensor brought to the output's scale (Requantize in reference/requantize.h)."""
    output = operator.outputs[0]
    source, out = builder.quantization(index), builder.quantization(output)
    factor = fixed_point(float(source.scale) / float(out.scale))
    low, high = out.limits
    if source.is_byte:
        moved = numerators_of_byte(source)
        scaled = tflite.multiply(NUMPY, moved, *(np.int64(part) for part in factor))
        scaled = scaled + out.zero_point.whole
        return tabled(builder, operator, index, np.clip(scaled, low, high))
    if source.zero_point:
        raise UnsupportedError(f"reads {source.dtype} with the zero point {source.zero_point}")
    multiplier, shift = _vectors(builder, operator, [factor])
    call = tflite.requantize(
        builder.read(index),
        multiplier,
        shift,
        zero_point=out.zero_point,
        low=low,
        high=high,
        dtype=out.dtype,
    )
    return builder.emit(call, operator.layer)
