"""Kernel signatures: everything a micro-kernel promises, and nothing about one layer's shape.

A micro-kernel computes, for `rows` neighbouring output pixels and `channels` output channels, the
sum over a window of a term plan (family `popcount`, see `terms.py`), of entries of LUTs (family
`lookup`, see `lut.py`), of 8-bit products (family `mac8`), which may have been widened to 16 bits
before (see `widened_windows.py`), of 16-bit ones that transformed pixels and weights have (`mac16`,
see `winograd_transforms.py`) or of products of floats (`macf32`, which may be of transformed ones
too, `macbf16` and `macf16`).
The layer's numbers follow from its raw sums as `scale * raw + bias`, where the bias per channel
(and border class) is folded at build time.

A signature's name is a grammar:

    name    := family "_" tile "_" flush "_" isa
    family  := "popcount_" plan | "lookup_" problem | macs "_" method
    macs    := "mac8" | "mac16" | "macf32" | "macbf16" | "macf16"
    plan    := kind "_a" bits planes "_w" bits planes "_" encoding ["_of" planes sums] [packing]
    packing := [step] ["_word" bits] ["_inner" words]    of packed words that do not have 32, and of
                                                         planes that are not outermost
    kind    := ("and" | "xor" | "choose_a" | "choose_w" | "mix") terms
    planes  := ("x" table)*             the truth table of each plane over levels, hexadecimal
    sums    := ("s" value ("_" value)*)*         "m" for a minus
    problem := "a" bits "w" bits "_" encoding [step]
    step    := ("_by" | "_coupled") words
    method  := ("dot" | "wide_dot") group ["_w" limit] [step] | "winograd_dot" group [step]
             | ("sdot" | "pairs" | "smatrix") group ["_a" bits] [step] ["_rebased"]
             | "matrix" group step
             | ("dot" group | "tile" words) ["_" ("odd" | "signed") bits]
             | "narrow" bits "_a" bits "_w" limit
    tile    := rows "x" channels
    flush   := "window" | "row" | "chunk" | "none"       where narrow counters are flushed

`of` says what the activations' tensor holds where that is more than the plan reads.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Literal

from hw.isa import tile_registers
from stages.kernels.families import (
    Products,
    Signed,
    TileDots,
)
from stages.kernels.lut import Lut
from stages.kernels.operand_storage import (
    WORD_BITS,
    Stored,
)
from stages.kernels.signature_traits import SignatureTraits
from stages.kernels.terms import TermPlan

BLOCK = 32
"""Output channels a kernel finishes together: one packed word of its consumer."""
ALIGNMENT = 64
"""Bytes that addresses are a multiple of: those of every buffer and constant, of what is collected
of each image, and of inputs and outputs that kernels use in place."""
TILES_BEGIN, TILES_END = "bk_tiles_begin", "bk_tiles_end"
"""Functions without operands around a thread's calls of kernels of tiles: they shape the registers,
and give them up."""
RING = 4
RING_BYTES = RING * tile_registers.ROWS * tile_registers.ROW_BYTES
"""Steps whose weights are bytes at a time, where kernels of tiles make these of fewer bits; and the
room for them, which is handed over where other kernels are told what to fetch."""
COUPLE = 2
"""Words that are counted as one, where they are (`coupling.py`)."""
FALLBACK_ROWS = 14
"""Pixels that 28 registers of 16 lanes can add up for 32 channels; four are left."""

Flush = Literal["window", "row", "chunk", "none"]


@dataclass(frozen=True)
class KernelSignature(SignatureTraits):
    """The contract of one micro-kernel; equal signatures share one body."""

    isa: str
    plan: TermPlan | None
    """The term plan of a popcount kernel."""
    products: Products | None
    """How a kernel of products multiplies, and adds products up; None for other kernels."""
    rows: int
    channels: int
    flush: Flush
    flush_period: int
    """Words after which narrow counters must be flushed; 0 if never."""
    stored: Stored | None = None
    """What the activations' tensor holds, of which the plan reads its own planes."""
    lut: Lut | None = None
    """The LUT of a look-up kernel."""
    words: int = 1
    """Words of a window that a popcount kernel takes at a time."""
    coupled: bool = False
    """Whether a popcount kernel counts the bits of two words as one (`coupling.py`); else
    it adds up the bits of those that it takes at a time before it counts."""
    word_bits: int = WORD_BITS
    """Bits of a channel that a popcount kernel has side by side in a register: the packed word of
    Cowan et al. (CGO 2020, section 3). Where it fills a register, this has no other channel, so
    that the reduction axis lies in lanes."""

    def __post_init__(self) -> None:
        if BLOCK % self.channels:
            raise ValueError(f"a tile of {self.channels} channels does not divide {BLOCK}")
        if sum(way is not None for way in (self.plan, self.lut, self.products)) != 1:
            raise ValueError("a signature has a term plan, a LUT, or a way to add up products")
        if self.rows % self.pixels:
            raise ValueError(f"{self.rows} pixels are not taken {self.pixels} at a time")
        if self.words * WORD_BITS % self.word_bits or (
            self.coupled and self.words_per_step % COUPLE
        ):
            raise ValueError(f"{self.words} words are not whole words, or couples of them")
        if self.plan is not None and self.stored is None:
            object.__setattr__(self, "stored", stored_by(self.plan))

    @property
    def method(self) -> Hashable:
        """All that decides what is added up and how, for comparing; everything but the tile, the
        flush and the instruction set."""
        packing = self.words, self.coupled, self.word_bits, self.inner
        return *packing, self.plan, self.lut, self.products

    @property
    def counters_are_sums(self) -> bool:
        """Whether what it counts in its inner loop are the sums, so that it stores each once."""
        return self.products is not None and self.flush == "none"

    @property
    def is_direct(self) -> bool:
        """Whether its sums of products can stay in registers until they are results, so that a part
        of a block of channels is left out if no output is in it."""
        return self.counters_are_sums and not self.is_tiled and not self.is_transformed

    @property
    def keeps_sums_in_registers(self) -> bool:
        """Whether its sums can stay in registers until they are results: those of bits as well,
        whose counters are never flushed."""
        return self.is_direct or (self.plan is not None and self.flush == "none")

    @property
    def preloads_bias(self) -> bool:
        """Whether its sums can begin with integers instead of 0."""
        return self.counters_are_sums and self.family == "mac8"

    @property
    def preload_name(self) -> str:
        """The name of what computes the same, but sums that begin with something."""
        return f"{self.name}_from"

    @property
    def covers_layer(self) -> bool:
        """Whether a tile of it is all pixels of a layer, so that weights are read once."""
        return self.is_tiled and self.channels < BLOCK

    @property
    def pixel_registers(self) -> int:
        """Registers of pixels that matrix tiles are made of."""
        return -(-self.rows // tile_registers.ROWS)

    @property
    def products_a_step(self) -> int:
        """Products of matrix tiles in a step: registers of pixels times registers of channels."""
        return self.pixel_registers * (self.channels // tile_registers.COLUMNS)

    @property
    def as_rebased(self) -> KernelSignature:
        """This kernel of levels of 8 bits, on activations that are rebased."""
        assert isinstance(self.products, Signed) and self.offset
        return replace(self, products=replace(self.products, rebased=True))

    def flushed(self, flush: Flush) -> KernelSignature:
        """This kernel with its counters flushed elsewhere."""
        return replace(self, flush=flush)

    def reading(self, stored: Stored) -> KernelSignature:
        """This kernel on a tensor that holds more."""
        return replace(self, stored=stored)

    @property
    def fallback(self) -> KernelSignature | None:
        """For a kernel of tiles, one of vectors on the same weights, where tiles are refused.

        Its tile, as even a part of the other's as can be, fits the registers of any AVX-512.
        """
        if not isinstance(self.products, TileDots):
            return None
        parts = -(-self.rows // FALLBACK_ROWS)
        return replace(self, products=self.products.fallback, rows=-(-self.rows // parts))

    @property
    def alone(self) -> KernelSignature:
        """This kernel on a tensor that holds what it reads and no more."""
        return self if self.plan is None else self.reading(stored_by(self.plan, self.inner))

    @property
    def name(self) -> str:
        """The kernel's name, a C identifier; different signatures have different names."""
        tile = f"{self.rows}x{self.channels}_{self.flush}_{self.isa}"
        if self.products is not None:
            return f"{self.family}_{self.products.name}_{tile}"
        if self.lut is not None:
            return f"lookup_{self.lut.name}_{tile}"
        assert self.plan is not None and self.stored is not None
        among = "" if self == self.alone else f"_of{_tables(self.stored)}"
        way = "coupled" if self.coupled else "by"
        several = f"_{way}{self.words}" if self.coupled or self.words > 1 else ""
        packed = f"_word{self.word_bits}" if self.word_bits != WORD_BITS else ""
        packed += f"_inner{self.inner}" if self.inner else ""
        return f"popcount_{self.plan.name}{among}{several}{packed}_{tile}"


def stored_by(plan: TermPlan, inner: int = 0) -> Stored:
    """What a plan alone wants stored of its activations, planes outermost or inside a pixel."""
    sums = (plan.activation_sum,) if plan.activation_sum else ()
    return Stored(plan.activation_bits, plan.activation_planes, sums, inner)


def _tables(stored: Stored) -> str:
    sums = ("s" + "_".join(f"{x}".replace("-", "m") for x in sums) for sums in stored.sums)
    return "".join(f"x{table:x}" for table in stored.planes) + "".join(sums)
