"""What surrounds an image: in the graph `Padding`, in memory a `Halo`.

A Relax call stores either as two attributes: `padding` and `pad_value`, `halo` and `fill`.
`calls.stated` writes them, and `calls.attributes` reads them as one value, which is called
`padding` or `halo`. Pools have `Sides` alone as their padding, since it never wins or adds 0, and
bits and LUTs as their halo, which is level 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

from stages.dialect.zero_point import AT_ZERO, ZeroPoint


class Sides(NamedTuple):
    """Rows and columns around an image."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Sides:
        """From four numbers; ValueError for another count."""
        if len(numbers) != 4:
            raise ValueError(f"padding {list(numbers)}; top, left, bottom, right are expected")
        return cls(*numbers)

    @classmethod
    def of_pad(cls, width: Sequence[int]) -> Sides:
        """From the `pad_width` of an `nn.pad` of height and width, NHWC."""
        _, _, top, bottom, left, right, _, _ = (int(count) for count in width)
        return cls(top, left, bottom, right)

    def pad_width(self, channels: int = 0) -> list[int]:
        """The `pad_width` of an `nn.pad` of NHWC, with so many channels behind those there are."""
        return [0, 0, self.top, self.bottom, self.left, self.right, 0, channels]

    def around(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of an image with them."""
        return self.top + height + self.bottom, self.left + width + self.right


NO_SIDES = Sides()


@dataclass(frozen=True)
class Padding:
    """What a convolution of levels has around its image: `sides` of one numerator."""

    sides: Sides = NO_SIDES
    numerator: int = 0
    """0, which is real 0; 1 where bipolar bits are padded with ones, as Larq and MXNet do."""

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> Padding:
        """The padding of a linear operator with these attributes; a matrix product has none."""
        padding = attrs.get("padding", NO_PADDING)
        if not isinstance(padding, cls):
            raise ValueError(f"padding {list(padding)} without a pad_value")
        return padding

    def stored(self, zero_point: ZeroPoint) -> int:
        """The stored number of it; ValueError if the zero point is a half."""
        return zero_point.whole + self.numerator

    def halo(self, zero_point: ZeroPoint = AT_ZERO) -> Halo:
        """The halo that bytes get, whatever the numerator: of the byte next to the zero point, or
        of 0 where that is a half. The bias corrects the `difference`, per border class."""
        return Halo(self.sides, min(max(0, zero_point.whole), 255) if zero_point.is_whole else 0)

    def difference(self, halo: Halo, zero_point: ZeroPoint) -> int:
        """What the numerator of a halo lacks to be that of the padding."""
        return self.numerator - zero_point.numerator(halo.level)


@dataclass(frozen=True)
class Halo:
    """What a stored image has around it: `sides` of one level."""

    sides: Sides = NO_SIDES
    level: int = 0

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> Halo:
        """The halo of an edge which is stored with these attributes."""
        halo = attrs["halo"]
        return halo if isinstance(halo, cls) else cls(halo)

    def origin(self, padding: Sides) -> list[int]:
        """The row and column at which the first window begins; the halo may be the wider one."""
        return [self.sides.top - padding.top, self.sides.left - padding.left]


NO_PADDING, NO_HALO = Padding(), Halo()
_PAIRS: Mapping[str, tuple[str, type[Padding] | type[Halo]]] = {
    "padding": ("pad_value", Padding),
    "halo": ("fill", Halo),
}
"""Attribute with the sides → the one with what they hold, and the value that both are."""


def as_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """What a Relax call stores of attributes: of one of these values both its attributes."""
    stored = dict(attrs)
    for name, (held, kind) in _PAIRS.items():
        if isinstance(value := stored.get(name), kind):
            stored[name], stored[held] = astuple(value)
    return {n: list(value) if isinstance(value, Sides) else value for n, value in stored.items()}


def from_attributes(stored: Mapping[str, Any]) -> dict[str, Any]:
    """What the attributes of a Relax call say; ValueError where sides are not four."""
    attrs = dict(stored)
    for name in _PAIRS.keys() & attrs.keys():
        (held, kind), sides = _PAIRS[name], Sides.of(attrs[name])
        attrs[name] = kind(sides, attrs.pop(held)) if held in attrs else sides
    return attrs
