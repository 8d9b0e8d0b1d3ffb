"""Converters of QUANTIZE, DEQUANTIZE, CONCATENATION and PAD: where scales meet.

Sources: tensorflow/lite/kernels/{quantize,dequantize,concatenation,pad}.cc and
reference/{quantize,requantize,dequantize,concatenation}.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import integer
from stages.dialect.numbers_numpy import NUMPY
from stages.importing.tflite.activations import require_no_activation
from stages.importing.tflite.byte_luts import tabled
from stages.importing.tflite.movement import normal_axis
from stages.importing.tflite.rescaling import rescaled
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Array, Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import tflite
from stages.numerics.quantization import Quantization, every_byte


def quantize(builder: TfliteBuilder, operator: Operator) -> Any:
    """QUANTIZE of floats, or from one scale to another."""
    data, output = operator.input(0), operator.outputs[0]
    if builder.dtype(data) != "float32":
        return rescaled(builder, operator, data)
    out = builder.quantization(output)
    low, high = out.limits
    call = tflite.quantize(
        builder.read(data),
        scale=float(out.scale),
        zero_point=out.zero_point,
        low=low,
        high=high,
        dtype=out.dtype,
    )
    return builder.emit(call, operator.layer)


def dequantize(builder: TfliteBuilder, operator: Operator) -> Any:
    """DEQUANTIZE: `scale * (q - zero_point)`; also of float16 constants."""
    data = operator.input(0)
    if builder.dtype(data) == "float16":
        return builder.constant(data).astype(np.float32)
    found = builder.axis_quantization(data)
    rank, zero_points = len(builder.shape(data)), found.zero_point
    if (zero_points != zero_points[0]).any() or not (found.is_per_tensor or found.axis == rank - 1):
        raise UnsupportedError("has scales that do not run along the last axis")
    scale = builder.tensor(f"{operator.layer}.scale", found.scale)
    call = integer.dequantize(builder.read(data), scale, zero_point=int(zero_points[0]))
    return builder.emit(call, operator.layer)


def concatenation(builder: TfliteBuilder, operator: Operator) -> Any:
    """CONCATENATION; uint8 operands of other scales are rescaled in float32."""
    require_no_activation(operator)
    rank = len(builder.shape(operator.input(0)))
    axis = normal_axis(int(operator.option("axis", 0)), rank)
    operands = [operator.input(position) for position in range(len(operator.inputs))]
    values = [_joined(builder, operator, index) for index in operands]
    if len(values) == 1:
        return values[0]
    return builder.emit(relax.op.concat(values, axis), operator.layer)


def _joined(builder: TfliteBuilder, operator: Operator, index: int) -> Any:
    """An operand of CONCATENATION at the output's scale."""
    output, dtype = operator.outputs[0], builder.dtype(operator.outputs[0])
    if dtype not in ("int8", "uint8", "int16"):
        return builder.read(index)
    source, out = builder.quantization(index), builder.quantization(output)
    if (source.scale, source.zero_point) == (out.scale, out.zero_point):
        return builder.read(index)
    if dtype != "uint8":
        raise UnsupportedError(f"joins {dtype} tensors of different scales; uint8 may have them")
    values = _rescaled_in_float(source, out.scale) + out.zero_point.whole
    name = f"{operator.layer}.{builder.stated(index).name}"
    return tabled(builder, operator, index, np.clip(values, *out.limits), name)


def _rescaled_in_float(source: Quantization, target: np.float32) -> Array:
    """ConcatenationWithScaling of all bytes: every operation rounds to float32."""
    scale = np.float32(source.scale * np.float32(np.float32(1) / target))
    bias = np.float32(np.float32(-source.zero_point.whole) * scale)
    stored = every_byte(source.dtype).astype(np.float32)
    moved = (stored * scale).astype(np.float32) + bias
    rounded: Array = tflite.round_away(NUMPY, moved.astype(np.float32)).astype(np.int64)
    return rounded


def pad(builder: TfliteBuilder, operator: Operator) -> Any:
    """PAD with the output's zero point, PADV2 with a constant in the output's own scale."""
    data, output = operator.input(0), operator.outputs[0]
    rank, paddings = len(builder.shape(data)), builder.integers(operator.input(1))
    if len(paddings) != 2 * rank or min(paddings, default=0) < 0:
        raise UnsupportedError(f"has the padding {paddings} of a tensor of rank {rank}")
    quantization = builder.stated(output).quantization
    value = 0 if quantization is None else builder.quantization(output).zero_point.whole
    if operator.has(2):
        (value,) = builder.constant(operator.input(2)).ravel().tolist()
    call = relax.op.nn.pad(builder.read(data), paddings, "constant", value)
    return builder.emit(call, operator.layer)


CONVERTERS = {
    "QUANTIZE": quantize,
    "DEQUANTIZE": dequantize,
    "CONCATENATION": concatenation,
    "PAD": pad,
    "PADV2": pad,
}
