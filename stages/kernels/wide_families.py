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
        """The largest magnitude of a weight: that of a byte, or of one byte less another."""
        return self.limit

    @property
    def element(self) -> Element:
        """What weights are: integers of 16 bits, since they are widened when they are packed."""
        return "int16"

    @property
    def family(self) -> Family:
        """How names of its kernels begin: they are named for bytes, which they multiply."""
        return "mac8"

    @property
    def step(self) -> int:
        """Words of a window that are taken at a time: all of a register of a pixel."""
        return self.words

    @property
    def multiplies_by_lane(self) -> bool:
        """Whether an instruction multiplies single integers of 16 bits, by one lane."""
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
        """Bits of activations: 16 of transformed integers; a byte stands for floats."""
        return 16 if self.of == "int16" else BYTE_BITS

    @property
    def weight_limit(self) -> int:
        """The largest magnitude of a transformed integer weight; a byte's stands for floats."""
        return WORD_LIMIT if self.of == "int16" else BYTE_LIMIT

    @property
    def element(self) -> Element:
        """What transformed weights are, and transformed pixels."""
        return self.of

    @property
    def step(self) -> int:
        """Words of a window that are taken at a time: all of a register of a pixel."""
        return self.words

    @property
    def multiplies_by_lane(self) -> bool:
        """Whether an instruction multiplies single integers of 16 bits, by one lane."""
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
        """Width of the lanes that products are added up in: 16 for float16, else 32."""
        return WORD_BITS // 2 if self.of == "float16" else WORD_BITS

    @property
    def element(self) -> Element:
        """What weights are, and activations."""
        return self.of

    @property
    def step(self) -> int:
        """Words of a window that are taken at a time: all of a register of a pixel."""
        return self.words

    @property
    def multiplies_by_lane(self) -> bool:
        """Whether a register holds several words of a pixel, by a lane of which it multiplies."""
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
        """What both matrices are of."""
        return self.of

    @property
    def fallback(self) -> Dots | FloatDots:
        """The family that computes equal products of equal weights by vectors."""
        if self.of == "bfloat16":
            return FloatDots(self.group, "bfloat16")
        return Dots(self.group, code=self.code)

    @property
    def step(self) -> int:
        """Words of a window that are taken at a time: as many as a row of a data register holds."""
        return self.words

    @property
    def name(self) -> str:
        """How it multiplies, as its kernels' names say: `method` of the grammar."""
        return f"tile{self.words}{code_suffix(self.code)}"
