"""Division by a constant as products: by its reciprocal, and corrected by what that leaves.

A quotient that is corrected so is within a unit in the last place of the right one, and as a rule
it is the right one (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000
processor", IBM J. Res. Dev. 34(1), 1990). What is rounded to an integer afterwards differs only
if the two lie on different sides of a tie, which is tried for all ties there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from stages.dialect.numbers import Numbers, Value

MOST_TIES = 1 << 9
"""Ties that are tried: those between the integers of a byte, and no more."""
LEAST_SCALE = 2.0**-60
"""Remainders might lose digits of scales below this, and of those above its inverse."""
NEAR = 8
"""Floats on either side of a tie that are tried: farther away a unit makes no difference."""


def quotient_by_products(m: Numbers, x: Value, divisor: Value) -> Value:
    """`x / divisor` of float32, which must not overflow, or one of its neighbours."""
    reciprocal = m.quotient(m.constant(1, "float32"), divisor)
    first = m.product(x, reciprocal)
    rest = m.multiply_add(-first, divisor, x)
    return m.multiply_add(rest, reciprocal, first)


def rounds_alike(m: Numbers, scale: float, least: int, most: int) -> bool:
    """Whether all floats, clipped to so many times a scale, give the same integers by products as
    by a division; `m` computes in NumPy."""
    if not LEAST_SCALE <= scale <= 1 / LEAST_SCALE or not 0 <= most - least < MOST_TIES:
        return False
    divisor = np.float32(scale)
    ties = ((np.arange(least, most) + 0.5) * float(divisor)).astype(np.float32)
    # Neighbours of a float are those of its bits, but around 0, which is no tie.
    steps = np.arange(-NEAR, NEAR + 1, dtype=np.int32)
    x = (ties.view(np.int32)[:, None] + steps).view(np.float32)
    ends = np.array([[least], [most]], np.float32) * divisor
    return all(
        np.array_equal(np.rint(quotient_by_products(m, each, divisor)), np.rint(each / divisor))
        for each in (x, ends)
    )
