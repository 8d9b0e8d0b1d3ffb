"""Quantizers of the zoo's layers, and weights and batch norms under which float32 is exact.

Every scale is a power of two, so a layer computes integers times a known unit. Weights are drawn
so that no accumulator reaches 2^24, whatever the input; a batch norm has variance + epsilon equal
to 1, a mean in whole units, and a gain of few bits: no operation ever rounds, and any order of
summation gives the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.errors import StageError
from stages.importing.zoo.qonnx_writer import BatchNorm, Quantizer
from stages.layer_options import TensorQuantization

Array = np.ndarray[Any, Any]

EXACT = 1 << 24
"""Whole numbers up to here are float32 values."""

EPSILON = 2.0**-16
BETA_STEP = 1 / 8


def activation_quantizer(wanted: TensorQuantization, deviation: float) -> Quantizer:
    """The quantizer of activations whose standard deviation is about that power of two."""
    bits = wanted.bits
    if wanted.encoding == "signed":
        return Quantizer(deviation * 2.0 ** (2 - bits), bits, signed=True)
    return _levels(wanted, deviation * 2.0 ** (1 - bits))


def weight_quantizer(wanted: TensorQuantization, fan_in: int) -> Quantizer:
    """The quantizer of weights that keep the standard deviation of `fan_in` values they sum."""
    scale = 2.0 ** (1 - wanted.bits - fan_in.bit_length() // 2)
    if wanted.encoding == "signed":
        return Quantizer(2 * scale, wanted.bits, signed=True, narrow=wanted.bits > 3)
    return _levels(wanted, scale)


def _levels(wanted: TensorQuantization, scale: float) -> Quantizer:
    """0, 1, ... times the scale (unipolar) or ..., -1, +1, ... times the scale (bipolar)."""
    if wanted.encoding == "unipolar":
        return Quantizer(scale, wanted.bits)
    if wanted.bits == 1:
        return Quantizer(scale, 1, bipolar=True)
    return Quantizer(2 * scale, wanted.bits, zero_point=(2**wanted.bits - 1) / 2)


def draw_weights(
    rng: np.random.Generator, shape: tuple[int, ...], quantizer: Quantizer, largest_input: int
) -> Array:
    """Weights on the quantizer's grid, every level as likely while all accumulators stay exact.

    Wide weights are drawn narrower than their range where many are summed, save one full-range
    value a channel.
    """
    low, high = (round(level / quantizer.unit) for level in quantizer.levels())
    step = 2 if low % 2 else 1  # odd levels have no even ones between them
    if quantizer.bits > 3:
        fan_in = int(np.prod(shape[1:]))
        reach = max(1, (EXACT // 4) // (fan_in * largest_input))
        narrow_low, narrow_high = max(low, -reach | (step - 1)), min(high, reach | (step - 1))
    else:
        narrow_low, narrow_high = low, high
    count = (narrow_high - narrow_low) // step + 1
    numerators = narrow_low + step * rng.integers(0, count, size=shape)
    if count < (high - low) // step + 1:
        flat = numerators.reshape(shape[0], -1)
        where = rng.integers(0, flat.shape[1], size=shape[0])
        flat[np.arange(shape[0]), where] = np.where(rng.integers(0, 2, shape[0]) == 1, high, low)
    return (numerators * quantizer.unit).astype(np.float32)


def fit_batch_norm(
    rng: np.random.Generator,
    layer: str,
    sums: Array,
    unit: float,
    bound: int,
    shift: float,
) -> BatchNorm:
    """A batch norm that brings convolution results to a deviation of about 1 around about `shift`.

    `sums` is [N, C, H, W] on the sample, in multiples of `unit`; `bound` limits their magnitude
    in units for any input. Statistics are taken in whole numbers, so that no machine's order of
    summation shows in the file. Every eighth gain or so is negative.
    """
    channels = sums.shape[1]
    whole = np.rint(sums.astype(np.float64) / unit).astype(np.int64)
    by_channel = whole.transpose(1, 0, 2, 3).reshape(channels, -1)
    count = by_channel.shape[1]
    mean = (2 * by_channel.sum(axis=1) + count) // (2 * count)
    squares = ((by_channel - mean[:, np.newaxis]) ** 2).sum(axis=1)
    deviation = np.sqrt(np.maximum(squares, 1) / count)
    fraction, exponent = np.frexp(1 / (deviation * unit))
    # The gain is `digits * last_bit`: three binary digits, or one where accumulators are long.
    bits = 3 if 2 * bound * 8 < EXACT else 1
    digits = np.floor(np.ldexp(fraction, bits))
    last_bit = np.ldexp(1.0, exponent - bits)
    sign = np.where(rng.integers(0, 8, channels) == 0, -1, 1)
    step = np.maximum(BETA_STEP, last_bit * unit)
    offsets = rng.integers(-4, 5, channels) * BETA_STEP + shift
    beta = np.rint(offsets / step) * step
    longest = 2 * bound * digits + np.abs(beta) / (last_bit * unit)
    if (longest >= EXACT).any():
        raise StageError(
            f"sums reach {bound:,} steps, too many for an exact float32 reference",
            layer=layer,
            hint="use fewer bits for its activations or weights",
        )
    return BatchNorm(
        gamma=(sign * digits * last_bit).astype(np.float32),
        beta=beta.astype(np.float32),
        mean=(mean * unit).astype(np.float32),
        variance=np.full(channels, 1 - EPSILON, np.float32),
        epsilon=EPSILON,
    )
