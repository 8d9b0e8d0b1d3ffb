"""The exact reader of instruction meanings: what a register holds, for all inputs at once.

Bits of an activation level a and a weight level w stand at every bit position of a vector. A
register of bits is a truth table over all level pairs (a, w), the same at each of its positions.
As `popcount(f) = sum over positions of f(a, w)`, whatever is computed from counts by additions and
multiplications with constants is, per group of positions, an integer vector with one entry a level
pair. Two programs agree on all inputs exactly if these vectors agree, so equality of small arrays
replaces a solver (`stages/synthesizing/method.md`). Bits that depend on other bits at their
position are functions of those (`hw.isa.mixed_lane`), and what is counted of them has an entry for
every pattern, until it is seen to be a sum of counts. Sums wrap around unnoticed, as in a register;
only where a lane is widened, saturated or read must its range be known to fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from hw.isa.mixed_lane import MixedLane, alone, mixed
from hw.isa.sum_lane import (
    ExactLane,
    Group,
    InexactError,
    Place,
    SumLane,
    Vector,
    is_nothing,
    refused,
)


@dataclass(frozen=True, eq=False)
class BitsLane(ExactLane):
    """Bits: `table` has bit `a << m | w` set where a position with these levels holds a 1."""

    groups: tuple[Group, ...]
    table: int
    entries: int
    """Number of level pairs, 2^(n+m)."""

    @property
    def bits(self) -> int:  # type: ignore[override]
        """Width of the lane: one bit a position."""
        return sum(group.positions for group in self.groups)

    @property
    def depth(self) -> int:
        """0: the bits are no function of other bits."""
        return 0

    @property
    def function(self) -> MixedLane:
        """The bits as a function of themselves."""
        return alone(self)

    def counted(self, first: int, positions: int) -> SumLane:
        """How many are set at some positions, of whole groups."""
        ends = accumulate(group.positions for group in self.groups)
        last = first + positions
        groups = [g for g, end in zip(self.groups, ends, strict=True) if first < end <= last]
        counted = BitsLane(tuple(groups), self.table, self.entries)
        if counted.bits != positions:
            raise InexactError(f"counts {positions} bits from {first} on, a part of a group")
        return counted.popcount()

    def _joined(self, other: BitsLane) -> tuple[Group, ...] | None:
        """Groups of the same positions of both operands, if the lanes are of the same ones."""
        try:
            return tuple(a.joined(b) for a, b in zip(self.groups, other.groups, strict=True))
        except (InexactError, ValueError):
            return None

    def _combine(self, other: AnyBits, function: Callable[[int, int], int]) -> AnyBits:
        if isinstance(other, BitsLane) and (groups := self._joined(other)) is not None:
            return BitsLane(groups, function(self.table, other.table), self.entries)
        return mixed(self, other, function)

    def __and__(self, other: AnyBits) -> AnyBits:  # type: ignore[override]
        return self._combine(other, lambda x, y: x & y)

    def __or__(self, other: AnyBits) -> AnyBits:  # type: ignore[override]
        return self._combine(other, lambda x, y: x | y)

    def __xor__(self, other: AnyBits) -> AnyBits:  # type: ignore[override]
        return self._combine(other, lambda x, y: x ^ y)

    def __invert__(self) -> BitsLane:
        return BitsLane(self.groups, ~self.table & ((1 << self.entries) - 1), self.entries)

    def popcount(self) -> SumLane:  # type: ignore[override]
        """The table as a vector, once per group."""
        ones = np.array([self.table >> i & 1 for i in range(self.entries)], np.int64)
        times = Counter[Place](self.groups)
        return SumLane(self.bits, {group: ones * count for group, count in times.items()})

    def split(self, bits: int) -> list[BitsLane]:
        """Narrower lanes of whole groups."""
        parts, current = [], list[Group]()
        for group in self.groups:
            current.append(group)
            if sum(g.positions for g in current) == bits:
                parts.append(BitsLane(tuple(current), self.table, self.entries))
                current = []
        if current:
            raise InexactError(f"splits a group of positions into {bits} bits")
        return parts

    def extend(  # type: ignore[override]
        self, bits: int, signed: bool = False
    ) -> IndexLane:
        """Bits of single positions as a number, of which only look-ups are followed."""
        if signed or any(group.positions != 1 for group in self.groups):
            refused(self)
        return IndexLane(bits, self)

    def join(self, higher: Sequence[BitsLane]) -> BitsLane:
        """A wider lane of the same table."""
        if any(not isinstance(lane, BitsLane) or lane.table != self.table for lane in higher):
            raise InexactError("joins bits of different meaning")
        groups = tuple(g for lane in (self, *higher) for g in lane.groups)
        return BitsLane(groups, self.table, self.entries)


@dataclass(frozen=True, eq=False)
class IndexLane(ExactLane):
    """A number below 2^k: bits at k single positions, the lowest first, and zeros above them."""

    bits: int
    digits: BitsLane

    def lookup(self, table: Sequence[SumLane]) -> SumLane:  # type: ignore[override]
        """What is looked up, if every bit adds a number of its own position to entry 0.

        The first 2^k entries are entry 0 and, for every bit set in their number, the difference
        that this bit makes alone.
        """
        groups = self.digits.groups
        if len(table) < 1 << len(groups):
            raise InexactError(f"looks up a table of {len(table)} entries by {len(groups)} bits")
        if not all(isinstance(entry, SumLane) and entry.bits == self.bits for entry in table):
            raise InexactError("looks up something else than sums of its own width")
        ones = np.array([self.digits.table >> i & 1 for i in range(self.digits.entries)], np.int64)
        found = table[0]
        for own, difference in zip(groups, _differences(tuple(table), len(groups)), strict=True):
            terms: dict[Place, Vector]
            terms = {
                own.joined(g): ones * v for g, v in difference.terms.items() if not is_nothing(v)
            }
            found = found + SumLane(self.bits, terms)
        return found


@lru_cache(maxsize=256)
def _differences(table: tuple[SumLane, ...], bits: int) -> list[SumLane]:
    """What each bit of an index adds, if every entry is entry 0 and what the bits set in it add."""
    differences = [table[1 << bit] - table[0] for bit in range(bits)]
    for number in range(1 << bits):
        expected = table[0]
        for bit, difference in enumerate(differences):
            expected = expected + difference.times(number >> bit & 1)
        if not (table[number] - expected).is_zero():
            raise InexactError(f"entry {number} is not a sum over the bits set in it")
    if any(difference.constant for difference in differences):
        raise InexactError("a bit of an index adds a constant")
    return differences


AnyBits = BitsLane | MixedLane
"""Bits of known meaning, or functions of several."""


def bits_lane(groups: Sequence[Group], table: int, entries: int) -> BitsLane:
    """Packed bits whose table is known."""
    return BitsLane(tuple(groups), table, entries)
