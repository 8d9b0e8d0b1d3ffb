"""Levels as the number of thresholds that are reached, at one channel.

Of few thresholds each is compared on its own, and what is packed are its comparisons: those with
rising thresholds are a thermometer c_1 >= c_2 >= ..., and bit j of the level is the exclusive or
of the c_k whose k is a multiple of 2^j. Many are gone through in a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tvm import tirx

from hw.isa.instruction_set import Isa
from stages.dialect import names
from stages.dialect.calls import attributes
from stages.dialect.elementwise import ARITHMETIC
from stages.dialect.numbers_fused import LONGEST_WORD
from stages.dialect.numbers_tir import TIR
from stages.nodes import Buffer, Call, Index, Scalar
from stages.packaging.epilogues.saturation import has_saturating_pack

FEW = 7
"""Up to so many thresholds are compared without a loop."""


@dataclass(frozen=True)
class ChannelThresholds:
    """The thresholds of a channel, rows of a tensor [T, C], as `elementwise.Rows` has them."""

    tensor: Buffer
    size: int
    channels: int
    channel: Index
    rows: Sequence[Index] | None = None
    """Which of them; all if it is not told."""

    @property
    def dtype(self) -> str:
        """Type of the thresholds."""
        return str(self.tensor.dtype)

    def count(self, holds: Callable[[Scalar], Scalar]) -> Sequence[Scalar]:
        """The conditions to count, one a threshold; `count_of` adds them up."""
        rows = range(self.size) if self.rows is None else self.rows
        return [holds(self.tensor[row * self.channels + self.channel]) for row in rows]

    def reached(self, call: Call, value: Scalar, falling: Scalar) -> Sequence[Any]:
        """Which of these thresholds a value reaches, by the operator's own arithmetic."""
        found: Sequence[Scalar] = ARITHMETIC[names.QNN_THRESHOLD](
            TIR, value, self, falling, **attributes(call)
        )
        return found


def counted_in(dtype: str, isa: Isa) -> str:
    """The type of a count of comparisons with thresholds of a type.

    As wide as what is compared, whose comparisons are masks; where these have registers of their
    own it is bytes.
    """
    if has_saturating_pack(isa):
        return "uint8"
    return "int32" if dtype == "float32" else dtype


def count_of(reached: Sequence[Scalar], kind: str, isa: Isa) -> Scalar:
    """How many conditions hold, of which each implies those in front of it.

    So the last one that holds says how many. Where masks have registers of their own a move under
    a mask is cheaper than to make a number of it.
    """
    if has_saturating_pack(isa):
        total = tirx.const(0, kind)
        for number, hit in enumerate(reached, 1):
            total = tirx.Select(hit, tirx.const(number, kind), total)
        return total
    return reduce(lambda one, other: one + other, (number_of(hit, kind) for hit in reached))


def number_of(hit: Scalar, kind: str) -> Scalar:
    """1 if a condition holds, else 0."""
    return tirx.Select(hit, tirx.const(1, kind), tirx.const(0, kind))


def digit_of(reached: Sequence[Scalar], digit: int) -> Scalar:
    """A binary digit of how many conditions hold, as a byte."""
    chosen = reached[(1 << digit) - 1 :: 1 << digit]
    bits = [number_of(hit, "uint8") for hit in chosen] or [tirx.const(0, "uint8")]
    return reduce(lambda one, other: one ^ other, bits)


def comparable(value: Scalar, dtype: str, reach: int) -> Scalar:
    """A value, at most `reach` in size, as what thresholds of a type are compared with.

    Those of 16 bits are at most the longest word and above the smallest one: what is beyond them
    is on the same side of all if it is saturated.
    """
    if dtype != "int16":
        return value.astype(dtype)
    if reach > LONGEST_WORD and str(value.ty.dtype) != "int16":
        ends = (tirx.const(end, "int32") for end in (-LONGEST_WORD - 1, LONGEST_WORD))
        value = tirx.min(tirx.max(value, next(ends)), next(ends))
    return value.astype("int16")
