"""What a lane of a vector register can do: the vocabulary in which instructions are described.

An instruction's meaning is written once, over `Lane`. Its readers are the subclasses: NumPy batches
(`hw.isa.arrays`), Z3 bit-vectors (`hw.isa.solver`) and the exact domain (`hw.isa.exact`); the LLVM
IR of a row is checked against the first of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self, TypeVar


class Lane(ABC):
    """A number of `bits` bits; arithmetic wraps around, as in a register."""

    bits: int

    @abstractmethod
    def __and__(self, other: Self) -> Self: ...

    @abstractmethod
    def __or__(self, other: Self) -> Self: ...

    @abstractmethod
    def __xor__(self, other: Self) -> Self: ...

    @abstractmethod
    def __invert__(self) -> Self: ...

    @abstractmethod
    def __add__(self, other: Self) -> Self: ...

    @abstractmethod
    def __sub__(self, other: Self) -> Self: ...

    @abstractmethod
    def __mul__(self, other: Self) -> Self: ...

    @abstractmethod
    def times(self, factor: int) -> Self:
        """The product with a constant."""

    @abstractmethod
    def popcount(self) -> Self:
        """How many bits are set."""

    @abstractmethod
    def extend(self, bits: int, signed: bool = False) -> Self:
        """The same number in a wider lane."""

    @abstractmethod
    def saturate(self, bits: int) -> Self:
        """The nearest signed number of `bits` bits, in a lane of that width."""

    @abstractmethod
    def split(self, bits: int) -> list[Self]:
        """The lane as narrower ones, lowest bits first."""

    @abstractmethod
    def join(self, higher: Sequence[Self]) -> Self:
        """One wide lane, with `higher` in its upper bits."""

    @abstractmethod
    def fadd(self, other: Self) -> Self:
        """The sum of two floats (IEEE 754 binary32 or, of 16 bits, binary16), rounded to nearest,
        ties to even."""

    @abstractmethod
    def fmul(self, other: Self) -> Self:
        """Their product, rounded so."""

    @abstractmethod
    def fma(self, other: Self, addend: Self) -> Self:
        """Their product and another float added to it, rounded once."""

    @abstractmethod
    def bfloat16(self) -> Self:
        """The float of 32 bits that is a bfloat16 of 16 bits: its upper half."""

    @abstractmethod
    def widened(self) -> Self:
        """The float of 32 bits that is one of 16 bits (IEEE 754 binary16)."""

    def as_operand(self) -> Self:
        """The same lane, as other instructions read it: readers may forget how it was computed."""
        return self

    @abstractmethod
    def lookup(self, table: Sequence[Self]) -> Self:
        """The entry that the lane's number names; 0 behind the end of the table (TBL, VPSHUFB)."""


L = TypeVar("L", bound="Lane")
Lanes = Sequence[Lane]
"""A register, as the meaning of an instruction sees it."""


def regroup(lanes: Sequence[L], bits: int) -> list[L]:
    """The same register seen as lanes of another width (a bitcast, little-endian)."""
    width = lanes[0].bits
    if width == bits:
        return list(lanes)
    if width > bits:
        return [part for lane in lanes for part in lane.split(bits)]
    count = bits // width
    groups = (lanes[i : i + count] for i in range(0, len(lanes), count))
    return [first.join(rest) for first, *rest in groups]
