"""Families of kernels that multiply: how products are accumulated, a class for each.

`group` neighbouring channels go to one lane of 32 bits in one step. A family has as fields what its
kernels differ in; what all of them have in common is a property.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from stages.kernels.operand_storage import (
    BYTE_BITS,
    BYTE_LIMIT,
    WORD_BITS,
    WORD_LIMIT,
    Element,
    WeightCode,
)

TileElement = Literal["int8", "bfloat16"]
"""What matrices in tiles may be of."""
Family = Literal["popcount", "lookup", "mac8", "mac16", "macf32", "macbf16", "macf16"]
_FAMILIES: dict[Element, Family] = {
    "int8": "mac8",
    "int16": "mac16",
    "float32": "macf32",
    "bfloat16": "macbf16",
    "float16": "macf16",
}
_PER_WORD: dict[Element, int] = {
    "int8": 4,
    "int16": 2,
    "float32": 1,
    "bfloat16": 2,
    "float16": 2,
}
MATRIX_ROWS = 2
"""Pixels, and output channels, of matrices that one instruction on registers multiplies."""


class _Products:
    """What every family says of itself; most multiply unsigned bytes by signed ones."""

    group: int

    @property
    def bits(self) -> int:
        """Width of the lanes that products are added up in; 32 needs no flush."""
        return WORD_BITS

    @property
    def activation_bits(self) -> int:
        """Bits of the levels that it can multiply."""
        return BYTE_BITS

    @property
    def weight_limit(self) -> int:
        """The largest magnitude of a weight that it can multiply by."""
        return BYTE_LIMIT

    @property
    def element(self) -> Element:
        """What weights are."""
        return "int8"

    @property
    def offset(self) -> int:
        """What is taken off activations before they are multiplied."""
        return 0

    @property
    def takes_off(self) -> int:
        """What of that a kernel takes off itself: all, but where it is off what is stored."""
        return self.offset

    @property
    def pixels(self) -> int:
        """Pixels of a tile that one instruction multiplies."""
        return 1

    @property
    def channels_per_word(self) -> int:
        """Channels whose weights are in one word."""
        return _PER_WORD[self.element]

    @property
    def family(self) -> Family:
        """How the name of a kernel begins."""
        return _FAMILIES[self.element]


@dataclass(frozen=True)
class Dots(_Products):
    """Bytes, which one instruction multiplies, or that are widened on the way to it.

    A register of a pixel may hold several `words`, by one of which at a time what multiplies by a
    lane of it multiplies (Arm). Where there is a `code`, it says how weights are stored, 64 at a
    time, that are bytes when they are multiplied.
    """

    group: int
    words: int = 1
    code: WeightCode | None = None
    kind: Literal["dots"] = "dots"

    @property
    def name(self) -> str:
        """The method's name in the grammar."""
        return f"dot{self.group}{_step(self.words)}{_stored(self.code)}"


@dataclass(frozen=True)
class Signed(_Products):
    """Bytes, both of which are signed: levels of 8 bits less 128, which is what is stored of them
    where they are `rebased`."""

    group: int
    level_bits: int = BYTE_BITS
    words: int = 1
    rebased: bool = False

    @property
    def activation_bits(self) -> int:
        """Levels of fewer bits are signed bytes as they are."""
        return self.level_bits

    @property
    def offset(self) -> int:
        """What makes all levels of 8 bits signed bytes."""
        return BYTE_LIMIT if self.level_bits == BYTE_BITS else 0

    @property
    def takes_off(self) -> int:
        """Nothing of what is rebased."""
        return 0 if self.rebased else self.offset

    @property
    def levels(self) -> str:
        """How the method's name in the grammar says how many bits levels have."""
        return f"_a{self.level_bits}" if self.level_bits < BYTE_BITS else ""


@dataclass(frozen=True)
class SignedDots(Signed):
    """Signed bytes, by an instruction that multiplies a group of them."""

    kind: Literal["signed_dots"] = "signed_dots"

    @property
    def name(self) -> str:
        """The method's name in the grammar."""
        return f"sdot{self.group}{self.levels}{_step(self.words)}{_rebased(self)}"


@dataclass(frozen=True)
class BytePairs(Signed):
    """Signed bytes, whose products are added by two in 16 bits, and pairs of these in 32 (Arm)."""

    kind: Literal["byte_pairs"] = "byte_pairs"

    @property
    def weight_limit(self) -> int:
        """Two products of -128 and -128 would not fit."""
        return BYTE_LIMIT - 1

    @property
    def name(self) -> str:
        """The method's name in the grammar."""
        return f"pairs{self.group}{self.levels}{_step(self.words)}{_rebased(self)}"


@dataclass(frozen=True)
class MatrixDots(_Products):
    """Bytes of two pixels by those of two output channels, which one instruction multiplies as
    matrices (Arm); `words` as of `Dots`."""

    group: int
    words: int
    kind: Literal["matrix_dots"] = "matrix_dots"

    @property
    def pixels(self) -> int:
        """Rows of a matrix."""
        return MATRIX_ROWS

    @property
    def name(self) -> str:
        """The method's name in the grammar."""
        return f"matrix{self.group}{_step(self.words)}"


