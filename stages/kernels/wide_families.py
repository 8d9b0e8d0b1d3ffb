"""Families of kernels that multiply what is wider than bytes, or tiles: a class a family.

Fields are what the kernels of a family differ in; `name` is its method in the grammar of kernel
names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from stages.kernels.byte_families import Dots, code_suffix, step_name
from stages.kernels.multiply_accumulate import Family, MultiplyAccumulate
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


@dataclass(frozen=True)
class WideDots(MultiplyAccumulate):
    """Bytes as integers of 16 bits, which they are made beforehand; `words` as of `Dots`."""

    group: int
    limit: int = BYTE_LIMIT
    words: int = 1
    kind: Literal["wide_dots"] = "wide_dots"
    is_widened: ClassVar[bool] = True

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
    def step(self) -> int:
        """All words of a register of a pixel."""
        return self.words

    @property
    def multiplies_by_lane(self) -> bool:
        """Where an instruction multiplies single integers of 16 bits."""
        return self.element == "int16" and self.group == 1

    @property
    def name(self) -> str:
        """How it multiplies, as its kernels' names say: `method` of the grammar."""
        limited = f"_w{self.limit}" if self.limit != BYTE_LIMIT else ""
        return f"wide_dot{self.group}{limited}{step_name(self.words)}"


@dataclass(frozen=True)
class TransformedDots(MultiplyAccumulate):
    """What transforms make of pixels and weights: signed integers of 16 bits, or floats
    (`stages.kernels.winograd_transforms`); `words` as of `Dots`."""

    group: int
    of: Literal["int16", "float32"] = "int16"
    words: int = 1
    kind: Literal["transformed_dots"] = "transformed_dots"
    is_transformed: ClassVar[bool] = True

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
    def step(self) -> int:
        """All words of a register of a pixel."""
        return self.words

    @property
    def multiplies_by_lane(self) -> bool:
        """Where an instruction multiplies single integers of 16 bits."""
        return self.element == "int16" and self.group == 1

    @property
    def name(self) -> str:
        """How it multiplies, as its kernels' names say: `method` of the grammar."""
        return f"winograd_dot{self.group}{step_name(self.words)}"


@dataclass(frozen=True)
class FloatDots(MultiplyAccumulate):
    """Floats, one channel a lane, or two of 16 bits.

    Those of float16 are added up in lanes of their own width, which are flushed into float32: two
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
    def step(self) -> int:
        """All words of a register of a pixel."""
        return self.words

    @property
    def multiplies_by_lane(self) -> bool:
        """Where a register holds several words."""
        return self.words > 1

    @property
    def name(self) -> str:
        """How it multiplies, as its kernels' names say: `method` of the grammar."""
        return f"dot{self.group}{step_name(self.words)}"


@dataclass(frozen=True)
class TileDots(MultiplyAccumulate):
    """Matrices in tiles (AMX), so many `words` of a window at a time; `code` as of `Dots`."""

    group: int
    words: int
    of: TileElement = "int8"
    code: WeightCode | None = None
    kind: Literal["tile_dots"] = "tile_dots"
    is_tiled: ClassVar[bool] = True

    @property
    def element(self) -> Element:
        """Of both matrices."""
        return self.of

    @property
    def fallback(self) -> Dots | FloatDots:
        """The same products of the same weights by vectors."""
        if self.of == "bfloat16":
            return FloatDots(self.group, "bfloat16")
        return Dots(self.group, code=self.code)

    @property
    def step(self) -> int:
        """As many words as a row of a data register holds."""
        return self.words

    @property
    def name(self) -> str:
        """How it multiplies, as its kernels' names say: `method` of the grammar."""
        return f"tile{self.words}{code_suffix(self.code)}"
