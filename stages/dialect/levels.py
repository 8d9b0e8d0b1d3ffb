"""`Levels`: the integers that a tensor may hold, and which of them stands for 0.

A level q stands for `scale * (q - zero_point)`; the scale is up to who has the tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

from stages.dialect.dtypes import limits
from stages.dialect.zero_point import AT_ZERO, ZeroPoint


@dataclass(frozen=True)
class Levels:
    """Integers `low` to `high` with a zero point."""

    low: int
    high: int
    zero_point: ZeroPoint = AT_ZERO

    @classmethod
    def of_type(cls, dtype: str, zero_point: ZeroPoint = AT_ZERO) -> Levels:
        """All integers of a type, such as `uint2`."""
        return cls(*limits(dtype), zero_point)

    @property
    def is_signed(self) -> bool:
        """Whether some are negative."""
        return self.low < 0

    @property
    def bits(self) -> int:
        """Bits of the narrowest type that holds all of them."""
        if self.is_signed:
            return 1 + max(self.high, ~self.low).bit_length()
        return max(1, self.high.bit_length())

    @property
    def dtype(self) -> str:
        """The narrowest type that holds all of them."""
        return f"{'int' if self.is_signed else 'uint'}{self.bits}"

    @property
    def has_zero(self) -> bool:
        """Whether one of them stands for 0."""
        return self.zero_point.is_whole and self.low <= self.zero_point.whole <= self.high

    @property
    def is_balanced(self) -> bool:
        """Whether 0 lies in the middle of them, as it does of bipolar bits."""
        return self.zero_point.doubled == self.low + self.high

    @property
    def from_zero(self) -> Levels:
        """These levels, counted from 0."""
        return Levels(0, self.high - self.low, self.zero_point.moved(-self.low))

    @property
    def numerators(self) -> tuple[int, int]:
        """The smallest and the largest numerator."""
        return self.zero_point.numerator(self.low), self.zero_point.numerator(self.high)
