"""How TensorFlow Lite rescales sums of products, and what requantizes alike in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from stages.dialect.numbers_numpy import NUMPY
from stages.kernels.byte_shift import SHIFT
from stages.kinds import Array
from stages.numerics import rule_names, tflite
from stages.numerics.rescale import fits
from stages.quantizing.affine_requantization import Affine, fitted, joined, step_function

GROUP = 1024
"""Channels whose steps are looked at together."""
TRIES = 4
"""How often sums are moved to find a multiply-add."""


@dataclass(frozen=True)
class RescaledSums:
    """Sums that are rescaled: `product` and a constant `bias`, between `low` and `high`; int64 [C].

    `product` is a variable of the source.
    """

    product: Any
    bias: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Rescaling:
    """What sums are multiplied by: a function of int64 [K, c] and its operands of c channels, those
    of all channels [C], and about how much it rises, float64 [C]."""

    function: Callable[..., Array]
    operands: Sequence[Array]
    slope: Array

    def of(self, x: Array, channels: slice) -> Array:
        """The function of some channels."""
        return self.function(x, *(operand[channels] for operand in self.operands))


def _requantize(factors: Sequence[Array], sums: RescaledSums) -> Rescaling | None:
    """`tflite_requantize` before its zero point; None if it may overflow."""
    factor, places = (np.broadcast_to(f.astype(np.int64), sums.low.shape) for f in factors)
    largest = max(-sums.low.min(), sums.high.max())
    if factor.min() < 0 or largest << max(0, int(places.max())) > np.iinfo(np.int32).max:
        return None
    slope = factor * 2.0 ** (places - 31)
    return Rescaling(partial(tflite.multiply, NUMPY), (factor, places), slope)


def _rescale(factors: Sequence[Array], sums: RescaledSums) -> Rescaling | None:
    """`tflite_rescale` before its zero point; None if it falls."""
    scale = np.broadcast_to(factors[0], sums.low.shape)
    if not (scale.min() >= 0 and np.isfinite(scale).all()):
        return None
    return Rescaling(lambda x, factor: tflite.round_away(NUMPY, x * factor), (scale,), scale)


RESCALINGS: Mapping[str, Callable[[Sequence[Array], RescaledSums], Rescaling | None]] = {
    rule_names.QNN_TFLITE_REQUANTIZE: _requantize,
    rule_names.QNN_TFLITE_RESCALE: _rescale,
}
"""Full name of an operator that rescales sums → what it computes."""


def has_signs(attrs: Mapping[str, Any]) -> bool:
    """Whether results have both signs: they are rounded alike for both, about the zero point."""
    return bool(attrs["low"] < attrs["zero_point"].whole)


def centre_of(attrs: Mapping[str, Any]) -> int:
    """What is added behind the rounding: results are as near to 0 as can be there."""
    if has_signs(attrs):
        return int(attrs["zero_point"].whole)
    return SHIFT if attrs["dtype"] == "uint8" else 0


def searched(
    sums: RescaledSums, rescaling: Rescaling, attrs: Mapping[str, Any]
) -> tuple[Array, Affine] | None:
    """How far sums move, int64 [C], and what requantizes the rest; some channels after others, as
    all their steps take memory."""
    groups = [slice(first, first + GROUP) for first in range(0, sums.low.size, GROUP)]
    moves, parts = [], []
    for group in groups:
        found = _of_channels(sums, rescaling, attrs, group)
        if found is None:
            return None
        moves.append(found[0])
        parts.append(found[1])
    whole = joined(parts)
    return None if whole is None else (np.concatenate(moves), whole)


def _of_channels(
    sums: RescaledSums, rescaling: Rescaling, attrs: Mapping[str, Any], channels: slice
) -> tuple[Array, Affine] | None:
    """What `searched` finds, for some channels."""
    low, high, slope = (each[channels] for each in (sums.low, sums.high, rescaling.slope))
    centre, is_odd = centre_of(attrs), has_signs(attrs)
    levels = centre - attrs["zero_point"].whole
    bounds = attrs["low"] - centre, attrs["high"] - centre
    first = _moved(low, high, slope, levels, is_odd)
    # One further, the last places of offsets are others.
    for moved in (first + more for more in range(1 if is_odd else TRIES)):

        def function(x: Array, moved: Array = moved) -> Array:
            return rescaling.of(x + moved, channels) - levels

        affine = fitted(step_function(function, low - moved, high - moved, bounds, is_odd), slope)
        if affine is not None:
            return moved, affine
    return None


def _moved(low: Array, high: Array, slope: Array, level: int, is_odd: bool) -> Array:
    """What to take from sums, int64 [C], to have them as near to 0 as can be, where float32 is most
    precise: those that give a `level`, if there are any.

    An odd function needs the signs of its sums.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.nan_to_num(np.rint(level / slope), nan=0.0)
    ends = (low - 1, high + 1) if is_odd else (low, high)
    middle = np.clip(steps, *(end.astype(np.float64) for end in ends)).astype(np.int64)
    return np.where((low > 0) | (high < 0), middle, 0) if is_odd else middle


def affine_fits(affine: Affine, sums: RescaledSums, moved: Array) -> bool:
    """Whether what is rounded fits 31 bits."""
    most = np.maximum(np.abs(sums.low - moved), np.abs(sums.high - moved))
    return fits(most, affine.scale, affine.offset)
