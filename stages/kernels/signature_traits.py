"""What follows from a signature: its family's facts, and how its operands lie in memory."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from stages.kernels.families import Family, Products
from stages.kernels.lut import ENTRIES, GROUP, Lut
from stages.kernels.multiply_accumulate import MultiplyAccumulate
from stages.kernels.operand_storage import (
    BYTE_BITS,
    FLOAT_ELEMENTS,
    WORD_BITS,
    WORD_BYTES,
    Stored,
    WeightCode,
)
from stages.kernels.terms import TermPlan

Form = Literal["planes", "tables", "balanced_tables", "bytes", "floats"]
"""How levels, or floats, are stored."""
_NO_PRODUCTS = MultiplyAccumulate()


class SignatureTraits:
    """The part of `KernelSignature` that is computed from its fields."""

    plan: TermPlan | None
    products: Products | None
    lut: Lut | None
    stored: Stored | None
    rows: int
    channels: int
    words: int
    word_bits: int

    # -- of the family ---------------------------------------------------------------------------

    @property
    def _products(self) -> MultiplyAccumulate:
        """The facts of the family of products; those of none for popcounts and LUTs."""
        return self.products or _NO_PRODUCTS

    @property
    def family(self) -> Family:
        """Popcounts of bit planes, entries of LUTs, or products of bytes or floats."""
        if self.products is not None:
            return self.products.family
        return "popcount" if self.lut is None else "lookup"

    @property
    def is_float(self) -> bool:
        """Whether it multiplies floats, and its sums are floats."""
        return self._products.element in FLOAT_ELEMENTS

    @property
    def accumulates_float16(self) -> bool:
        """Whether it adds up products of float16 as such."""
        return self._products.element == "float16"

    @property
    def is_transformed(self) -> bool:
        """Whether it multiplies transformed pixels and weights: a tile of it are tiles of pixels,
        and its sums are yet to be transformed."""
        return self._products.is_transformed

    @property
    def is_widened(self) -> bool:
        """Whether it reads bytes as integers of 16 bits, which its caller makes of them."""
        return self._products.is_widened

    @property
    def multiplies_int16(self) -> bool:
        """Whether what it reads, pixels and weights, are integers of 16 bits."""
        return self._products.element == "int16"

    @property
    def multiplies_by_lane(self) -> bool:
        """Whether it multiplies by one lane of a register of a pixel's words (Arm)."""
        return self._products.multiplies_by_lane

    @property
    def pixels(self) -> int:
        """Neighbouring pixels that one instruction multiplies; a tile has a multiple of that."""
        return self._products.pixels

    @property
    def offset(self) -> int:
        """What is taken off activations, which its sums then lack."""
        return self._products.offset

    @property
    def kernel_offset(self) -> int:
        """What of `offset` it takes off itself, where it is not off what is stored."""
        return self._products.kernel_offset

    @property
    def is_rebased(self) -> bool:
        """Whether its activations are stored as the signed bytes that it multiplies."""
        return self._products.rebased

    @property
    def is_tiled(self) -> bool:
        """Whether it is a kernel of tile registers (AMX)."""
        return self._products.is_tiled

    @property
    def expands_weights(self) -> bool:
        """Whether it stores bytes that it makes of weights, before it multiplies these."""
        return self.is_tiled and self.code is not None

    @property
    def spans_rows(self) -> bool:
        """Whether the two pixels of a tile may be any distance apart, so that one is the last of a
        row and the other the first of the next one."""
        return self.rows == 2 and self._products.spans_rows

    @property
    def loads_ahead(self) -> bool:
        """Whether it loads a pixel's words a step before it multiplies them."""
        return self._products.loads_ahead

    # -- of operands in memory -------------------------------------------------------------------

    @property
    def form(self) -> Form:
        """How the kernel, or what transforms them for it, wants its activations stored."""
        if self.lut is not None:
            return "balanced_tables" if self.lut.is_balanced else "tables"
        if self.is_float:
            return "floats"
        return "bytes" if self.plan is None else "planes"

    @property
    def channels_per_word(self) -> int:
        """Channels in one word of weights, 32 bits: K is padded to a multiple of it."""
        return WORD_BITS if self.products is None else self.products.channels_per_word

    @property
    def step(self) -> int:
        """Words of a window that are taken at a time; its rows have a multiple of that."""
        if self.lut is not None:
            return self.lut.words
        return self.words if self.products is None else self.products.step

    @property
    def words_per_step(self) -> int:
        """Words of `word_bits` in a step of a popcount kernel."""
        return self.words * WORD_BITS // self.word_bits

    @property
    def inner(self) -> int:
        """Words of a plane of a pixel that lie together, where planes lie inside pixels; else 0."""
        return self.stored.inner if self.stored is not None else 0

    @property
    def row_unit(self) -> int:
        """Channels that rows of a window are filled up to a multiple of, by weights of 0: words, or
        steps where what is read behind a row is scratch."""
        return self.channels_per_word * (self.step if self.is_widened else 1)

    @property
    def code(self) -> WeightCode | None:
        """How weights are stored, where that is in fewer bits than they are multiplied in."""
        return self._products.code

    @property
    def expansion(self) -> int:
        """How many times as many bytes stored weights become."""
        return 1 if self.code is None else BYTE_BITS // self.code.bits

    @property
    def word_bytes(self) -> int:
        """Bytes from the activations of a word of weights (of one plane) to those of the next."""
        if self.lut is not None:
            return WORD_BITS // GROUP * ENTRIES
        return WORD_BYTES * self.stored.words if self.inner and self.stored else WORD_BYTES

    @property
    def stored_bytes(self) -> int:
        """`word_bytes` as they are stored: half of those that it reads, if they are widened."""
        return self.channels_per_word if self.is_widened else self.word_bytes

    @property
    def activation_bytes(self) -> int:
        """Bytes that are stored of activations for a word of the window, of all planes."""
        is_planar = self.stored is not None and not self.inner
        return self.stored_bytes * (self.stored.words if is_planar and self.stored else 1)

    @property
    def weight_planes(self) -> int:
        """Words of weights per word of a window."""
        if self.lut is not None:
            return self.lut.weight_bits
        return 1 if self.plan is None else len(self.plan.weight_planes)

    @property
    def weight_bytes(self) -> int:
        """Bytes that are stored of a tile's weights, of all planes, for a word of the window."""
        return self.channels * self.weight_planes * WORD_BYTES // self.expansion

    def table(self) -> np.ndarray[Any, Any]:
        """What a kernel of stored bits adds per pair of levels: int64 [2^n, 2^m]."""
        if self.lut is not None:
            return self.lut.table()
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
        """Which plane of the stored activations is one of the plan's."""
        assert self.plan is not None and self.stored is not None
        return self.stored.planes.index(self.plan.activation_planes[plane])
