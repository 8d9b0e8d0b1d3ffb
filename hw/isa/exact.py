"""The exact reader of instruction meanings: what a register holds, for all inputs at once.

Bits of an activation level a and a weight level w stand at every bit position of a vector. A
register of bits is a truth table over all level pairs (a, w), the same at each of its positions.
As `popcount(f) = sum over positions of f(a, w)`, whatever is computed from counts by additions and
multiplications with constants is, per group of positions, an integer vector with one entry a level
pair. Two programs agree on all inputs exactly if these vectors agree (section 3 of the synthesis
notes), so equality of small arrays replaces a solver. Sums wrap around unnoticed, as in a register;
only where a lane is widened, saturated or read must its range be known to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hw.isa.lanes import Lane

Vector = np.ndarray[Any, Any]
"""int64 [2^(n+m)]: one entry per pair of levels, index `a << m | w`."""


class InexactError(ArithmeticError):
    """A program leaves what the exact domain can follow; the message says where."""


class Group(NamedTuple):
    """Positions of the reduction axis that one lane covers, of one weight row and one pixel.

    `row` is None for activations alone, `pixel` for weights alone.
    """

    row: int | None
    pixel: int | None
    chunk: int
    positions: int

    def joined(self, other: Group) -> Group:
        """The same positions, of both operands; InexactError if the operands do not match."""
        if (self.chunk, self.positions) != (other.chunk, other.positions):
            raise InexactError(f"combines positions {self} and {other}")
        row, pixel = _either(self.row, other.row), _either(self.pixel, other.pixel)
        return Group(row, pixel, self.chunk, self.positions)


def _either(first: int | None, second: int | None) -> int | None:
    if first is not None and second is not None and first != second:
        raise InexactError(f"combines rows or pixels {first} and {second}")
    return second if first is None else first


def _refused(lane: object, *_: Any, **_named: Any) -> Any:
    raise InexactError(f"no exact form of this operation on {type(lane).__name__}")


_refuse: Any = _refused


class ExactLane(Lane):
    """Base of the kinds of lane; what a kind has no exact form for is an InexactError."""

    __and__ = __or__ = __xor__ = __invert__ = __add__ = __sub__ = __mul__ = _refuse
    times = popcount = extend = saturate = split = join = lookup = _refuse


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

    def _combine(self, other: BitsLane, function: Callable[[int, int], int]) -> BitsLane:
        if not isinstance(other, BitsLane) or len(self.groups) != len(other.groups):
            raise InexactError("combines bits with something else")
        groups = tuple(a.joined(b) for a, b in zip(self.groups, other.groups, strict=True))
        return BitsLane(groups, function(self.table, other.table), self.entries)

    def __and__(self, other: BitsLane) -> BitsLane:
        return self._combine(other, lambda x, y: x & y)

    def __or__(self, other: BitsLane) -> BitsLane:
        return self._combine(other, lambda x, y: x | y)

    def __xor__(self, other: BitsLane) -> BitsLane:
        return self._combine(other, lambda x, y: x ^ y)

    def __invert__(self) -> BitsLane:
        return BitsLane(self.groups, ~self.table & ((1 << self.entries) - 1), self.entries)

    def popcount(self) -> SumLane:  # type: ignore[override]
        """The table as a vector, once per group."""
        ones = np.array([self.table >> i & 1 for i in range(self.entries)], np.int64)
        total = SumLane(self.bits, {})
        for group in self.groups:
            total = total + SumLane(self.bits, {group: ones})
        return total

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
            _refused(self)
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
            terms = {own.joined(g): ones * v for g, v in difference.terms.items() if v.any()}
            found = found + SumLane(self.bits, terms)
        return found


@dataclass(frozen=True, eq=False)
class SumLane(ExactLane):
    """A number: `constant` and, per group, a vector summed over the group's positions."""

    bits: int
    terms: Mapping[Group, Vector]
    constant: int = 0

    def _plus(self, other: SumLane, factor: int) -> SumLane:
        if not isinstance(other, SumLane) or other.bits != self.bits:
            raise InexactError("adds something else to a sum")
        terms = dict(self.terms)
        for group, vector in other.terms.items():
            terms[group] = terms[group] + factor * vector if group in terms else factor * vector
        return SumLane(self.bits, terms, self.constant + factor * other.constant)

    def __add__(self, other: SumLane) -> SumLane:
        return self._plus(other, 1)

    def __sub__(self, other: SumLane) -> SumLane:
        return self._plus(other, -1)

    def __mul__(self, other: SumLane) -> SumLane:
        """The product of two levels at one position."""
        if not isinstance(other, SumLane) or other.bits != self.bits:
            raise InexactError("multiplies a sum by something else")
        if self.constant or other.constant:
            raise InexactError("multiplies something else than two levels")
        if not (self.terms and other.terms):
            return SumLane(self.bits, {})
        if len(self.terms) > 1 or len(other.terms) > 1:
            raise InexactError("multiplies sums over several positions")
        ((one, x),), ((two, y),) = self.terms.items(), other.terms.items()
        if one.positions != 1:
            raise InexactError("multiplies sums over several positions")
        return SumLane(self.bits, {one.joined(two): x * y})

    def times(self, factor: int) -> SumLane:
        """The product with a constant."""
        terms = {group: factor * vector for group, vector in self.terms.items()}
        return SumLane(self.bits, terms, factor * self.constant)

    def range(self) -> tuple[int, int]:
        """Bounds of the number over all inputs.

        They are reached, but where groups of one chunk share an operand without being equal.
        """
        low = high = self.constant
        for group, vector in self.merged().items():
            low += group.positions * int(vector.min())
            high += group.positions * int(vector.max())
        return low, high

    def is_zero(self) -> bool:
        """Whether it is 0 for all inputs, term by term."""
        return self.constant == 0 and not any(vector.any() for vector in self.terms.values())

    def merged(self) -> dict[Group, Vector]:
        """Terms over the same positions together, where only one pair of operands is involved."""
        merged: dict[Group, Vector] = {}
        neighbours: dict[tuple[int, int], list[Group]] = {}
        for group, vector in sorted(self.terms.items(), key=lambda item: None in item[0]):
            beside = neighbours.setdefault((group.chunk, group.positions), [])
            partners = [
                g
                for g in beside
                if group.row in (None, g.row) and group.pixel in (None, g.pixel) and merged[g].any()
            ]
            if len(partners) == 1:
                merged[partners[0]] = merged[partners[0]] + vector
            else:
                merged[group] = vector
                beside.append(group)
        return merged

    def _checked(self, low: int, high: int) -> None:
        found = self.range()
        if found[0] < low or found[1] > high:
            raise InexactError(
                f"a lane of {self.bits} bits holds {found[0]} to {found[1]}, not {low} to {high}"
            )

    def extend(self, bits: int, signed: bool = False) -> SumLane:
        """The same number in a wider lane, if it fits the narrow one."""
        half = 1 << (self.bits - 1)
        self._checked(*((-half, half - 1) if signed else (0, 2 * half - 1)))
        return SumLane(bits, self.terms, self.constant)

    def saturate(self, bits: int) -> SumLane:
        """The same number in a narrower lane, if no input saturates."""
        self._checked(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        return SumLane(bits, self.terms, self.constant)

    def join(self, higher: Sequence[SumLane]) -> SumLane:
        """One number of several lanes, if each fits its own."""
        total = self.extend(self.bits * (1 + len(higher)))
        for position, lane in enumerate(higher, 1):
            total = total + lane.extend(total.bits).times(1 << (position * self.bits))
        return total


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


def bits_lane(groups: Sequence[Group], table: int, entries: int) -> BitsLane:
    """Packed bits whose table is known."""
    return BitsLane(tuple(groups), table, entries)


def level_lane(bits: int, group: Group, values: Vector) -> SumLane:
    """One level at one position: `values` of every level pair."""
    return SumLane(bits, {group: values})


def zero_lane(bits: int) -> SumLane:
    """The number 0."""
    return SumLane(bits, {})
