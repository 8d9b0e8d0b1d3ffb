"""The exact domain: what it refuses, and that it and NumPy agree on whatever it accepts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw.isa import ISAS, Isa, Part, Vector
from hw.isa.arrays import ArrayLane, array_lanes
from hw.isa.exact import AnyBits, BitsLane, bits_lane
from hw.isa.sum_lane import Group, InexactError, Joint, Place, SumLane, level_lane, zero_lane
from tests.hw.isa_code import cases_of

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
    low, high = (isa[part].execute(registers)[0] for part in (Part.BIT_SUM, Part.BIT_CARRY))
    return low, high


def test_zero_times_a_level_is_zero() -> None:
    assert (zero_lane(8) * number(0, 9)).range() == (0, 0)
    assert (zero_lane(8) + number(0, 9)).range() == (0, 9)


# -- programs ------------------------------------------------------------------------------------

N, M, ROWS, PIXELS, TRIALS = 2, 1, 2, 2, 6
GROUP = 8
BITWISE = {"and", "or", "xor", "select", "bit_sum", "bit_carry", "count"}


class Value(NamedTuple):
    """A register in both readings."""

    exact: list[Any]
    arrays: list[ArrayLane]
    size: int
    """Bytes."""


def value_of(exact: list[Any], arrays: list[ArrayLane]) -> Value:
    return Value(exact, arrays, sum(lane.bits for lane in exact) // 8)


class Levels:
    """Random levels of a register's positions, and the planes of bits that hold them."""

    def __init__(self, size: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.activations = rng.integers(0, 1 << N, (PIXELS, TRIALS, 8 * size))
        self.weights = rng.integers(0, 1 << M, (ROWS, TRIALS, 8 * size))
        self.pairs = {
            (pixel, row): a << M | w
            for pixel, a in enumerate(self.activations)
            for row, w in enumerate(self.weights)
        }

    def planes(self, size: int) -> list[Value]:
        """Every plane of every row and pixel, in the first positions of `size` bytes."""
        found = []
        entries = range(1 << (N + M))
        for plane in range(N):
            table = sum(1 << e for e in entries if e >> (M + plane) & 1)
            for pixel in range(PIXELS):
                levels = self.activations[pixel]
                found.append(self._packed(levels >> plane & 1, table, None, pixel, size))
        for plane in range(M):
            table = sum(1 << e for e in entries if e >> plane & 1)
            for row in range(ROWS):
                levels = self.weights[row]
                found.append(self._packed(levels >> plane & 1, table, row, None, size))
        return found

    def _packed(
        self, ones: Array, table: int, row: int | None, pixel: int | None, size: int
    ) -> Value:
        packed = np.packbits(ones[:, : 8 * size].astype(np.uint8), axis=1, bitorder="little")
        groups = [Group(row, pixel, chunk, GROUP) for chunk in range(size)]
        lanes = [bits_lane([group], table, 1 << (N + M)) for group in groups]
        return value_of(lanes, array_lanes(packed))

    def of(self, group: Group) -> Array:
        """The index of the level pair at each position of a group [trial, position]."""
        here = slice(group.chunk * GROUP, group.chunk * GROUP + group.positions)
        found: Array = self.pairs[group.pixel or 0, group.row or 0][:, here]
        return found

    def patterns(self, place: Place) -> Array:
        """The index of the entry of a vector at each position of a place [trial, position]."""
        if isinstance(place, Group):
            return self.of(place)
        here = slice(place.first, place.first + place.positions)
        bits = [self.ones(atom)[:, here] << n for n, atom in enumerate(place.atoms)]
        return np.add.reduce(bits)

    def ones(self, lane: Any) -> Array:
        """The bits of a lane [trial, position]."""
        if isinstance(lane, BitsLane):
            indices = np.concatenate([self.of(group) for group in lane.groups], axis=1)
        else:
            indices = self.patterns(Joint(lane.atoms, lane.first, lane.bits))
        found: Array = lane.table >> indices & 1
        return found


def check(value: Value, levels: Levels) -> None:
    """What the exact domain says of a register is what NumPy computes."""
    for lane, array in zip(value.exact, value.arrays, strict=True):
        assert lane.bits == array.bits
        if isinstance(lane, AnyBits):
            expected = (levels.ones(lane) << np.arange(lane.bits)).sum(1)
        else:
            expected = number_of(lane, levels)
            with suppress(InexactError):
                np.testing.assert_array_equal(number_of(lane.resolved(), levels), expected)
            low, high = lane.range()
            assert low <= expected.min() and expected.max() <= high
            expected = expected % (1 << lane.bits)
        np.testing.assert_array_equal(array.values, expected.astype(np.uint64))


def number_of(lane: SumLane, levels: Levels) -> Array:
    """What a sum is in every trial."""
    total = np.full(TRIALS, lane.constant, np.int64)
    for place, vector in lane.terms.items():
        total += vector[levels.patterns(place)].sum(1)
    return total


def fits(value: Value, kind: Vector, of_bits: bool) -> bool:
    """Whether a register may be an operand: of its size, of bits or of lanes not too wide."""
    lane = value.exact[0]
    return value.size == kind.bytes and (
        isinstance(lane, AnyBits)
        if of_bits
        else isinstance(lane, SumLane) and lane.bits <= kind.bits
    )


def run(isa: Isa, steps: Sequence[tuple[int, ...]], seed: int) -> list[Value]:
    """The registers of a program: planes of bits, then what its steps compute of them.

    A step names a row, of those that have operands, and its operands, latest first. What the exact
    domain refuses is left out.
    """
    levels = Levels(isa.bytes, seed)
    values = [*levels.planes(isa.bytes), *levels.planes(isa.bytes // 2)]
    inputs = len(values)
    bitwise = {
        table[part].name for table in (isa.parts, isa.halves) for part in table if part in BITWISE
    }
    rows = [(row, immediate, row.name in bitwise) for row, immediate in cases_of(isa)]
    kinds = {(kind, of_bits) for row, _, of_bits in rows for kind in row.operands}
    for which, *choices in steps:
        fitting = {one: [v for v in reversed(values) if fits(v, *one)] for one in kinds}
        possible = [
            (row, immediate, operands)
            for row, immediate, of_bits in rows
            if all(operands := [fitting[kind, of_bits] for kind in row.operands])
        ]
        row, immediate, operands = possible[which % len(possible)]
        chosen = [some[n % len(some)] for some, n in zip(operands, choices, strict=False)]
        try:
            exact = row.execute([value.exact for value in chosen], immediate)
        except InexactError:
            continue
        arrays = row.execute([value.arrays for value in chosen], immediate)
        values.append(value_of(exact, arrays))
        check(values[-1], levels)
    return values[inputs:]


STEPS = st.lists(
    st.tuples(st.integers(0, 99), *[st.integers(0, 5)] * 6),  # a row has six operands at most
    min_size=12,
    max_size=24,
)


@pytest.mark.parametrize("isa", ISAS.values(), ids=lambda isa: isa.name)
def test_programs_mean_the_same_exactly_and_in_numpy(isa: Isa) -> None:
    widths = set[int]()

    @settings(max_examples=20, derandomize=True)
    @given(STEPS, st.integers(0, 1 << 16))
    def programs(steps: list[tuple[int, ...]], seed: int) -> None:
        for value in run(isa, steps, seed):
            if isinstance(value.exact[0], SumLane):
                widths.add(value.exact[0].bits)

    programs()
    assert widths == ({8, 16, 32} if isa.counts_bytes else {32})
