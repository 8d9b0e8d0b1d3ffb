"""`Padding`: what surrounds the image that a convolution of levels moves over."""

from __future__ import annotations

from dataclasses import dataclass

from stages.dialect.calls import Attrs
from stages.dialect.zero_point import ZeroPoint


@dataclass(frozen=True)
class Padding:
    """How far it reaches on each side, and the numerator that all of it has."""

    sides: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Rows and columns: top, left, bottom, right."""
    numerator: int = 0
    """0, which is real 0; 1 where bipolar bits are padded with ones, as Larq and MXNet do."""

    @classmethod
    def of(cls, attrs: Attrs) -> Padding:
        """That of a convolution with these attributes; a matrix product has none."""
        top, left, bottom, right = attrs.get("padding", (0, 0, 0, 0))
        return cls((top, left, bottom, right), attrs.get("pad_value", 0))

    def stored(self, zero_point: ZeroPoint) -> int:
        """The stored number of it; ValueError if the zero point is a half."""
        return zero_point.whole + self.numerator


def byte_around(zero_point: ZeroPoint) -> int:
    """What a halo of bytes holds, whatever padding means: the byte next to the zero point, or 0
    where that is a half. The bias corrects the difference, per border class."""
    return min(max(0, zero_point.whole), 255) if zero_point.is_whole else 0
