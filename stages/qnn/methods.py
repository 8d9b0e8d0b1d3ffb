"""What a micro-kernel multiplies: products of bytes or floats, or bit planes as they are stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from hw.isa.expanding import WIDTHS, code_name
from stages.options import Encoding
from stages.qnn.terms import weight_values

WORD_BITS = 32
"""A lane: 32 packed channels of one plane, or four 8-bit channels."""
BYTE_BITS = 8
WORD_BYTES = WORD_BITS // BYTE_BITS
BYTE_LIMIT = 128
SPAN_LIMIT = 1 << 8
WORD_LIMIT = 1 << 15
"""The largest magnitudes of a signed byte, of a byte less another (less the zero point of weights
that use all of it), and of 16 bits."""
Element = Literal["int8", "int16", "float32", "bfloat16"]
"""What weights of products are."""
_PER_WORD: dict[Element, int] = {"int8": 4, "int16": 2, "float32": 1, "bfloat16": 2}


@dataclass(frozen=True)
class WeightCode:
    """Weights as they are stored where a kernel makes bytes of fewer bits.

    In two's complement of `bits` bits; where all are odd, (w - 1) / 2 is.
    """

    bits: int
    is_odd: bool

    @property
    def name(self) -> str:
        """For example `odd1`."""
        return code_name(self.bits, self.is_odd)

    def holds(self, weights: np.ndarray[Any, Any]) -> bool:
        """Whether it has a number for each of these integers."""
        return np.array_equal(self.weights(self.numbers(weights)), weights)

    def numbers(self, weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What is stored of weights, uint8: the lowest bits of a number."""
        wide = weights.astype(np.int32)
        return ((wide >> self.is_odd) & ((1 << self.bits) - 1)).astype(np.uint8)

    def weights(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What stored numbers mean, int32."""
        signed = weight_values("signed", self.bits).astype(np.int32)[numbers]
        return 2 * signed + 1 if self.is_odd else signed


def code_for(bits: int, encoding: Encoding) -> WeightCode | None:
    """The smallest code of all weights of so many bits; None where a byte is no larger."""
    needed = bits + (encoding == "unipolar")
    width = next((width for width in WIDTHS if width >= needed), None)
    return None if width is None else WeightCode(width, encoding == "bipolar")


@dataclass(frozen=True)
class Products:
    """How products of bytes, or of floats, are accumulated.

    `group` neighbouring channels go to one lane in one step; `bits` is the width of the lane they
    are added up in (32: no flush needed). Narrow lanes, and pairs that are added up in 16 bits on
    the way to wide ones, rely on `activation_bits` and on no weight being larger than
    `weight_limit`. Kernels of matrix tiles (AMX) multiply `tile` words at a time;
    0 is a kernel of vectors. Floats are multiplied one channel a lane, bfloat16 two. Integers of 16
    bits, signed ones, are what transforms make of pixels and weights, or bytes that were widened;
    floats `are_transformed` too (`stages.qnn.winograd`). Where there is a `code`, it says
    how weights are stored, 64 at a time, that are bytes when they are multiplied. Bytes of
    activations are unsigned unless `is_signed`. A register of a pixel may hold several `words`, by
    one of which at a time what multiplies by a lane of it multiplies (Arm).
    """

    group: int
    bits: int = 32
    activation_bits: int = 8
    weight_limit: int = BYTE_LIMIT
    tile: int = 0
    element: Element = "int8"
    are_transformed: bool = False
    code: WeightCode | None = None
    is_signed: bool = False
    words: int = 1

    @property
    def offset(self) -> int:
        """What is taken off activations before they are multiplied: 0, or what makes all levels of
        8 bits signed bytes."""
        return BYTE_LIMIT if self.is_signed and self.activation_bits == BYTE_BITS else 0

    @property
    def channels_per_word(self) -> int:
        """Channels whose weights are in one word."""
        return _PER_WORD[self.element]

    @property
    def is_widened(self) -> bool:
        """Whether it multiplies bytes as integers of 16 bits, which they are made beforehand."""
        return self.element == "int16" and not self.are_transformed

    @property
    def is_paired(self) -> bool:
        """Whether sums of two products, of small weights, are taken in 16 bits before 32."""
        return self.bits == 32 and self.weight_limit < BYTE_LIMIT

    @property
    def name(self) -> str:
        """The method's name in the grammar."""
        if self.code is not None:
            return f"{replace(self, code=None).name}_{self.code.name}"
        if self.tile:
            return f"tile{self.tile}"
        several = f"_by{self.words}" if self.words > 1 else ""
        if self.are_transformed:
            return f"winograd_dot{self.group}{several}"
        if self.bits == 32:
            kind = "wide_dot" if self.is_widened else "dot"
            limited = self.weight_limit != BYTE_LIMIT
            narrowed = self.is_signed and self.activation_bits < BYTE_BITS
            return (
                f"{'s' * self.is_signed}{kind}{self.group}"
                + (f"_a{self.activation_bits}" if narrowed else "")
                + (f"_w{self.weight_limit}" if limited else "")
                + several
            )
        return f"narrow{self.bits}_a{self.activation_bits}_w{self.weight_limit}"


@dataclass(frozen=True)
class Stored:
    """What the activations' tensor holds per pixel: words of bit planes, then words of sums.

    A plane is a truth table over levels; a word of sums adds up `sums[level]` over its channels.
    """

    bits: int
    planes: tuple[int, ...]
    sums: tuple[tuple[int, ...], ...] = ()

    @property
    def words(self) -> int:
        """Words per 32 channels: one a plane, one a sum."""
        return len(self.planes) + len(self.sums)

    def joined(self, other: Stored) -> Stored:
        """What serves the readers of both."""
        if self.bits != other.bits:
            raise ValueError(f"{self.bits} and {other.bits} bits cannot be stored together")
        planes = (*self.planes, *(p for p in other.planes if p not in self.planes))
        sums = (*self.sums, *(s for s in other.sums if s not in self.sums))
        return Stored(self.bits, planes, sums)
