"""The exact domain: what it refuses, and that it and NumPy agree on whatever it accepts."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hw.isa import ISAS, Operation
from hw.isa.exact import AnyBits, BitsLane, bits_lane
from hw.isa.sum_lane import Group, InexactError, SumLane, level_lane, zero_lane

Array = np.ndarray[Any, Any]
# One bit of activations, one of weights: entry `a << 1 | w`.
ACTIVATION, WEIGHT = 0b1100, 0b1010


def bits(
    table: int = ACTIVATION, row: int | None = None, pixel: int | None = 0, chunk: int = 0
) -> BitsLane:
    """Eight positions in a lane."""
    return bits_lane([Group(row, pixel, chunk, 8)], table, 4)


def number(low: int, high: int, width: int = 8, chunk: int = 0) -> SumLane:
    """A number between two bounds."""
    return level_lane(width, Group(None, 0, chunk, 1), np.array([low, low, high, high]))


def test_bits_of_both_operands_become_a_count_of_pairs() -> None:
    both = bits() & bits(WEIGHT, 2, None)
    assert isinstance(both, BitsLane)
    assert both.groups == (Group(2, 0, 0, 8),) and both.table == 0b1000
    count = both.popcount()
    assert count.bits == 8 and count.range() == (0, 8)
    assert {g: v.tolist() for g, v in count.terms.items()} == {Group(2, 0, 0, 8): [0, 0, 0, 1]}
    assert (~both).table == 0b0111


def test_bits_split_and_join_at_groups() -> None:
    word = bits(chunk=0).join([bits(chunk=1), bits(chunk=2), bits(chunk=3)])
    assert word.bits == 32 and [g.chunk for g in word.groups] == [0, 1, 2, 3]
    assert [lane.bits for lane in word.split(16)] == [16, 16]
    assert word.popcount().range() == (0, 32)


def test_counts_join_to_what_the_wider_lane_holds() -> None:
    joined = bits().popcount().join([bits(chunk=1).popcount()])
    assert joined.bits == 16 and joined.range() == (0, 8 + 256 * 8)


def test_what_a_count_adds_up_to_is_bounded_by_its_pairs() -> None:
    both, alone = (bits() & bits(WEIGHT, 2, None)).popcount(), bits().popcount()
    # Where both bits are set, the activation's is: never below 0.
    assert (alone - both).range() == (0, 8)
    assert (both - alone).range() == (-8, 0)
    # Of two rows nothing is known together; the bounds are not reached.
    other = (bits() & bits(WEIGHT, 3, None)).popcount()
    assert (alone - both - other).range() == (-16, 8)


def test_a_register_wraps_around_unnoticed() -> None:
    total = number(0, 200) + number(0, 200, chunk=1)
    assert (total - number(0, 200)).extend(16).range() == (0, 200)
    assert total.times(3).bits == 8


def counted(lane: AnyBits) -> SumLane:
    """How many bits are set, as what is known of each kind alone."""
    return lane.popcount().resolved()


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "widens what is too large": (lambda: number(0, 256).extend(16), "holds 0 to 256"),
    "widens what is negative": (lambda: number(-1, 5).extend(16), "holds -1 to 5"),
    "widens what is too large for a sign": (lambda: number(0, 128).extend(16, True), "to 128"),
    "widens a sum that wrapped": (
        lambda: (number(0, 200) + number(0, 200, chunk=1)).extend(16),
        "holds 0 to 400, not 0 to 255",
    ),
    "saturates": (lambda: number(0, 1 << 15, 32).saturate(16), "not -32768 to 32767"),
    "saturates below": (lambda: number(-(1 << 15) - 1, 0, 32).saturate(16), "holds -32769 to 0"),
    "joins a number that wrapped": (lambda: number(0, 9).join([number(-1, 0)]), "holds -1 to 0"),
    "joins different tables": (lambda: bits().join([bits(WEIGHT)]), "different meaning"),
    "mixes rows": (lambda: counted(bits(row=1) & bits(row=2)), "do not add up to a count"),
    "mixes pixels": (lambda: counted(bits(pixel=1) | bits(pixel=2)), "do not add up to a count"),
    "mixes positions": (lambda: counted(bits(chunk=1) ^ bits(chunk=2)), "do not add up"),
    "mixes bits of different lanes": (lambda: bits() & bits().join([bits()]), "8 bits and 16"),
    "mixes bits and a sum": (lambda: operator.and_(bits(), number(0, 1)), "form .* on SumLane"),
    "inverts what is mixed": (lambda: counted(~(bits(chunk=1) ^ bits(chunk=2))), "do not add up"),
    "counts a part of a group": (lambda: bits().counted(0, 4), "4 bits from 0 on, a part"),
    "splits a group of what is mixed": (
        lambda: (bits(chunk=1) ^ bits(chunk=2)).split(4)[1].popcount().resolved(),
        "do not add up",
    ),
    "splits a group": (lambda: bits().split(4), "splits a group of positions into 4 bits"),
    "adds bits": (lambda: bits() + bits(), "no exact form of this operation on BitsLane"),
    "adds bits to a sum": (lambda: operator.add(number(0, 1), bits()), "something else to a sum"),
    "adds another width": (lambda: number(0, 1) + number(0, 1, 16), "something else to a sum"),
    "masks a sum": (lambda: number(0, 1) & number(0, 1), "no exact form .* on SumLane"),
    "splits a sum": (lambda: number(0, 1).split(4), "no exact form .* on SumLane"),
    "widens bits": (lambda: bits().extend(16, signed=False), "no exact form .* on BitsLane"),
    "multiplies by another width": (lambda: number(0, 1) * number(0, 1, 16), "something else"),
    "multiplies counts": (lambda: bits().popcount() * bits().popcount(), "several positions"),
    "multiplies sums": (
        lambda: (number(0, 1) + number(0, 1, chunk=1)) * number(0, 1),
        "several positions",
    ),
    "multiplies levels of different positions": (
        lambda: number(0, 1) * number(0, 1, chunk=1),
        "combines positions",
    ),
    "multiplies a constant": (
        lambda: SumLane(8, {}, 3) * number(0, 1),
        "something else than two levels",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_domain_refuses_what(name: str) -> None:
    operation, message = REFUSED[name]
    with pytest.raises(InexactError, match=message):
        operation()


def test_a_sum_and_a_carry_count_what_went_in() -> None:
    """Whatever it was: sums and carries of other bits too."""
    x, y, z, u, v = (word(4 * number) for number in range(5))
    low, high = added(x, y, z)
    lowest, middle = added(low, u, v)
    total = lowest.popcount() + (high.popcount() + middle.popcount()).times(2)
    assert total.range() == (0, 32 + 2 * 64)
    assert total.resolved().range() == (0, 5 * 32)
    places = total.resolved().terms
    assert {place.chunk for place in places if isinstance(place, Group)} == {*range(20)}
    with pytest.raises(InexactError, match="do not add up"):
        (lowest.popcount() + high.popcount().times(2) + middle.popcount()).resolved()


def test_half_an_adder_counts_too() -> None:
    x, y = bits(chunk=1), bits(chunk=2)
    low, high = (lane.as_operand() for lane in (x ^ y, x & y))
    total = (low.popcount() + high.popcount().times(2)).resolved()
    assert (total - x.popcount() - y.popcount()).is_zero()


def word(chunk: int) -> BitsLane:
    """Four times eight positions in a lane."""
    first, *rest = (bits(chunk=chunk + byte) for byte in range(4))
    return first.join(rest)


def added(x: AnyBits, y: AnyBits, z: AnyBits) -> tuple[AnyBits, AnyBits]:
    """Sum and carry, as instructions give them."""
    isa, registers = ISAS["avx512bw"], [[lane] * 16 for lane in (x, y, z)]
    low, high = (
        isa[each].execute(registers)[0] for each in (Operation.BIT_SUM, Operation.BIT_CARRY)
    )
    return low, high


def test_zero_times_a_level_is_zero() -> None:
    assert (zero_lane(8) * number(0, 9)).range() == (0, 0)
    assert (zero_lane(8) + number(0, 9)).range() == (0, 9)
