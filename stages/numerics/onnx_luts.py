"""Functions that ONNX Runtime tabulates for quantized operators, as it computes them."""

from __future__ import annotations

import numpy as np

from stages.dialect.numbers_numpy import NUMPY
from stages.kinds import Array

_NUMERATOR = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
_DENOMINATOR = (
    6.10247389755681e-13,
    5.76102136993427e-09,
    6.29106785017040e-06,
    1.70198817374094e-03,
    1.16817656904453e-01,
    9.93151921023180e-01,
)


def logistic(x: Array) -> Array:
    """MLAS's logistic function of float32, a rational approximation (`logistic.cpp`, with fma)."""
    value = np.clip(x, np.float32(-18), np.float32(18))
    squared = value * value
    ratio = _polynomial(squared, _NUMERATOR) * value / _polynomial(squared, _DENOMINATOR)
    return np.clip(ratio + np.float32(0.5), np.float32(0), np.float32(1))


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Horner's rule, each step one fma; the highest power comes first."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = NUMPY.multiply_add(total, x, np.full_like(x, coefficient))
    return total


def exponentials(scale: np.float32, depth: int) -> Array:
    """QLinearSoftmax's table for sums of `depth` values: float32 [256] (`qlinear_softmax.cc`).

    Entry q is `exp((q - 255 + shift) * scale)`; the shift keeps the sum below float32's limit.
    """
    limit = np.float32(np.finfo(np.float32).max) / np.float32(depth)
    spare = np.float32(np.log(np.float64(limit)))  # the logarithm is float32 there, too
    shift = max(0.0, float(spare) - 5) / float(scale)
    exponents = (np.arange(256, dtype=np.float64) - 255 + shift) * float(scale)
    return np.exp(exponents).astype(np.float32)
