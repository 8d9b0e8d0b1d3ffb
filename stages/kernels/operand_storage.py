"""How the operands of a micro-kernel are stored: bytes, floats, bit planes, codes of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hw.isa.gfni import WIDTHS, code_name
from stages.kernels.terms import weight_values
from stages.layer_options import Encoding

WORD_BITS = 32
"""A lane: 32 packed channels of one plane, or four 8-bit channels."""
BYTE_BITS = 8
WORD_BYTES = WORD_BITS // BYTE_BITS
BYTE_LIMIT = 128
SPAN_LIMIT = 1 << 8
WORD_LIMIT = 1 << 15
"""The largest magnitudes of a signed byte, of a byte less another (less the zero point of weights
that use all of it), and of 16 bits."""
Element = Literal["int8", "int16", "float32", "bfloat16", "float16"]
"""What weights of products are."""
FLOAT_ELEMENTS: tuple[Element, ...] = ("float32", "bfloat16", "float16")
"""The elements that are floats."""


@dataclass(frozen=True)
class WeightCode:
    """Weights as they are stored where a kernel makes bytes of fewer bits.

    In two's complement of `bits` bits; where all are odd, (w - 1) / 2 is.
    """

    bits: int
    is_odd: bool

    @property
    def name(self) -> str:
        """The code's name in names of kernels, for example `odd1`."""
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
class Stored:
    """What the activations' tensor holds per pixel: words of bit planes, then words of sums.

    A plane is a truth table over levels; a word of sums adds up `sums[level]` over its channels.
    """

    bits: int
    planes: tuple[int, ...]
    sums: tuple[tuple[int, ...], ...] = ()
    inner: int = 0
    """Words of a plane, or of sums, that lie together inside a pixel, before those of the next one
    (the bit axis of Cowan et al., CGO 2020, section 3); 0 where planes are the outermost axis."""

    def __post_init__(self) -> None:
        if self.words == 1:
            object.__setattr__(self, "inner", 0)

    @property
    def words(self) -> int:
        """Words per 32 channels: one a plane, one a sum."""
        return len(self.planes) + len(self.sums)

    def joined(self, other: Stored) -> Stored:
        """What serves the readers of both: planes are outermost unless both want them inside."""
        if self.bits != other.bits:
            raise ValueError(f"{self.bits} and {other.bits} bits cannot be stored together")
        planes = (*self.planes, *(p for p in other.planes if p not in self.planes))
        sums = (*self.sums, *(s for s in other.sums if s not in self.sums))
        inner = self.inner if self.inner == other.inner else 0
        return Stored(self.bits, planes, sums, inner)
