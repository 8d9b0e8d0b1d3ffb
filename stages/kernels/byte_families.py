"""Families of kernels that multiply bytes: a class a family.

Fields are what the kernels of a family differ in; `name` is its method in the grammar of kernel
names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from stages.kernels.multiply_accumulate import MultiplyAccumulate
from stages.kernels.operand_storage import BYTE_BITS, BYTE_LIMIT, WeightCode

MATRIX_ROWS = 2
"""Pixels, and output channels, of matrices that one instruction on registers multiplies."""


@dataclass(frozen=True)
class Dots(MultiplyAccumulate):
    """Unsigned bytes by signed ones, which one instruction multiplies, at once or widened before.

    A register of a pixel may hold several `words`, by one of which at a time what multiplies by a
    lane of it multiplies (Arm). Where there is a `code`, it says how weights are stored, 64 at a
    time, that are bytes when they are multiplied.
    """

    group: int
    words: int = 1
    code: WeightCode | None = None
    kind: Literal["dots"] = "dots"

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
        return f"dot{self.group}{step_name(self.words)}{code_suffix(self.code)}"


@dataclass(frozen=True)
class Signed(MultiplyAccumulate):
    """Bytes, both of which are signed: levels of 8 bits less 128, which is what is stored of them
    where they are `rebased`."""

    group: int
    level_bits: int = BYTE_BITS
    words: int = 1
    rebased: bool = False

    @property
    def activation_bits(self) -> int:
        """Bits of the levels; those of fewer than 8 are signed bytes as they are."""
        return self.level_bits

    @property
    def offset(self) -> int:
        """What is taken off levels of 8 bits, so that they are signed bytes; 0 for fewer bits."""
        return BYTE_LIMIT if self.level_bits == BYTE_BITS else 0

    @property
    def kernel_offset(self) -> int:
        """`offset`, or 0 where activations are stored less it."""
        return 0 if self.rebased else self.offset

    @property
    def levels(self) -> str:
        """How names of kernels say that levels have fewer bits than a byte, else nothing."""
        return f"_a{self.level_bits}" if self.level_bits < BYTE_BITS else ""

    @property
    def step(self) -> int:
        """Words of a window that are taken at a time: all of a register of a pixel."""
        return self.words


@dataclass(frozen=True)
class SignedDots(Signed):
    """Signed bytes, by an instruction that multiplies a group of them."""

    kind: Literal["signed_dots"] = "signed_dots"

    @property
    def multiplies_by_lane(self) -> bool:
        """Whether a register holds several words of a pixel, by a lane of which it multiplies."""
        return self.words > 1

    @property
    def name(self) -> str:
        """How it multiplies, as its kernels' names say: `method` of the grammar."""
        return f"sdot{self.group}{self.levels}{step_name(self.words)}{_rebased(self)}"


@dataclass(frozen=True)
class BytePairs(Signed):
    """Signed bytes, whose products are added by two in 16 bits, and pairs of these in 32 (Arm)."""

    kind: Literal["byte_pairs"] = "byte_pairs"
    spans_rows: ClassVar[bool] = True

    @property
    def weight_limit(self) -> int:
        """The largest magnitude of a weight; two products of -128 and -128 do not fit 16 bits."""
        return BYTE_LIMIT - 1

    @property
    def multiplies_by_lane(self) -> bool:
        """Whether a register holds several words of a pixel, by a lane of which it multiplies."""
        return self.words > 1

    @property
    def loads_ahead(self) -> bool:
        """Whether it loads a step ahead: it does where a register holds several words."""
        return self.words > 1

    @property
    def name(self) -> str:
        """How it multiplies, as its kernels' names say: `method` of the grammar."""
        return f"pairs{self.group}{self.levels}{step_name(self.words)}{_rebased(self)}"


@dataclass(frozen=True)
class MatrixDots(MultiplyAccumulate):
    """Bytes of two pixels by those of two output channels, which one instruction multiplies as
    matrices (Arm); `words` as of `Dots`."""

    group: int
    words: int
    kind: Literal["matrix_dots"] = "matrix_dots"

    @property
    def pixels(self) -> int:
        """Pixels that one instruction multiplies: rows of a matrix."""
        return MATRIX_ROWS

    @property
    def step(self) -> int:
        """Words that are loaded of each pixel at a time."""
        return self.words

    @property
    def name(self) -> str:
        """How it multiplies, as its kernels' names say: `method` of the grammar."""
        return f"matrix{self.group}{step_name(self.words)}"


@dataclass(frozen=True)
class SignedMatrixDots(Signed):
    """Signed bytes of two pixels by those of two output channels, which one instruction multiplies
    as matrices (Arm)."""

    kind: Literal["signed_matrix_dots"] = "signed_matrix_dots"

    @property
    def pixels(self) -> int:
        """Pixels that one instruction multiplies: rows of a matrix."""
        return MATRIX_ROWS

    @property
    def name(self) -> str:
        """How it multiplies, as its kernels' names say: `method` of the grammar."""
        return f"smatrix{self.group}{self.levels}{step_name(self.words)}{_rebased(self)}"


@dataclass(frozen=True)
class PairedDots(MultiplyAccumulate):
    """Bytes, whose products with small weights are added by two in 16 bits on the way to 32."""

    group: int
    limit: int
    kind: Literal["paired_dots"] = "paired_dots"

    @property
    def weight_limit(self) -> int:
        """The largest magnitude of a weight; two products with larger ones do not fit 16 bits."""
        return self.limit

    @property
    def name(self) -> str:
        """How it multiplies, as its kernels' names say: `method` of the grammar."""
        return f"dot{self.group}_w{self.limit}"


@dataclass(frozen=True)
class NarrowDots(MultiplyAccumulate):
    """Small levels, added up in lanes of less than 32 bits, which are flushed in time."""

    group: int
    lane_bits: int
    level_bits: int
    limit: int
    kind: Literal["narrow_dots"] = "narrow_dots"

    @property
    def bits(self) -> int:
        """Width of the lanes that products are added up in, 8 or 16."""
        return self.lane_bits

    @property
    def activation_bits(self) -> int:
        """Bits of a level; lanes fill up sooner with more of them."""
        return self.level_bits

    @property
    def weight_limit(self) -> int:
        """The largest weight; lanes fill up sooner with larger ones."""
        return self.limit

    @property
    def name(self) -> str:
        """How it multiplies, as its kernels' names say: `method` of the grammar."""
        return f"narrow{self.lane_bits}_a{self.level_bits}_w{self.limit}"


def step_name(words: int) -> str:
    """How a name says that a step takes several words."""
    return f"_by{words}" if words > 1 else ""


def _rebased(products: Signed) -> str:
    return "_rebased" if products.rebased else ""


def code_suffix(code: WeightCode | None) -> str:
    """How a name says in what code weights are stored."""
    return f"_{code.name}" if code is not None else ""
