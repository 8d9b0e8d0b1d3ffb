"""The one algebra of the project: `scale * (q - zero_point)` with half-integer zero points.

A zero point is kept as the integer `2 * zero_point`. Its *numerator* form is integral whatever the
encoding: a value is `unit * n` with `n = d * q - o`, where `d` is 1 for an integer zero point and
2 for a half-integer one, `o = d * zero_point` and `unit = scale / d`. A bipolar bit (scale 2, zero
point 1/2) has numerators -1 and +1; the four-term expansion of Jain et al. (2020, section IV-A)
then is the popcount identity `popc(w & a) - popc(~w & a) = 2 popc(w & a) - popc(a)`.
"""

from __future__ import annotations

import numpy as np

from stages.kinds import Array


def factor(zero_point_x2: int) -> int:
    """`d`: 2 for a half-integer zero point, else 1."""
    return 2 if zero_point_x2 % 2 else 1


def offset(zero_point_x2: int) -> int:
    """`o = d * zero_point`, always an integer."""
    return zero_point_x2 if zero_point_x2 % 2 else zero_point_x2 // 2


def numerators(q: Array, zero_point_x2: int) -> Array:
    """Integers `d * q - o` (int32) of quantized values `q`."""
    return q.astype(np.int32) * factor(zero_point_x2) - offset(zero_point_x2)


def unit(scale: Array, zero_point_x2: int) -> Array:
    """The real value of one numerator step: `scale / d` (exact: `d` is a power of two)."""
    return (np.asarray(scale, np.float32) / np.float32(factor(zero_point_x2))).astype(np.float32)
