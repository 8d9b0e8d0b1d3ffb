"""Scales and zero points: of activations from a range, of weights from their values.

Zero is exactly on every grid: zero points are whole. Activations have one scale a tensor; weights
one scale, or one per output channel.
"""

from __future__ import annotations

import numpy as np

from stages.dialect.dtypes import limits
from stages.kinds import Array
from stages.numerics.quantization import Quantization
from stages.numerics.quantization_grid import Grid
from stages.options import RangeEncoding

SMALLEST_SCALE = float(np.finfo(np.float32).tiny)
LARGEST_BIAS = 1 << 30
"""Biases in steps of the accumulator stay below this, so that sums have room in int32."""
DIGITS = 18
"""Binary digits kept of a range, so that the last places of sums do not show in the scale."""


def activation_quantization(low: float, high: float, encoding: RangeEncoding) -> Quantization:
    """uint8 with a zero point (asymmetric), or int8 with zero point 0 and q in -127 .. 127.

    It spans at least [low, high], `low <= 0 <= high`, up to half a step.
    """
    if encoding == "symmetric":
        return _of_scale(_rounded(max(-low, high)) / 127, 0, "int8")
    scale = (_rounded(high) + _rounded(-low)) / 255
    zero_point = round(_rounded(-low) / max(scale, SMALLEST_SCALE))
    return _of_scale(scale, min(zero_point, 255), "uint8")


def weight_grid(
    values: Array, axis: int, encoding: RangeEncoding, per_channel: bool, smallest: Array
) -> Grid:
    """The grid of a weight tensor, broadcasting to it; channels run along `axis`.

    Symmetric: int8 in -127 .. 127. Asymmetric: uint8 with one zero point for the tensor.
    `smallest` [channels] bounds the scales from below, so that a bias fits.
    """
    others = tuple(i for i in range(values.ndim) if i != axis)
    if encoding == "asymmetric":
        ends = min(float(values.min()), 0), max(float(values.max()), 0)
        made = activation_quantization(*ends, encoding)
        least = max(float(made.scale), float(smallest.max()))
        return Grid.of(_of_scale(least, made.zero_point.whole, made.dtype))
    largest = np.abs(values).max(axis=others, keepdims=True).astype(np.float64)
    if not per_channel:
        largest = largest.max(keepdims=True).reshape(())
        smallest = smallest.max()
    else:
        smallest = smallest.reshape(largest.shape)
    # A channel of zeros has any scale; 1 keeps products of scales away from the smallest floats.
    scale = np.where(largest > 0, np.maximum(largest / 127, SMALLEST_SCALE), 1.0)
    scale = np.maximum(scale, smallest).astype(np.float32)
    return Grid(scale, np.zeros(scale.shape, np.int64), "int8")


def smallest_weight_scale(bias: Array, input_scale: np.float32) -> Array:
    """Scales [channels] below which a bias would not fit into the accumulator."""
    return np.abs(bias.astype(np.float64)) / (float(input_scale) * LARGEST_BIAS)


def quantized(values: Array, grid: Grid) -> Array:
    """The nearest integers of a grid that broadcasts to `values`; int8 stays in -127 .. 127."""
    low, high = limits(grid.dtype)
    low = -127 if grid.dtype == "int8" else low
    stored = np.rint(values.astype(np.float64) / grid.scale.astype(np.float64)) + grid.zero_point
    return np.clip(stored, low, high).astype(grid.dtype)


def _of_scale(scale: float, zero_point: int, dtype: str) -> Quantization:
    """The quantization of a scale, which becomes 1 for a tensor of zeros."""
    return Quantization.of_type(max(scale, SMALLEST_SCALE) if scale else 1, zero_point, dtype)


def _rounded(bound: float) -> float:
    """A bound of a range, away from 0 to DIGITS binary digits."""
    fraction, exponent = np.frexp(bound)
    return float(np.ldexp(np.ceil(np.ldexp(fraction, DIGITS)), int(exponent) - DIGITS))
