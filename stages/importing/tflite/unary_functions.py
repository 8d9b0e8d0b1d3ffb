"""Converters of functions of one operand: activations and the unary operators of integers.

Those of a byte are tables, computed at import. Sources: tensorflow/lite/kernels/activations.cc,
elementwise.cc and the reference kernels of the same names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import BYTES
from stages.dialect.numbers_numpy import NUMPY
from stages.importing.tflite.activations import steps
from stages.importing.tflite.byte_luts import numerators_of_byte, tabled
from stages.importing.tflite.hard_swish import hard_swish
from stages.importing.tflite.rescaling import fixed_point
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Array, Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import tflite, tflite_activations
from stages.numerics.quantization import every_byte

INT16_BITS = 3
"""Integer bits of the int16 argument of LOGISTIC and TANH: [-8, 8)."""


def _rescaled_bytes(
    builder: TfliteBuilder, operator: Operator, factor: Callable[[Array], Array]
) -> Any:
    """A table of `factor(q - zero_point)` with the output's zero point, clipped."""
    data, out = operator.input(0), builder.quantization(operator.outputs[0])
    values = factor(numerators_of_byte(builder.quantization(data))) + out.zero_point.whole
    return tabled(builder, operator, data, np.clip(values, *out.limits))


def _scaled(values: Array, real: float) -> Array:
    multiplier, shift = fixed_point(real)
    result: Array = tflite.multiply(NUMPY, values, np.int64(multiplier), np.int64(shift))
    return result


def _ratio(builder: TfliteBuilder, operator: Operator) -> float:
    """The factor from the input's to the output's scale: a float32 quotient."""
    source = builder.quantization(operator.input(0)).scale
    return float(source / builder.quantization(operator.outputs[0]).scale)


def _require_bytes(builder: TfliteBuilder, operator: Operator) -> None:
    found = builder.dtype(operator.input(0))
    if found not in BYTES:
        raise UnsupportedError(f"has data of {found}; {' and '.join(BYTES)} are accepted")


def clipped(low: float, high: float | None) -> Callable[[TfliteBuilder, Operator], Any]:
    """RELU and its kin as operators of their own: rescale, then clip to real bounds."""

    def convert(builder: TfliteBuilder, operator: Operator) -> Any:
        _require_bytes(builder, operator)
        scale = builder.quantization(operator.outputs[0]).scale

        def factor(values: Array) -> Array:
            scaled = _scaled(values, _ratio(builder, operator))
            top = None if high is None else steps(high, scale)
            bottom = steps(low, scale)
            return np.clip(scaled, bottom, top) if top is not None else np.maximum(scaled, bottom)

        return _rescaled_bytes(builder, operator, factor)

    return convert


def leaky_relu(builder: TfliteBuilder, operator: Operator) -> Any:
    """LEAKY_RELU: one factor for positive values, another for the others."""
    data = operator.input(0)
    source, out = builder.quantization(data), builder.quantization(operator.outputs[0])
    alpha = np.float32(operator.option("alpha", 0.0))
    ratio, slope = _ratio(builder, operator), float(np.float32(source.scale * alpha) / out.scale)
    if slope < 0:
        raise UnsupportedError(f"has the slope {alpha}; slopes from 0 are accepted")
    factors = fixed_point(ratio), fixed_point(slope)
    if source.is_byte:
        return _rescaled_bytes(
            builder, operator, lambda v: np.where(v >= 0, _scaled(v, ratio), _scaled(v, slope))
        )
    low, high = out.limits
    call = tflite_activations.leaky_relu_of_int16(
        builder.read(data),
        data_zero_point=source.zero_point,
        multiplier=factors[0][0],
        shift=factors[0][1],
        slope_multiplier=factors[1][0],
        slope_shift=factors[1][1],
        zero_point=out.zero_point,
        low=low,
        high=high,
        dtype=out.dtype,
    )
    return builder.emit(call, operator.layer)


def _of_reals(
    function: Callable[[float], float],
) -> Callable[[TfliteBuilder, Operator], Any]:
    """A table of a real function: dequantize, compute in float32, quantize (LUTPopulate)."""

    def convert(builder: TfliteBuilder, operator: Operator) -> Any:
        _require_bytes(builder, operator)
        return _table_of(builder, operator, function)

    return convert


