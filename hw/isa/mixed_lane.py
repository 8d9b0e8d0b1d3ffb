"""Bits of the exact domain that depend on several unknown bits at each position.

Full adders make them: a sum and a carry of three bits, which are sums and carries of others
themselves. Each is a truth table of the operands of the instruction that computed it. That is
enough to see that together they count what went in (`SumLane.resolved`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from hw.isa.sum_lane import Atom, ExactLane, InexactError, Joint, SumLane


class Bits(Atom, Protocol):
    """A lane of bits."""

    @property
    def bits(self) -> int:
        """Width of the lane."""

    @property
    def function(self) -> MixedLane:
        """The bits as a function, of themselves if of nothing else."""


@dataclass(frozen=True, eq=False)
class MixedLane(ExactLane):
    """Bits: `table` has bit `pattern` set where a position with these bits of `atoms` holds a 1."""

    bits: int
    atoms: tuple[Atom, ...]
    table: int
    first: int = 0
    """Where in the atoms' lanes it begins."""

    @cached_property
    def depth(self) -> int:
        """How many functions of functions they are."""
        return 1 + max(atom.depth for atom in self.atoms)

    @property
    def function(self) -> MixedLane:
        """The bits themselves."""
        return self

    def over(self, atoms: Sequence[Atom]) -> int:
        """The table over more atoms."""
        places = [atoms.index(atom) for atom in self.atoms]
        table = 0
        for pattern in range(1 << len(atoms)):
            own = sum((pattern >> place & 1) << i for i, place in enumerate(places))
            table |= (self.table >> own & 1) << pattern
        return table

    def __and__(self, other: Bits) -> MixedLane:
        return mixed(self, other, lambda x, y: x & y)

    def __or__(self, other: Bits) -> MixedLane:
        return mixed(self, other, lambda x, y: x | y)

    def __xor__(self, other: Bits) -> MixedLane:
        return mixed(self, other, lambda x, y: x ^ y)

    def __invert__(self) -> MixedLane:
        return replace(self, table=~self.table & ((1 << (1 << len(self.atoms))) - 1))

    def as_operand(self) -> MixedLane:
        """Bits that other instructions make functions of."""
        return alone(self)

    def counted(self, first: int, positions: int) -> SumLane:
        """How many are set at some positions."""
        patterns = range(1 << len(self.atoms))
        ones = np.array([self.table >> pattern & 1 for pattern in patterns], np.int64)
        place = Joint(self.atoms, self.first + first, positions)
        return SumLane(positions, {place: ones})

    def popcount(self) -> SumLane:  # type: ignore[override]
        """How many are set."""
        return self.counted(0, self.bits)

    def split(self, bits: int) -> list[MixedLane]:
        """Narrower lanes."""
        starts = range(0, self.bits, bits)
        return [replace(self, bits=bits, first=self.first + start) for start in starts]


def alone(atom: Bits) -> MixedLane:
    """Bits as a function of themselves."""
    return MixedLane(atom.bits, (atom,), 0b10)


def mixed(x: Bits, y: Bits, function: Callable[[int, int], int]) -> MixedLane:
    """Two lanes of bits combined, position by position."""
    one, two = x.function, y.function
    if (x.bits, one.first) != (y.bits, two.first):
        raise InexactError(f"combines {x.bits} bits and {y.bits}")
    atoms = tuple(dict.fromkeys((*one.atoms, *two.atoms)))
    return MixedLane(x.bits, atoms, function(one.over(atoms), two.over(atoms)), one.first)
