"""Kernel signatures: everything a micro-kernel promises, and nothing about one layer's shape.

A micro-kernel computes, for `rows` neighbouring output pixels and `channels` output channels, the
sum over a window of a term plan (family `popcount`, see `terms.py`), of entries of tables
(family `lookup`, see `tables.py`), of 8-bit products (family `mac8`), which may have been
widened to 16 bits before (see `widening.py`), of 16-bit ones that transformed pixels and
weights have (`mac16`, see `winograd.py`) or of products of floats (`macf32`, which may be
of transformed ones too, `macbf16` and `macf16`).
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
    flush   := "window" | "row" | "chunk" | "none"       where narrow counters are emptied

`of` says what the activations' tensor holds where that is more than the plan reads.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from hw.isa import tile_registers
from stages.kernels.families import (
    BytePairs,
    Dots,
    Family,
    FloatDots,
    MatrixDots,
    Products,
    Signed,
    SignedDots,
    TileDots,
    TransformedDots,
    WideDots,
)
from stages.kernels.lut import ENTRIES, GROUP, Tables
from stages.kernels.operand_storage import (
    BYTE_BITS,
    FLOATS,
    WORD_BITS,
    WORD_BYTES,
    Stored,
    WeightCode,
)
from stages.kernels.terms import TermPlan

BLOCK = 32
"""Output channels a kernel finishes together: one packed word of its consumer."""
ALIGNMENT = 64
"""Of every buffer and constant, of what is collected of each picture, and of inputs and outputs
that kernels use in place: bytes."""
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

Form = Literal["planes", "tables", "balanced_tables", "bytes", "floats"]
"""How levels, or floats, are stored."""
Flush = Literal["window", "row", "chunk", "none"]


@dataclass(frozen=True)
class KernelSignature:
    """The contract of one micro-kernel; equal signatures share one body."""

    isa: str
    plan: TermPlan | None
    """The term plan of a popcount kernel."""
    products: Products | None
    """The method of a kernel of products."""
    rows: int
    channels: int
    flush: Flush
    flush_period: int
    """Words after which narrow counters must be emptied; 0 if never."""
    stored: Stored | None = None
    """What the activations' tensor holds, of which the plan reads its own planes."""
    tables: Tables | None = None
    """What a look-up kernel looks up."""
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
        if sum(way is not None for way in (self.plan, self.tables, self.products)) != 1:
            raise ValueError("a signature has a term plan, tables, or a way to add up products")
        if self.rows % self.pixels:
            raise ValueError(f"{self.rows} pixels are not taken {self.pixels} at a time")
        if self.words * WORD_BITS % self.word_bits or (self.coupled and self.counted % COUPLE):
            raise ValueError(f"{self.words} words are not whole words, or couples of them")
        if self.plan is not None and self.stored is None:
            object.__setattr__(self, "stored", stored_by(self.plan))

    @property
    def method(self) -> Hashable:
        """What is added up and how, whatever the tile."""
        packing = self.words, self.coupled, self.word_bits, self.inner
        return *packing, self.plan, self.tables, self.products

    @property
    def inner(self) -> int:
        """As of what is stored."""
        return self.stored.inner if self.stored is not None else 0

    @property
    def counted(self) -> int:
        """Words of `word_bits` in a step of a popcount kernel."""
        return self.words * WORD_BITS // self.word_bits

    @property
    def family(self) -> Family:
        """Popcounts of bit planes, entries of tables, or products of bytes or floats."""
        if self.products is not None:
            return self.products.family
        return "popcount" if self.tables is None else "lookup"

    @property
    def form(self) -> Form:
        """How the kernel, or what transforms them for it, wants its activations stored."""
        if self.tables is not None:
            return "balanced_tables" if self.tables.is_balanced else "tables"
        if self.is_float:
            return "floats"
        return "bytes" if self.plan is None else "planes"

    @property
    def channels_per_word(self) -> int:
        """Channels in one word of weights, 32 bits: K is padded to a multiple of it."""
        return WORD_BITS if self.products is None else self.products.channels_per_word

    @property
    def is_float(self) -> bool:
        """Whether it multiplies floats, and its sums are floats."""
        return self.products is not None and self.products.element in FLOATS

    @property
    def adds_halves(self) -> bool:
        """Whether it adds up products of float16 as such."""
        return self.products is not None and self.products.element == "float16"

    @property
    def is_transformed(self) -> bool:
        """Whether it multiplies transformed pixels and weights: a tile of it are tiles of pixels,
        and its sums are yet to be transformed."""
        return isinstance(self.products, TransformedDots)

    @property
    def is_widened(self) -> bool:
        """Whether it reads bytes as integers of 16 bits, which its caller makes of them."""
        return isinstance(self.products, WideDots)

    @property
    def multiplies_words(self) -> bool:
        """Whether what it reads, pixels and weights, are integers of 16 bits."""
        return self.products is not None and self.products.element == "int16"

    @property
    def reads_lanes(self) -> bool:
        """Whether it multiplies by one lane of a register of a pixel's words (ARM)."""
        if isinstance(self.products, Dots | SignedDots | BytePairs | FloatDots):
            return self.products.words > 1
        return self.products is not None and self.multiplies_words and self.products.group == 1

    @property
    def pixels(self) -> int:
        """Neighbouring pixels that one instruction multiplies; a tile has a multiple of that."""
        return 1 if self.products is None else self.products.pixels

    @property
    def offset(self) -> int:
        """What it takes off activations, which its sums then lack."""
        return 0 if self.products is None else self.products.offset

    @property
    def takes_off(self) -> int:
        """What of that it takes off itself, where it is not off what is stored."""
        return 0 if self.products is None else self.products.takes_off

    @property
    def is_tiled(self) -> bool:
        """Whether it is a kernel of matrix tiles (AMX)."""
        return isinstance(self.products, TileDots)

    @property
    def counts_sums(self) -> bool:
        """Whether what it counts in its inner loop are the sums, so that it stores each once."""
        return self.products is not None and self.flush == "none"

    @property
    def is_direct(self) -> bool:
        """Whether its sums of products can stay in registers until they are results, so that a part
        of a block of channels is left out if no output is in it."""
        return self.counts_sums and not self.is_tiled and not self.is_transformed

    @property
    def keeps_sums(self) -> bool:
        """Whether its sums can stay in registers until they are results: those of bits as well,
        whose counters are never emptied."""
        return self.is_direct or (self.plan is not None and self.flush == "none")

    @property
    def turns(self) -> bool:
        """Whether the two pixels of a tile may be any distance apart, so that one is the last of a
        row and the other the first of the next one."""
        return self.rows == 2 and isinstance(self.products, BytePairs)

    @property
    def reads_ahead(self) -> bool:
        """Whether it loads a pixel's words a step before it multiplies them: those of byte pairs,
        for which a core that runs in order would wait at the beginning of each step."""
        return isinstance(self.products, BytePairs) and self.reads_lanes

    @property
    def begins(self) -> bool:
        """Whether its sums can begin with integers instead of 0."""
        return self.counts_sums and self.family == "mac8"

    @property
    def beginning(self) -> str:
        """The name of what computes the same, but sums that begin with something."""
        return f"{self.name}_from"

    @property
    def is_whole(self) -> bool:
        """Whether a tile of it is all pixels of a layer, so that weights are read once."""
        return self.is_tiled and self.channels < BLOCK

    @property
    def step(self) -> int:
        """Words of a window that are taken at a time; its rows have a multiple of that."""
        if self.tables is not None:
            return self.tables.words
        if self.plan is not None:
            return self.words
        steps = Dots | MatrixDots | Signed | WideDots | TransformedDots | TileDots | FloatDots
        return self.products.words if isinstance(self.products, steps) else 1

    @property
    def row_unit(self) -> int:
        """Channels that rows of a window are filled up to a multiple of, by weights of 0: words, or
        steps where what is read behind a row is scratch."""
        return self.channels_per_word * (self.step if self.is_widened else 1)

    @property
    def pixel_registers(self) -> int:
        """Registers of pixels that matrix tiles are made of."""
        return -(-self.rows // tile_registers.ROWS)

    @property
    def products_a_step(self) -> int:
        """Products of matrix tiles in a step: registers of pixels times registers of channels."""
        return self.pixel_registers * (self.channels // tile_registers.COLUMNS)

    @property
    def code(self) -> WeightCode | None:
        """How weights are stored, where that is in fewer bits than they are multiplied in."""
        return self.products.code if isinstance(self.products, Dots | TileDots) else None

    @property
    def expansion(self) -> int:
        """How many times as many bytes stored weights become."""
        return 1 if self.code is None else BYTE_BITS // self.code.bits

    @property
    def makes_bytes(self) -> bool:
        """Whether it stores bytes that it makes of weights, before it multiplies these."""
        return self.is_tiled and self.code is not None

    @property
    def word_bytes(self) -> int:
        """Bytes from the activations of a word of weights (of one plane) to those of the next."""
        if self.tables is not None:
            return WORD_BITS // GROUP * ENTRIES
        return WORD_BYTES * self.stored.words if self.inner and self.stored else WORD_BYTES

    @property
    def stored_bytes(self) -> int:
        """The same bytes as they are stored: half of those that it reads, if they are widened."""
        return self.channels_per_word if self.is_widened else self.word_bytes

    @property
    def activation_bytes(self) -> int:
        """Bytes that are stored of activations for a word of the window, of all planes."""
        apart = self.stored is not None and not self.inner
        return self.stored_bytes * (self.stored.words if apart and self.stored else 1)

    @property
    def weight_planes(self) -> int:
        """Words of weights per word of a window."""
        if self.tables is not None:
            return self.tables.weight_bits
        return 1 if self.plan is None else len(self.plan.weight_planes)

    @property
    def weight_bytes(self) -> int:
        """Bytes that are stored of a tile's weights, of all planes, for a word of the window."""
        return self.channels * self.weight_planes * WORD_BYTES // self.expansion

    def table(self) -> np.ndarray[Any, Any]:
        """What a kernel of stored bits adds per pair of levels: int64 [2^n, 2^m]."""
        if self.tables is not None:
            return self.tables.table()
        assert self.plan is not None
        return self.plan.table()

    @property
    def scale(self) -> int:
        """The factor between raw sums and products of levels."""
        return 1 if self.plan is None else self.plan.scale

    @property
    def sum_index(self) -> int | None:
        """Which word of the activations holds the plan's sums, None if it needs none."""
        if self.plan is None or not self.plan.activation_sum:
            return None
        assert self.stored is not None
        return len(self.stored.planes) + self.stored.sums.index(self.plan.activation_sum)

    def plane_index(self, plane: int) -> int:
        """Where the activations hold one of the plan's planes."""
        assert self.plan is not None and self.stored is not None
        return self.stored.planes.index(self.plan.activation_planes[plane])

    @property
    def is_rebased(self) -> bool:
        """Whether its activations are stored as the signed bytes that it multiplies."""
        return isinstance(self.products, Signed) and self.products.rebased

    @property
    def rebased(self) -> KernelSignature:
        """The same kernel of levels of 8 bits on signed bytes, 128 less."""
        assert isinstance(self.products, Signed) and self.offset
        return replace(self, products=replace(self.products, rebased=True))

    def flushed(self, flush: Flush) -> KernelSignature:
        """The same kernel with its counters emptied elsewhere."""
        return replace(self, flush=flush)

    def reading(self, stored: Stored) -> KernelSignature:
        """The same kernel on a tensor that holds more."""
        return replace(self, stored=stored)

    @property
    def fallback(self) -> KernelSignature | None:
        """For a kernel of tiles, one of vectors on the same weights, where tiles are refused.

        Its tile, as even a part of the other's as can be, fits the registers of any AVX-512.
        """
        if not isinstance(self.products, TileDots):
            return None
        parts = -(-self.rows // FALLBACK_ROWS)
        return replace(self, products=self.products.by_vectors, rows=-(-self.rows // parts))

    @property
    def alone(self) -> KernelSignature:
        """The same kernel on a tensor that holds what it reads and no more."""
        return self if self.plan is None else self.reading(stored_by(self.plan, self.inner))

    @property
    def name(self) -> str:
        """The kernel's name, a C identifier; different signatures have different names."""
        tile = f"{self.rows}x{self.channels}_{self.flush}_{self.isa}"
        if self.products is not None:
            return f"{self.family}_{self.products.name}_{tile}"
        if self.tables is not None:
            return f"lookup_{self.tables.name}_{tile}"
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
