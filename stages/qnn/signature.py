"""Kernel signatures: everything a micro-kernel promises, and nothing about one layer's shape.

A micro-kernel computes, for `rows` neighbouring output pixels and `channels` output channels, the
sum over a window of terms `coefficient * popcount(op(activation plane, weight plane))` (family
`popcount`) or of 8-bit products (family `mac8`). The layer's integers follow from its raw sums as
`scale * raw + bias`, where the bias per channel (and border class) is folded at build time.

A signature's name is a grammar:

    name   := family "_" plan "_" tile "_" flush "_" isa
    family := "popcount" | "mac8"
    plan   := op "_a" planes "w" planes ["s"]      op := "and" | "xor"; "s": two's complement
            | "dot" group                          8-bit products, `group` channels per step
    tile   := rows "x" channels
    flush  := "window" | "row" | "chunk" | "none"  where byte counters are emptied
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WORD_BITS = 32
"""A lane: 32 packed channels of one plane, or four 8-bit channels."""
BLOCK = 32
"""Output channels a kernel finishes together: one packed word of its consumer."""
ALIGNMENT = 64

Family = Literal["popcount", "mac8"]
Flush = Literal["window", "row", "chunk", "none"]
Encoding = Literal["unipolar", "bipolar", "signed"]
"""Stored weight levels w of m bits mean w, 2w - 2^m + 1, or w in two's complement."""


@dataclass(frozen=True)
class Term:
    """`coefficient * popcount(op(activation plane, weight plane))`."""

    coefficient: int
    op: Literal["and", "xor"]
    activation_plane: int
    weight_plane: int


@dataclass(frozen=True)
class Correction:
    """How raw sums become products of levels: `scale * raw + activation_sum * sum(a) + v(w)`.

    `v` depends on the weights alone, so that the bias holds it. No plan of the fixed family needs
    sums over activations: `activation_sum` is 0 throughout.
    """

    scale: int
    activation_sum: int = 0


@dataclass(frozen=True)
class KernelSignature:
    """The contract of one micro-kernel; equal signatures share one body."""

    family: Family
    isa: str
    terms: tuple[Term, ...]
    activation_planes: int
    weight_planes: int
    rows: int
    channels: int
    flush: Flush
    flush_period: int
    dot_group: int = 0
    layout: str = "planes"
    """Activations [plane][y][x][word], weights [channel block][plane][ky, kx, word][channel]."""
    weights: Encoding = "unipolar"
    """What the bits of popcount weights mean; a term plan is proved against it."""

    def __post_init__(self) -> None:
        if BLOCK % self.channels:
            raise ValueError(f"a tile of {self.channels} channels does not divide {BLOCK}")
        if self.family == "popcount" and not self.terms:
            raise ValueError("a popcount signature needs terms")

    @property
    def channels_per_word(self) -> int:
        """Channels in one 32-bit word: K is padded to a multiple of it."""
        return WORD_BITS if self.family == "popcount" else 4

    @property
    def correction(self) -> Correction:
        """What the encoding of the weights leaves to do behind the raw sums."""
        bipolar = self.family == "popcount" and self.weights == "bipolar"
        return Correction(-1 if bipolar else 1)

    @property
    def plan(self) -> str:
        """The term plan's name."""
        if self.family == "mac8":
            return f"dot{self.dot_group}"
        signed = "s" if self.weights == "signed" else ""
        return f"{self.terms[0].op}_a{self.activation_planes}w{self.weight_planes}{signed}"

    @property
    def name(self) -> str:
        """The kernel's name, a C identifier."""
        tile = f"{self.rows}x{self.channels}"
        return f"{self.family}_{self.plan}_{tile}_{self.flush}_{self.isa}"


def popcount_terms(
    op: Literal["and", "xor"], activation_planes: int, weight_planes: int, signed: bool
) -> tuple[Term, ...]:
    """One popcount per bit pair; the top weight plane of two's complement counts negatively.

    `and`: a * w = sum 2^(i+j) a_i w_j. `xor`: a * (2w - 1) = w - (a ^ w) for bits, so bipolar
    weights need the exclusive or alone, with a term per channel that the bias holds.
    """
    return tuple(
        Term((-1 if signed and j == weight_planes - 1 else 1) << (i + j), op, i, j)
        for i in range(activation_planes)
        for j in range(weight_planes)
    )
