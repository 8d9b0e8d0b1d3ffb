"""What is kept of a tensor's values over all samples: its extremes, then two histograms.

Memory does not grow with the samples: they pass twice, first for the extremes and then, if the
method asks for it, for counts in bins between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.kinds import Array

BINS = 2048


@dataclass
class Extremes:
    """Smallest and largest value seen, with 0, which every grid must hold."""

    low: float = 0.0
    high: float = 0.0

    def add(self, values: Array) -> None:
        """Take a sample's values into account."""
        self.low = min(self.low, float(values.min(initial=0)))
        self.high = max(self.high, float(values.max(initial=0)))


class Histogram:
    """Counts of values, and of magnitudes without the zeros, in BINS bins each.

    `counts` spans [low, high] and `magnitudes` [0, max(-low, high)]. Zeros are left out of the
    magnitudes because any grid holds them exactly: behind a ReLU they would hide all else.
    """

    def __init__(self, extremes: Extremes) -> None:
        self.low, self.high = extremes.low, extremes.high
        self.counts = np.zeros(BINS, np.int64)
        self.magnitudes = np.zeros(BINS, np.int64)

    @property
    def largest(self) -> float:
        """The largest magnitude."""
        return max(-self.low, self.high)

    def add(self, values: Array) -> None:
        """Count a sample's values."""
        if self.largest == 0:
            return
        flat = values.reshape(-1).astype(np.float64)
        self.counts += _counted(flat - self.low, self.high - self.low)
        self.magnitudes += _counted(np.abs(flat[flat != 0]), self.largest)

    def centres(self) -> Array:
        """The value in the middle of each bin of `counts`, float64."""
        step = (self.high - self.low) / BINS
        return self.low + step * (np.arange(BINS) + 0.5)


def _counted(offsets: Array, span: float) -> Array:
    bins = np.clip((offsets * (BINS / span)).astype(np.int64), 0, BINS - 1)
    return np.bincount(bins, minlength=BINS)