def _table_of(
    builder: TfliteBuilder, operator: Operator, function: Callable[[float], float]
) -> Any:
    data = operator.input(0)
    source, out = builder.quantization(data), builder.quantization(operator.outputs[0])
    reals = source.dequantize(every_byte(source.dtype))
    results = np.array([function(float(real)) for real in reals], np.float32)
    scaled = (results * np.float32(np.float32(1) / out.scale)).astype(np.float32)
    rounded = np.clip(np.nan_to_num(tflite.round_away(NUMPY, scaled)), -1e9, 1e9)
    values = np.clip(rounded + out.zero_point.whole, *out.limits)
    return tabled(builder, operator, data, values)


def gelu(builder: TfliteBuilder, operator: Operator) -> Any:
    """GELU of bytes, by the error function or by tanh."""
    is_approximate = operator.option("approximate", False)
    return _of_reals(_gelu_by_tanh if is_approximate else _gelu_by_erf)(builder, operator)


def _gelu_by_erf(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x * math.sqrt(0.5)))


def _gelu_by_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid_of(x: float) -> float:
    """1 / (1 + e^-x) with every operation rounded to float32."""
    power = np.float32(math.exp(min(-x, 88.7)))
    return float(np.float32(1) / (np.float32(1) + power))


def logistic(builder: TfliteBuilder, operator: Operator) -> Any:
    """LOGISTIC of bytes or int16."""
    if builder.dtype(operator.input(0)) == "int16":
        multiplier, shift = _argument_of_int16(builder, operator)
        call = tflite_activations.logistic_of_int16(
            builder.read(operator.input(0)),
            builder.tensor("sigmoid.table", tflite_activations.sigmoid_table()),
            multiplier=multiplier,
            shift=shift,
        )
        return builder.emit(call, operator.layer)
    return _of_reals(sigmoid_of)(builder, operator)


def tanh(builder: TfliteBuilder, operator: Operator) -> Any:
    """TANH of bytes or int16."""
    if builder.dtype(operator.input(0)) == "int16":
        multiplier, shift = _argument_of_int16(builder, operator)
        call = tflite_activations.tanh_of_int16(
            builder.read(operator.input(0)),
            builder.tensor("sigmoid.table", tflite_activations.sigmoid_table()),
            multiplier=multiplier,
            shift=shift,
        )
        return builder.emit(call, operator.layer)
    return _of_reals(math.tanh)(builder, operator)


def _argument_of_int16(builder: TfliteBuilder, operator: Operator) -> tuple[int, int]:
    """What an int16 argument is multiplied with and shifted by to have a scale of 2^-12 * 4 / 3."""
    ends = [builder.quantization(index) for index in (operator.input(0), operator.outputs[0])]
    if any(end.zero_point for end in ends):
        raise UnsupportedError("has int16 tensors with zero points; 0 is accepted")
    scale = ends[0].scale
    exponent = math.log2(float(scale))
    places = 15 - INT16_BITS + round(exponent)
    limit = 0 if operator.kind == "LOGISTIC" else 1
    if exponent == round(exponent) and 0 <= places <= limit:
        return 3 << places, 0
    multiplier, shift = float(scale) * 4096 * 3, 0
    while multiplier <= 32767 / 2 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    if multiplier > 32767:
        raise UnsupportedError(f"has the scale {scale}, which is too large")
    return int(multiplier), shift


def _unary(
    build: Callable[[Any], Any], bytes_function: Callable[[float], float] | None
) -> Callable[[TfliteBuilder, Operator], Any]:
    """An operator of plain integers, or of bytes by way of their real values."""

    def convert(builder: TfliteBuilder, operator: Operator) -> Any:
        data = operator.input(0)
        is_quantized = builder.stated(data).quantization is not None
        if is_quantized and builder.dtype(data) != "int32":
            if bytes_function is None:
                raise UnsupportedError(f"has quantized data of {builder.dtype(data)}")
            _require_bytes(builder, operator)
            return _table_of(builder, operator, bytes_function)
        return builder.emit(build(builder.read(data)), operator.layer)

    return convert


CONVERTERS = {
    "RELU": clipped(0.0, None),
    "RELU6": clipped(0.0, 6.0),
    "RELU_N1_TO_1": clipped(-1.0, 1.0),
    "RELU_0_TO_1": clipped(0.0, 1.0),
    "LEAKY_RELU": leaky_relu,
    "LOGISTIC": logistic,
    "TANH": tanh,
    "HARD_SWISH": hard_swish,
    "ELU": _of_reals(lambda x: x if x >= 0 else math.expm1(x)),
    "EXP": _of_reals(lambda x: math.exp(min(x, 88.7))),
    "GELU": gelu,
    "NEG": _unary(relax.op.negative, None),
    "LOGICAL_NOT": _unary(relax.op.logical_not, None),
}