@dataclass(frozen=True)
class SignedMatrixDots(Signed):
    """The same of signed bytes."""

    kind: Literal["signed_matrix_dots"] = "signed_matrix_dots"

    @property
    def pixels(self) -> int:
        """Rows of a matrix."""
        return MATRIX_ROWS

    @property
    def name(self) -> str:
        """The method's name in the grammar."""
        return f"smatrix{self.group}{self.levels}{_step(self.words)}{_rebased(self)}"


@dataclass(frozen=True)
class PairedDots(_Products):
    """Bytes, whose products with small weights are added by two in 16 bits on the way to 32."""

    group: int
    limit: int
    kind: Literal["paired_dots"] = "paired_dots"

    @property
    def weight_limit(self) -> int:
        """Two products with larger weights would not fit."""
        return self.limit

    @property
    def name(self) -> str:
        """The method's name in the grammar."""
        return f"dot{self.group}_w{self.limit}"


@dataclass(frozen=True)
class WideDots(_Products):
    """Bytes as integers of 16 bits, which they are made beforehand; `words` as of `Dots`."""

    group: int
    limit: int = BYTE_LIMIT
    words: int = 1
    kind: Literal["wide_dots"] = "wide_dots"

    @property
    def weight_limit(self) -> int:
        """That of a byte, or of one less another."""
        return self.limit

    @property
    def element(self) -> Element:
        """Weights are widened when they are packed."""
        return "int16"

    @property
    def family(self) -> Family:
        """It multiplies bytes."""
        return "mac8"

    @property
    def name(self) -> str:
        """The method's name in the grammar."""
        limited = f"_w{self.limit}" if self.limit != BYTE_LIMIT else ""
        return f"wide_dot{self.group}{limited}{_step(self.words)}"


@dataclass(frozen=True)
class NarrowDots(_Products):
    """Small levels, added up in lanes of less than 32 bits, which are emptied in time."""

    group: int
    lane_bits: int
    level_bits: int
    limit: int
    kind: Literal["narrow_dots"] = "narrow_dots"

    @property
    def bits(self) -> int:
        """8 or 16."""
        return self.lane_bits

    @property
    def activation_bits(self) -> int:
        """How soon lanes are full depends on these."""
        return self.level_bits

    @property
    def weight_limit(self) -> int:
        """And on these."""
        return self.limit

    @property
    def name(self) -> str:
        """The method's name in the grammar."""
        return f"narrow{self.lane_bits}_a{self.level_bits}_w{self.limit}"


@dataclass(frozen=True)
class TransformedDots(_Products):
    """What transforms make of pixels and weights: signed integers of 16 bits, or floats
    (`stages.kernels.winograd_transforms`); `words` as of `Dots`."""

    group: int
    of: Literal["int16", "float32"] = "int16"
    words: int = 1
    kind: Literal["transformed_dots"] = "transformed_dots"

    @property
    def activation_bits(self) -> int:
        """Of integers."""
        return 16 if self.of == "int16" else BYTE_BITS

    @property
    def weight_limit(self) -> int:
        """Of integers."""
        return WORD_LIMIT if self.of == "int16" else BYTE_LIMIT

    @property
    def element(self) -> Element:
        """Of pixels as well."""
        return self.of

    @property
    def name(self) -> str:
        """The method's name in the grammar."""
        return f"winograd_dot{self.group}{_step(self.words)}"


@dataclass(frozen=True)
class TileDots(_Products):
    """Matrices in tiles (AMX), so many `words` of a window at a time; `code` as of `Dots`."""

    group: int
    words: int
    of: TileElement = "int8"
    code: WeightCode | None = None
    kind: Literal["tile_dots"] = "tile_dots"

    @property
    def element(self) -> Element:
        """Of both matrices."""
        return self.of

    @property
    def by_vectors(self) -> Dots | FloatDots:
        """The same products of the same weights by vectors."""
        if self.of == "bfloat16":
            return FloatDots(self.group, "bfloat16")
        return Dots(self.group, code=self.code)

    @property
    def name(self) -> str:
        """The method's name in the grammar."""
        return f"tile{self.words}{_stored(self.code)}"


@dataclass(frozen=True)
class FloatDots(_Products):
    """Floats, one channel a lane, or two of 16 bits.

    Those of float16 are added up in lanes of their own width, which are emptied into float32: two
    an output channel; or, by a lane of a register of several `words` of a pixel, one in each of two
    registers.
    """

    group: int
    of: Literal["float32", "bfloat16", "float16"] = "float32"
    words: int = 1
    kind: Literal["float_dots"] = "float_dots"

    @property
    def bits(self) -> int:
        """16 of float16."""
        return WORD_BITS // 2 if self.of == "float16" else WORD_BITS

    @property
    def element(self) -> Element:
        """Of both factors."""
        return self.of

    @property
    def name(self) -> str:
        """The method's name in the grammar."""
        return f"dot{self.group}{_step(self.words)}"


def _step(words: int) -> str:
    return f"_by{words}" if words > 1 else ""


def _rebased(products: Signed) -> str:
    return "_rebased" if products.rebased else ""


def _stored(code: WeightCode | None) -> str:
    return f"_{code.name}" if code is not None else ""


Products = Annotated[
    Dots
    | SignedDots
    | BytePairs
    | MatrixDots
    | SignedMatrixDots
    | PairedDots
    | WideDots
    | NarrowDots
    | TransformedDots
    | TileDots
    | FloatDots,
    Field(discriminator="kind"),
]
"""A way to multiply and add up."""
