"""Converters of SOFTMAX and LOG_SOFTMAX.

Source: tensorflow/lite/kernels/activations.cc (SoftmaxPrepare), quantization_util.cc
(PreprocessSoftmaxScaling, CalculateInputRadius), common.h (LUTPopulate).
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, floor
from typing import Any

import numpy as np

from stages.dialect.calls import BYTES
from stages.dialect.numbers_numpy import NUMPY
from stages.importing.tflite.rescaling import fixed_point
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Array, Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import fixed_point as fixed
from stages.numerics import float_softmax, tflite_softmax
from stages.numerics.tflite import multiply, quantize_multiplier

DIFFERENCE_BITS = 5
"""Integer bits of a scaled difference from the largest value."""


def difference_scaling(beta: float, scale: np.float32) -> tuple[int, int, int]:
    """Multiplier and left shift of differences, and how far below 0 they count."""
    factor = min(beta * float(scale) * (1 << (31 - DIFFERENCE_BITS)), (1 << 31) - 1.0)
    multiplier, shift = quantize_multiplier(factor) if factor < 2.0**30 else _large(factor)
    if shift < 0:
        raise UnsupportedError(f"has the scale {scale} and beta {beta}, whose product is too small")
    radius = ((1 << DIFFERENCE_BITS) - 1) * 2.0 ** (31 - DIFFERENCE_BITS) / 2.0**shift
    return multiplier, shift, floor(radius)


def _large(factor: float) -> tuple[int, int]:
    """A factor of up to 2^31, which only this kernel has."""
    multiplier, shift = quantize_multiplier(factor / 4)
    return multiplier, shift + 2


def exponentials(beta: float, scale: np.float32) -> Array:
    """e^(-d * scale * beta) as Q0.31 for d from 0 to 255: int32 [256]."""
    multiplier, shift, radius = difference_scaling(beta, scale)
    distance = np.arange(256, dtype=np.int64)
    counted = np.minimum(distance, radius)
    scaled = multiply(NUMPY, -counted, np.int64(multiplier), np.int64(shift))
    powers = fixed.exp_of_negative(NUMPY, scaled)
    table: Array = np.where(distance <= radius, powers, 0).astype(np.int32)
    return table


def lookup_table(function: Callable[[float], float], low: float, high: float) -> Array:
    """A function as int16 [513] of Q0.15, each corrected by half the error in the middle."""
    step = (high - low) / 512
    values = [function(low + i * step) * 32768.0 for i in range(512)]
    middles = [_rounded(function(low + i * step + step / 2) * 32768.0) for i in range(512)]
    after = [function(low + (i + 1) * step) * 32768.0 for i in range(512)]
    entries = []
    for value, middle, following in zip(values, middles, after, strict=True):
        between = _rounded((following + _rounded(value)) / 2)
        entries.append(_rounded(value) - _rounded((between - middle) / 2))
    entries.append(_rounded(function(high) * 32768.0))
    return np.clip(entries, -32768, 32767).astype(np.int16)


def _rounded(x: float) -> float:
    return float(np.copysign(floor(abs(x) + 0.5), x))


def softmax(builder: TfliteBuilder, operator: Operator) -> Any:
    """SOFTMAX over the last axis of bytes or int16."""
    data, output = operator.input(0), operator.outputs[0]
    beta, scale = float(operator.option("beta", 0.0)), builder.quantization(data).scale
    kinds = builder.dtype(data), builder.dtype(output)
    if kinds == ("int16", "int16"):
        return _softmax_int16(builder, operator, float(scale * np.float32(beta)))
    if kinds[0] not in BYTES or kinds[1] not in (kinds[0], "int16"):
        raise UnsupportedError(f"takes {kinds[0]} to {kinds[1]}")
    table = builder.tensor(f"{operator.layer}.exps", exponentials(beta, scale))
    call = tflite_softmax.softmax_of_bytes(builder.read(data), table, dtype=kinds[1])
    return builder.emit(call, operator.layer)


def _softmax_int16(builder: TfliteBuilder, operator: Operator, scale: float) -> Any:
    """Softmax of int16; `scale` is that of the data times beta, as float32, unlike for bytes."""
    multiplier, shift = fixed_point(scale / (10.0 / 65535.0))
    layer = operator.layer
    exps = builder.tensor(f"{layer}.exps", lookup_table(exp, -10.0, 0.0))
    inverses = lookup_table(lambda x: 1.0 / (1.0 + x), 0.0, 1.0)
    reciprocals = builder.tensor(f"{layer}.reciprocals", inverses)
    data = builder.read(operator.input(0))
    call = tflite_softmax.softmax_of_int16(
        data, exps, reciprocals, multiplier=multiplier, shift=shift
    )
    return builder.emit(call, layer)


def softmax_float(builder: TfliteBuilder, operator: Operator) -> Any:
    """SOFTMAX of floats."""
    beta = float(operator.option("beta", 0.0))
    call = float_softmax.softmax(builder.read(operator.input(0)), beta=beta)
    return builder.emit(call, operator.layer)


def log_softmax_float(builder: TfliteBuilder, operator: Operator) -> Any:
    """LOG_SOFTMAX of floats."""
    return builder.emit(float_softmax.log_softmax(builder.read(operator.input(0))), operator.layer)


CONVERTERS = {"SOFTMAX": softmax}
FLOAT = {"SOFTMAX": softmax_float, "LOG_SOFTMAX": log_softmax_float}
