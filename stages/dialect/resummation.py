"""Sums of floats made exact where a quantizer could tell the difference.

A kernel rounds a sum of `n` products in float32, in whatever order, and is off by at most

    n u / (1 - n u)  *  the sum of the products' sizes,  u = 2^-24

(Higham 2002, section 3.1). A quantizer that follows has a boundary between two levels wherever
`slope * sum + offset` is half an integer between its lowest and its highest level. Unless a sum is
that near to one, the exact sum gives the same level, and the kernel's sum will do; the few others
are summed anew in float64, rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.dialect.calls import Attrs, shape_of
from stages.dialect.convolve import convolve
from stages.dialect.float_linear import float64_of
from stages.dialect.registry import register
from stages.kinds import Array
from stages.nodes import TensorType

MAGIC = float(np.float32(1.5 * 2**23))
"""Added to a float32 and taken off again, it leaves the nearest integer of small numbers."""
OPERANDS = ("sums", "data", "weight", "slope", "offset", "slack", "least", "largest")


def _type(types: Sequence[TensorType], _attrs: Attrs) -> TensorType:
    sums, data, weight, *channels, _ = map(shape_of, types)
    if data[3] != weight[3] or any(each != (sums[3],) for each in (*channels, weight[:1])):
        raise ValueError(f"sums {sums} of data {data} and weights {weight}, bounds {channels}")
    return types[0]


@register("resum", OPERANDS, _type)
def resum(
    sums: Array,
    data: Array,
    weight: Array,
    slope: Array,
    offset: Array,
    slack: Array,
    least: Array,
    largest: Array,
    *,
    strides: Sequence[int],
    low: int,
    high: int,
) -> Array:
    """Sums float32 [1, H, W, O] of a `float_conv2d` of `data` [1, Hp, Wp, C] by `weight`
    [O, KH, KW, C], exact where `slope * sum + offset` is within `slack * largest + least` of half
    an integer between `low` and `high`.

    These are float32 [O], `largest` is the scalar that no size of `data` exceeds.
    """
    scaled = np.clip(sums * slope + offset, np.float32(low), np.float32(high))
    whole = (scaled + np.float32(MAGIC)) - np.float32(MAGIC)
    is_near = np.abs(scaled - whole) >= np.float32(0.5) - (slack * largest + least)
    if not is_near.any():
        return sums
    exact = convolve(float64_of(data), float64_of(weight), strides, 1, dtype="float32")
    return np.where(is_near, exact, sums)
