"""Calibration methods: which range of a tensor's values an 8-bit (or narrower) grid should span.

A range [low, high] holds 0 and lies within what was seen. What lies outside is clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from stages.calibrating.histograms import BINS, Histogram
from stages.kinds import Array

Range = tuple[float, float]
CalibrationMethod = Callable[[Histogram, int, bool], Range]
"""Histogram, number of levels, whether the grid is symmetric about 0 → range."""

TAIL = 1e-4
"""Share of the values that `percentile` leaves out, half of it at either end."""
CANDIDATES = 64
ENTROPY_STEP = 8


def minmax(histogram: Histogram, _levels: int, _symmetric: bool) -> Range:
    """Everything that was seen."""
    return histogram.low, histogram.high


def percentile(histogram: Histogram, _levels: int, _symmetric: bool) -> Range:
    """All but the outermost values."""
    total = int(histogram.counts.sum())
    if total == 0:
        return histogram.low, histogram.high
    allowed = total * TAIL / 2
    step = (histogram.high - histogram.low) / BINS
    below = int(np.searchsorted(np.cumsum(histogram.counts), allowed, side="right"))
    above = int(np.searchsorted(np.cumsum(histogram.counts[::-1]), allowed, side="right"))
    return (
        min(histogram.low + below * step, 0.0),
        max(histogram.high - above * step, 0.0),
    )


def mse(histogram: Histogram, levels: int, symmetric: bool) -> Range:
    """The range with the least squared error of rounding and clipping together.

    Both ends shrink together first, then each is moved alone; the full range is a candidate, so
    that the error is never above that of `minmax`.
    """
    low, high = histogram.low, histogram.high
    if histogram.largest == 0:
        return low, high
    used = histogram.counts > 0
    values, counts = histogram.centres()[used], histogram.counts[used]

    def error(candidate: Range) -> float:
        return squared_error(values, counts, candidate, levels, symmetric)

    shares = np.arange(CANDIDATES, 0, -1) / CANDIDATES
    best = min(((low * share, high * share) for share in shares), key=error)
    if not symmetric:
        for share in shares:
            best = min((best, (low * share, best[1])), key=error)
        for share in shares:
            best = min((best, (best[0], high * share)), key=error)
    return float(best[0]), float(best[1])


def squared_error(
    values: Array, counts: Array, candidate: Range, levels: int, symmetric: bool
) -> float:
    """Sum of squared errors of `values`, each occurring `counts` times, on the range's grid."""
    low, high = candidate
    if symmetric:
        half = (levels - 1) // 2
        scale, smallest, largest = max(-low, high) / max(half, 1), -half, half
    else:
        scale = (high - low) / (levels - 1)
        smallest = 0 if scale == 0 else round(low / scale)
        largest = smallest + levels - 1
    if scale == 0:
        return float((counts * values**2).sum())
    nearest = np.clip(np.rint(values / scale), smallest, largest) * scale
    return float((counts * (values - nearest) ** 2).sum())


def entropy(histogram: Histogram, levels: int, symmetric: bool) -> Range:
    """The magnitude at which clipping loses the least information (Kullback-Leibler).

    As TensorRT and MXNet calibrate: for each threshold the distribution of magnitudes, with all
    beyond it counted in the last bin, is compared with itself merged into as many levels as a
    grid has on one side of 0.
    """
    is_one_sided = not symmetric and (histogram.low == 0 or histogram.high == 0)
    bins = levels if is_one_sided else levels // 2
    counts = histogram.magnitudes.astype(np.float64)
    if counts.sum() == 0 or bins < 2:
        return histogram.low, histogram.high
    beyond = np.cumsum(counts[::-1])[::-1]
    best, threshold = np.inf, BINS
    for count in range(BINS, bins - 1, -ENTROPY_STEP):
        reference = counts[:count].copy()
        reference[-1] += beyond[count] if count < BINS else 0
        divergence = _divergence(reference, _merged(counts[:count], bins))
        if divergence < best:
            best, threshold = divergence, count
    limit = histogram.largest * threshold / BINS
    return max(histogram.low, -limit), min(histogram.high, limit)


def _merged(counts: Array, levels: int) -> Array:
    """Counts spread evenly over the occupied bins of each of `levels` equal groups."""
    group = np.arange(len(counts)) * levels // len(counts)
    occupied = counts > 0
    total = np.bincount(group, counts, levels)
    members = np.bincount(group, occupied, levels)
    share = total / np.maximum(members, 1)
    return np.where(occupied, share[group], 0.0)


def _divergence(reference: Array, other: Array) -> float:
    """KL divergence after normalizing; a little of the mass goes where `other` has none."""
    if other.sum() == 0:
        return float(np.inf)
    p = _smoothed(reference / reference.sum())
    q = _smoothed(other / other.sum())
    used = p > 0
    return float((p[used] * np.log(p[used] / q[used])).sum())


def _smoothed(distribution: Array, share: float = 1e-4) -> Array:
    empty = distribution == 0
    count = int(empty.sum())
    if count in (0, len(distribution)):
        return distribution
    taken = share * count / (len(distribution) - count)
    moved = np.where(empty, share, distribution - taken)
    return np.maximum(moved, 1e-12)


METHODS: Mapping[str, CalibrationMethod] = {
    "minmax": minmax,
    "entropy": entropy,
    "mse": mse,
    "percentile": percentile,
}
