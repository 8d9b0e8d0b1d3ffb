"""HARD_SWISH of bytes: 16-bit fixed point, computed at import for all the 256 values.

Source: tensorflow/lite/kernels/internal/reference/hard_swish.h, HardSwishPrepare in activations.cc.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.dialect.calls import BYTES
from stages.dialect.numbers_numpy import NUMPY
from stages.importing.tflite.byte_luts import numerators_of_byte, tabled
from stages.importing.tflite.rescaling import fixed_point
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Array, Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics.tflite import divide_by_power, reduced_multiplier

HIGH_RESOLUTION = 128
"""Values are moved to the left by 7 bits before anything else."""


def _saturated(x: Array) -> Array:
    return np.clip(x, -32768, 32767)


def _high_product(left: Array, right: int) -> Array:
    """The upper half of a doubled product of int16, halves up."""
    return _saturated((left * right + (1 << 14)) >> 15)


def hard_swish(builder: TfliteBuilder, operator: Operator) -> Any:
    """HARD_SWISH of bytes."""
    data, output = operator.input(0), operator.outputs[0]
    if builder.dtype(data) not in BYTES:
        raise UnsupportedError(f"has data of {builder.dtype(data)}")
    source, out = builder.quantization(data), builder.quantization(output)
    fine = np.float32(np.float32(1 / HIGH_RESOLUTION) * source.scale)
    multiplier, shift = fixed_point(float(fine / out.scale))
    gate_scale = np.float32(3.0 / 32768.0)
    gate_multiplier, gate_shift = fixed_point(float(fine / gate_scale))
    if shift > 0:
        raise UnsupportedError(
            f"scales its result by {float(fine / out.scale)}; at most 1 is accepted"
        )
    x = numerators_of_byte(source) * HIGH_RESOLUTION
    gate = _gate(x, reduced_multiplier(gate_multiplier), gate_shift)
    product = gate * _high_product(x, reduced_multiplier(multiplier))
    truncated = np.where(product < 0, -(-product >> 15), product >> 15)
    scaled = divide_by_power(NUMPY, truncated, np.int64(-shift)) + out.zero_point.whole
    return tabled(builder, operator, data, np.clip(scaled, *out.limits))


def _gate(x: Array, multiplier: int, shift: int) -> Array:
    """(x + 3) / 6 between 0 and 1, as Q0.15."""
    if shift > 0:
        x = _saturated(x << (shift - 1))
    x = _high_product(x, multiplier)
    if shift > 0:
        x = _saturated(x << 1)
    if shift < 0:
        x = divide_by_power(NUMPY, x, np.int64(-shift))
    return (x + (1 << 15)) >> 1
