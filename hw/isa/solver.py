"""The Z3 reader of instruction meanings: a lane is a bit-vector. For tests; a build needs no Z3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import z3

from hw.isa.lane import Lane


@dataclass(frozen=True, eq=False)
class SolverLane(Lane):
    """A term of sort (_ BitVec bits)."""

    bits: int
    term: Any

    def __and__(self, other: SolverLane) -> SolverLane:
        return SolverLane(self.bits, self.term & other.term)

    def __or__(self, other: SolverLane) -> SolverLane:
        return SolverLane(self.bits, self.term | other.term)

    def __xor__(self, other: SolverLane) -> SolverLane:
        return SolverLane(self.bits, self.term ^ other.term)

    def __invert__(self) -> SolverLane:
        return SolverLane(self.bits, ~self.term)

    def __add__(self, other: SolverLane) -> SolverLane:
        return SolverLane(self.bits, self.term + other.term)

    def __sub__(self, other: SolverLane) -> SolverLane:
        return SolverLane(self.bits, self.term - other.term)

    def __mul__(self, other: SolverLane) -> SolverLane:
        return SolverLane(self.bits, self.term * other.term)

    def times(self, factor: int) -> SolverLane:
        """The product with a constant."""
        return SolverLane(self.bits, self.term * z3.BitVecVal(factor, self.bits))

    def popcount(self) -> SolverLane:
        """How many bits are set, as a balanced tree of additions."""
        counts = [z3.ZeroExt(self.bits - 1, z3.Extract(i, i, self.term)) for i in range(self.bits)]
        while len(counts) > 1:
            counts = [sum(counts[i + 1 : i + 2], counts[i]) for i in range(0, len(counts), 2)]
        return SolverLane(self.bits, counts[0])

    def extend(self, bits: int, signed: bool = False) -> SolverLane:
        """The same number in a wider lane."""
        extension = z3.SignExt if signed else z3.ZeroExt
        return SolverLane(bits, extension(bits - self.bits, self.term))

    def saturate(self, bits: int) -> SolverLane:
        """The nearest signed number of `bits` bits."""
        low, high = (z3.BitVecVal(v, self.bits) for v in (-(1 << bits - 1), (1 << bits - 1) - 1))
        clipped = z3.If(self.term < low, low, z3.If(self.term > high, high, self.term))
        return SolverLane(bits, z3.Extract(bits - 1, 0, clipped))

    def split(self, bits: int) -> list[SolverLane]:
        """The lane as narrower ones, lowest bits first."""
        return [
            SolverLane(bits, z3.Extract(low + bits - 1, low, self.term))
            for low in range(0, self.bits, bits)
        ]

    def join(self, higher: Sequence[SolverLane]) -> SolverLane:
        """One wide lane, with `higher` in its upper bits."""
        parts = [lane.term for lane in reversed((self, *higher))]
        return SolverLane(self.bits * len(parts), z3.Concat(*parts))

    def lookup(self, table: Sequence[SolverLane]) -> SolverLane:
        """The entry that the number names; 0 behind the end of the table."""
        found = z3.BitVecVal(0, self.bits)
        for index, entry in enumerate(table):
            found = z3.If(self.term == index, entry.term, found)
        return SolverLane(self.bits, found)

    def _float(self) -> Any:
        return z3.fpBVToFP(self.term, z3.Float16() if self.bits == 16 else z3.Float32())

    def bfloat16(self) -> SolverLane:
        """A bfloat16 as float32: its bits above 16 zeros."""
        return SolverLane(32, z3.Concat(self.term, z3.BitVecVal(0, 16)))

    def widened(self) -> SolverLane:
        """A float16 as float32."""
        wide = z3.fpFPToFP(z3.RNE(), self._float(), z3.Float32())
        return SolverLane(32, z3.fpToIEEEBV(wide))

    def fadd(self, other: SolverLane) -> SolverLane:
        """The sum of two floats."""
        total = z3.fpAdd(z3.RNE(), self._float(), other._float())
        return SolverLane(self.bits, z3.fpToIEEEBV(total))

    def fmul(self, other: SolverLane) -> SolverLane:
        """The product of two floats."""
        product = z3.fpMul(z3.RNE(), self._float(), other._float())
        return SolverLane(self.bits, z3.fpToIEEEBV(product))

    def fma(self, other: SolverLane, addend: SolverLane) -> SolverLane:
        """Product and sum, rounded once."""
        total = z3.fpFMA(z3.RNE(), self._float(), other._float(), addend._float())
        return SolverLane(self.bits, z3.fpToIEEEBV(total))


def variables(name: str, count: int, bits: int) -> list[SolverLane]:
    """A register of free lanes."""
    return [SolverLane(bits, z3.BitVec(f"{name}{lane}", bits)) for lane in range(count)]
