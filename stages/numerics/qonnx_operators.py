"""Operators of source graphs that Relax has no word for: QONNX quantizers, batch normalization.

They are float in, float out, and mean exactly what the source format says (QONNX operator
specification; FINN's MultiThreshold), so that an imported module is the unfolded source graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from stages.dialect.calls import Attrs
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.registry import register
from stages.dialect.rounding_modes import MODES
from stages.kinds import Array
from stages.nodes import TensorType

ROUNDING: Mapping[str, Callable[[Array], Array]] = {
    name: partial(mode, NUMPY) for name, mode in MODES.items()
}
"""The rounding modes in NumPy."""


def same_type(types: Sequence[TensorType], _attrs: Attrs) -> TensorType:
    """The result has the type of the first argument."""
    return types[0]


def quant_range(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    """Smallest and largest integer of a QONNX `Quant`."""
    if signed:
        return -(1 << (bits - 1)) + int(narrow), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - int(narrow)


@register("quant", ["x", "scale", "zero_point"], same_type)
def quant(
    x: Array,
    scale: Array,
    zero_point: Array,
    *,
    bits: int,
    signed: bool,
    narrow: bool,
    rounding: str,
) -> Array:
    """QONNX Quant: float32 in, float32 on the grid `scale * (q - zero_point)` out."""
    low, high = quant_range(bits, signed, narrow)
    clipped = np.clip(x / scale + zero_point, np.float32(low), np.float32(high))
    return ((ROUNDING[rounding](clipped) - zero_point) * scale).astype(np.float32)


@register("bipolar_quant", ["x", "scale"], same_type)
def bipolar_quant(x: Array, scale: Array) -> Array:
    """QONNX BipolarQuant: `+scale` where x >= 0 (0 included), else `-scale`."""
    return np.where(x >= 0, scale, -scale).astype(np.float32)


@register("multi_threshold", ["x", "thresholds"], same_type)
def multi_threshold(
    x: Array, thresholds: Array, *, out_scale: float, out_bias: float, channel_axis: int
) -> Array:
    """FINN MultiThreshold: `out_scale * (number of thresholds t with x >= t) + out_bias`.

    `thresholds` is float32 [C or 1, T], ascending in T; C runs along `channel_axis` of `x`.
    """
    per_channel = [1] * x.ndim
    per_channel[channel_axis] = thresholds.shape[0]
    count = np.zeros(x.shape, np.float32)
    for column in range(thresholds.shape[1]):
        count += x >= thresholds[:, column].reshape(per_channel)
    return (np.float32(out_scale) * count + np.float32(out_bias)).astype(np.float32)


@register("batch_norm", ["x", "gamma", "beta", "mean", "variance"], same_type)
def batch_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float,
    channel_axis: int = 1,
) -> Array:
    """Inference batch normalization in float32: `gamma * (x - mean) / sqrt(var + eps) + beta`."""
    per_channel = [1] * x.ndim
    per_channel[channel_axis] = -1
    gamma, beta, mean = (v.reshape(per_channel) for v in (gamma, beta, mean))
    deviation = np.sqrt(variance + np.float32(epsilon)).reshape(per_channel)
    return gamma * (x - mean) / deviation + beta
