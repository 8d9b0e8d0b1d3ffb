"""Between which integers the sums of a linear layer of levels lie, channel by channel."""

from __future__ import annotations

import numpy as np

from stages.dialect.calls import attributes, operand_levels
from stages.dialect.padding import Padding
from stages.kinds import Array
from stages.nodes import Call

SumBounds = tuple[Array, Array]
"""The least and the largest sum of each channel, int64 [O]."""


def bounds_of_sums(weights: Array, ends: tuple[int, ...]) -> SumBounds:
    """Bounds of sums of weights [O, ...] times numbers between the `ends`; all are numerators."""
    wide = weights.reshape(len(weights), -1).astype(np.int64)
    above, below = wide.clip(min=0).sum(1), wide.clip(max=0).sum(1)
    least, largest = min(ends), max(ends)
    return above * least + below * largest, above * largest + below * least


def bounds_of_layer(call: Call, weights: Array) -> SumBounds:
    """Bounds of a linear operator's sums with these stored weights, for any data of its type."""
    data, stored = operand_levels(call)
    ends = (*data.numerators, Padding.of(attributes(call)).numerator)
    return bounds_of_sums(stored.zero_point.numerators(weights), ends)
