"""Random programs mean the same in the exact domain and in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw.isa import ISAS, Isa, Vector
from hw.isa.arrays import ArrayLane, array_lanes
from hw.isa.exact import AnyBits, BitsLane, bits_lane
from hw.isa.sum_lane import Group, InexactError, Joint, Place, SumLane
from tests.hw.isa_code import cases_of

Array = np.ndarray[Any, Any]
N, M, ROWS, PIXELS, TRIALS = 2, 1, 2, 2, 6
GROUP = 8
BITWISE = {"and", "or", "xor", "select", "bit_sum", "bit_carry", "count"}
STEPS = st.lists(
    st.tuples(st.integers(0, 99), *[st.integers(0, 5)] * 6),  # a row has six operands at most
    min_size=12,
    max_size=24,
)


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
        table[part].name
        for table in (isa.rows, isa.half_registers)
        for part in table
        if part in BITWISE
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
