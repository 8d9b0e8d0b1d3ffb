"""`ZeroPoint`: which stored number stands for 0, exactly, be it a whole number or a half.

A stored q stands for `scale * (q - zero_point)`. The *numerator* form of that is integral whatever
the encoding: a value is `unit * n` with `n = d * q - d * zero_point`, where the denominator `d` is
1 for a whole zero point and 2 for a half, and `unit = scale / d`. A bipolar bit (scale 2, zero
point 1/2) has numerators -1 and +1; the four-term expansion of Jain et al. (2020, section IV-A)
then is the popcount identity `popc(w & a) - popc(~w & a) = 2 popc(w & a) - popc(a)`.

Every attribute of an operator of the dialect whose name ends in `zero_point` is one of these: in a
Relax call it is a number, such as 128 or 0.5, which `calls.stated` writes and `calls.attributes`
reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.kinds import Array

_ATTRIBUTE = "zero_point"


@dataclass(frozen=True, order=True)
class ZeroPoint:
    """The stored number that stands for 0; no stored number does where it is a half."""

    doubled: int
    """Twice the number."""

    @classmethod
    def of(cls, number: ZeroPoint | float | np.number[Any]) -> ZeroPoint:
        """A zero point by its number; ValueError if that is no multiple of 1/2."""
        if isinstance(number, ZeroPoint):
            return number
        if not float(2 * number).is_integer():
            raise ValueError(f"a zero point of {number}; a multiple of 1/2 is expected")
        return cls(int(2 * number))

    def __bool__(self) -> bool:
        """Whether stored numbers are not the numerators themselves."""
        return self.doubled != 0

    def __str__(self) -> str:
        return f"{self.number:g}"

    @property
    def is_whole(self) -> bool:
        """Whether a stored number may stand for 0."""
        return self.doubled % 2 == 0

    @property
    def whole(self) -> int:
        """The number where it is a whole one; else ValueError."""
        if not self.is_whole:
            raise ValueError(f"a zero point of {self}; a whole one is expected")
        return self.doubled // 2

    @property
    def number(self) -> float:
        """The number itself, which float32 holds exactly."""
        return self.doubled / 2

    @property
    def denominator(self) -> int:
        """Numerators from one stored number to the next: 2 for a half, else 1."""
        return 1 if self.is_whole else 2

    def moved(self, by: int) -> ZeroPoint:
        """The zero point of stored numbers that are larger by `by`."""
        return ZeroPoint(self.doubled + 2 * by)

    def numerator(self, q: Any) -> Any:
        """The integer `d * q - d * zero_point` of a stored number, or of an expression of one."""
        return q * self.denominator - (self.doubled * self.denominator) // 2

    def numerators(self, q: Array) -> Array:
        """The integers (int32) of an array of stored numbers."""
        return np.asarray(self.numerator(q.astype(np.int32)))

    def unit(self, scale: Array | np.float32) -> Array:
        """The real value of one numerator: `scale / d` (exact: `d` is a power of two)."""
        values = np.asarray(scale, np.float32) / np.float32(self.denominator)
        return np.asarray(values, np.float32)


AT_ZERO = ZeroPoint(0)
"""The zero point of stored numbers that are numerators."""
BIPOLAR = ZeroPoint(1)
"""The zero point of bits that stand for -1 and 1, at a scale of 2."""


def as_attribute(name: str, value: Any) -> Any:
    """What a Relax call states of an attribute: of a zero point its number, an int if whole."""
    if not name.endswith(_ATTRIBUTE):
        return value
    zero_point = ZeroPoint.of(value)
    return zero_point.whole if zero_point.is_whole else zero_point.number


def from_attribute(name: str, value: Any) -> Any:
    """What an attribute of a Relax call says: of a zero point the value type."""
    return ZeroPoint.of(value) if name.endswith(_ATTRIBUTE) else value
