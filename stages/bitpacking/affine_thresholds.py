"""Thresholds as an affine requantization, where they amount to one.

Batch normalization and a quantizer behind it are a straight line, rounded: equally spaced
thresholds but for their own rounding to integers. A multiply-add that gives the very same levels
costs one multiplication for all of them, where every threshold costs a comparison.
"""

from __future__ import annotations

import numpy as np

from stages.kinds import Array

FEWEST = {"int16": 5, "int32": 3}
"""Type of thresholds → how many of them cost more than a multiply-add: a register of them is
compared for 8 or 4 lanes of NEON, 32 or 16 of AVX-512, in two instructions; a multiply-add takes
four for 4 or 16."""
EXACT = 1 << 24
"""Integers up to here are float32."""


def as_affine(thresholds: Array, falling: Array, most: int) -> tuple[Array, Array] | None:
    """Multiplier and offset float32 [C] whose `requantize` gives the levels of thresholds [T, C].

    That is so for all integers of at most `most` in size; None if there is none for some
    channel, or if comparing is cheaper.
    """
    count = len(thresholds)
    if count < FEWEST.get(str(thresholds.dtype), count + 1) or most > EXACT:
        return None
    # Of a falling channel, which counts what is not reached, the negated input rises.
    steps = np.where(falling == 0, thresholds.astype(np.int64), 1 - thresholds.astype(np.int64))
    slope, start = _through(*_bounds(steps, most))
    slope = np.where(falling == 0, slope, -slope).astype(np.float32)
    found = slope, start.astype(np.float32)
    return found if _is_right(found, thresholds.astype(np.int64), falling, most) else None


def _bounds(steps: Array, most: int) -> tuple[Array, Array]:
    """Where, at least and at most, values have to rise from one level to the next: float64 [T, C].

    Level k is reached from integer `steps[k - 1]` on; what no integer reaches has no upper bound.
    """
    low = np.where(steps <= -most, -np.inf, np.minimum(steps, most + 1) - 1.0)
    high = np.where(steps > most, np.inf, np.maximum(steps, -most))
    return low, high


def _through(low: Array, high: Array) -> tuple[Array, Array]:
    """Slope and intercept of what reaches k - 1/2 within the k-th bounds, if there are any.

    Distances between steps must be alike: every two bounds leave a range for them.
    """
    channels = low.shape[1]
    least, largest = np.zeros(channels), np.full(channels, np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        for between in range(1, len(low)):
            least = np.fmax(least, ((low[between:] - high[:-between]) / between).max(axis=0))
            largest = np.fmin(largest, ((high[between:] - low[:-between]) / between).min(axis=0))
        distance = np.where(np.isfinite(largest), (least + largest) / 2, 2 * least + 1)
        places = distance * np.arange(len(low))[:, None]
        first, last = (low - places).max(axis=0), (high - places).min(axis=0)
        first, last = np.fmax(first, last - 1), np.fmin(last, first + 1)  # one of them may be none
        slope = 1 / distance
        return slope, 0.5 - slope * (first + last) / 2


def _is_right(affine: tuple[Array, Array], thresholds: Array, falling: Array, most: int) -> bool:
    """Whether a multiply-add gives the levels: it rises or falls, so that it has to be right on
    both sides of every threshold, and at both ends."""
    ends = np.broadcast_to(np.array([[-most], [most]]), (2, thresholds.shape[1]))
    inputs = np.concatenate([thresholds, thresholds - 1, ends]).clip(-most, most)
    wanted = np.zeros(inputs.shape, np.int32)
    for row in thresholds:
        wanted += (inputs >= row) ^ (falling != 0)
    slope, start = affine
    found = np.rint(inputs.astype(np.float32) * slope + start).clip(0, len(thresholds))
    is_rising = bool(np.all(np.where(falling == 0, slope, -slope) >= 0))
    return is_rising and bool(np.array_equal(found, wanted))
