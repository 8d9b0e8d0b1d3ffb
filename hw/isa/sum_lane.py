"""Numbers of the exact domain: sums of integer vectors over positions (see `hw.isa.exact`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from hw.isa.lane import Lane

Vector = np.ndarray[Any, Any]
"""int64 [entries]: what is added per pair of levels, index `a << m | w`, or per pattern of bits."""


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

    def joined(self, other: Place) -> Group:
        """The products of the positions of two groups; InexactError if these do not match."""
        if not isinstance(other, Group) or (self.chunk, self.positions) != (
            other.chunk,
            other.positions,
        ):
            raise InexactError(f"combines positions {self} and {other}")
        row, pixel = _either(self.row, other.row), _either(self.pixel, other.pixel)
        return Group(row, pixel, self.chunk, self.positions)


class Atom(Protocol):
    """Bits that others are a function of, position by position."""

    @property
    def depth(self) -> int:
        """How many functions of functions they are."""

    def counted(self, first: int, positions: int) -> SumLane:
        """How many of them are set at some positions."""


@dataclass(frozen=True)
class Joint:
    """Positions at which bits of several kinds stand, from `first` on: an entry a pattern."""

    atoms: tuple[Atom, ...]
    first: int
    positions: int

    @cached_property
    def depth(self) -> int:
        """The deepest of its kinds."""
        return max(atom.depth for atom in self.atoms)

    def apart(self, vector: Vector) -> Iterator[tuple[Place, Vector]]:
        """The sum taken apart, by its kinds; InexactError if a pattern is more than its bits."""
        expected = [0]
        for number in range(len(self.atoms)):
            single = int(vector[1 << number])
            expected += [value + single for value in expected]
        if vector.tolist() != expected:
            raise InexactError("carried bits do not add up to a count")
        for number, atom in enumerate(self.atoms):
            if factor := expected[1 << number]:
                for place, ones in atom.counted(self.first, self.positions).terms.items():
                    yield place, factor * ones


Place = Group | Joint
"""Where the entries of a vector are added up."""


def _either(first: int | None, second: int | None) -> int | None:
    if first is not None and second is not None and first != second:
        raise InexactError(f"combines rows or pixels {first} and {second}")
    return second if first is None else first


def refused(lane: object, *_: Any, **_named: Any) -> Any:
    """Raise InexactError for an operation that a kind of lane does not have."""
    raise InexactError(f"no exact form of this operation on {type(lane).__name__}")


_refuse: Any = refused


class ExactLane(Lane):
    """Base of the kinds of lane; what a kind has no exact form for is an InexactError."""

    __and__ = __or__ = __xor__ = __invert__ = __add__ = __sub__ = __mul__ = _refuse
    times = popcount = extend = saturate = split = join = lookup = _refuse
    fadd = fmul = fma = bfloat16 = widened = _refuse
    function = property(_refuse)


@dataclass(frozen=True, eq=False)
class SumLane(ExactLane):
    """A number: `constant` and, per place, a vector summed over the place's positions."""

    bits: int
    terms: Mapping[Place, Vector]
    constant: int = 0

    def _plus(self, other: SumLane, factor: int) -> SumLane:
        if not isinstance(other, SumLane) or other.bits != self.bits:
            raise InexactError("adds something else to a sum")
        added = other.times(factor)
        terms = dict(self.terms)
        for group, vector in added.terms.items():
            terms[group] = terms[group] + vector if group in terms else vector
        return SumLane(self.bits, terms, self.constant + added.constant)

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
        if not (isinstance(one, Group) and isinstance(two, Group)) or one.positions != 1:
            raise InexactError("multiplies sums over several positions")
        return SumLane(self.bits, {one.joined(two): x * y})

    def bfloat16(self) -> SumLane:
        """The number of a bfloat16, which a float32 holds."""
        return SumLane(32, self.terms, self.constant)

    def widened(self) -> SumLane:
        """The number of a float16 as a float32. That one too large for 16 bits is infinite is left
        out, as rounding is."""
        return SumLane(32, self.terms, self.constant)

    def fadd(self, other: SumLane) -> SumLane:
        """The sum of floats, as of numbers: rounding is left out."""
        return self + other

    def fmul(self, other: SumLane) -> SumLane:
        """The product of floats, likewise."""
        return self * other

    def fma(self, other: SumLane, addend: SumLane) -> SumLane:
        """Both, likewise."""
        return addend + self * other

    def times(self, factor: int) -> SumLane:
        """The product with a constant."""
        if factor == 1:
            return self
        terms = {group: factor * vector for group, vector in self.terms.items()}
        return SumLane(self.bits, terms, factor * self.constant)

    def range(self) -> tuple[int, int]:
        """Bounds of the number over all inputs.

        They are reached, but where groups of one chunk share an operand without being equal, and
        where kinds of bits depend on each other.
        """
        low = high = self.constant
        for group, vector in self.merged().items():
            least, most = _bounds(vector)
            low += group.positions * least
            high += group.positions * most
        return low, high

    def is_zero(self) -> bool:
        """Whether it is 0 for all inputs, term by term."""
        return self.constant == 0 and all(map(is_nothing, self.terms.values()))

    def resolved(self) -> SumLane:
        """The number without joint places; InexactError if they do not cancel.

        Sums and carries of a full adder do: low + 2 high = a + b + c, whatever the three are.
        """
        known: dict[Place, Vector]
        known = {p: v for p, v in self.terms.items() if isinstance(p, Group)}
        joint = {p: v for p, v in self.terms.items() if isinstance(p, Joint)}
        while joint:
            deepest = max(joint, key=lambda place: place.depth)
            for place, vector in deepest.apart(joint.pop(deepest)):
                into: dict[Any, Vector] = known if isinstance(place, Group) else joint
                into[place] = into[place] + vector if place in into else vector
        return SumLane(self.bits, known, self.constant)

    def merged(self) -> dict[Place, Vector]:
        """Terms over the same positions together, where only one pair of operands is involved."""
        spots = {(p.chunk, p.positions) if isinstance(p, Group) else p for p in self.terms}
        if len(spots) == len(self.terms):
            return dict(self.terms)  # no two are over the same ones
        merged: dict[Place, Vector] = {p: v for p, v in self.terms.items() if isinstance(p, Joint)}
        neighbours: dict[tuple[int, int], list[Group]] = {}
        groups = {p: v for p, v in self.terms.items() if isinstance(p, Group)}
        for group, vector in sorted(groups.items(), key=lambda item: None in item[0]):
            beside = neighbours.setdefault((group.chunk, group.positions), [])
            partners = [
                g
                for g in beside
                if group.row in (None, g.row)
                and group.pixel in (None, g.pixel)
                and not is_nothing(merged[g])
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


def _bounds(vector: Vector) -> tuple[int, int]:
    """The least and the largest entry; few vectors occur, but these all the time."""
    return _bounds_of(np.asarray(vector, np.int64).tobytes())


@lru_cache(maxsize=1 << 14)
def _bounds_of(values: bytes) -> tuple[int, int]:
    vector = np.frombuffer(values, np.int64)
    return int(vector.min()), int(vector.max())


def is_nothing(vector: Vector) -> bool:
    """Whether every entry of a vector is 0."""
    return _bounds(vector) == (0, 0)


def level_lane(bits: int, group: Group, values: Vector) -> SumLane:
    """One level at one position: `values` of every level pair."""
    return SumLane(bits, {group: values})


def zero_lane(bits: int) -> SumLane:
    """The number 0."""
    return SumLane(bits, {})
