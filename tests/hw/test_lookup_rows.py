"""Look-ups: the lemma that the exact domain rests on, proved by Z3, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import z3

from hw.isa import Isa, Operation, isa_of
from hw.isa.exact import BitsLane
from hw.isa.solver import SolverLane, variables
from hw.isa.sum_lane import Group, InexactError, SumLane
from hw.profile import Hardware
from tests.hw.lemmas import prove
from tests.hw.test_isa import mnemonics
from tests.targets import AARCH64, AVX2, AVX512BW

TARGETS = pytest.mark.parametrize("hardware", [AVX2, AVX512BW, AARCH64], ids=lambda item: item.name)
ONES, PAIRS = 0b1010, 4
"""A bit of a weight, set at its level 1: entry `a << 1 | w`."""
LEVELS, WEIGHTS = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])


def entry(number: int, scale: int = 1, bits: int = 8) -> SumLane:
    """`scale` times the levels whose bit is set in the entry's number, the others subtracted."""
    return SumLane(
        bits,
        {
            Group(None, 0, channel, 1): (LEVELS if number >> channel & 1 else -LEVELS) * scale
            for channel in range(4)
        },
        7,
    )


def indices(count: int, first: int = 0, positions: int = 1) -> list[BitsLane]:
    """Bytes of eight bits of a weight, a row each; channels 0 to 3 in one half, 4 to 7 above."""
    return [
        BitsLane(tuple(Group(row, None, first + n, positions) for n in range(8)), ONES, PAIRS)
        for row in range(count)
    ]


def looked_up(isa: Isa, table: list[Any], index: list[Any]) -> list[Any]:
    """What is looked up by the low halves of bytes."""
    return isa[Operation.LOOKUP].execute([table, isa[Operation.LOW_NIBBLE].execute([index])])


@TARGETS
def test_a_look_up_adds_what_each_bit_of_the_index_says(hardware: Hardware) -> None:
    """For all levels and all bits, in every byte of a register."""
    isa = isa_of(hardware)
    table = [entry(byte % 16) for byte in range(isa.bytes)]
    exact = looked_up(isa, table, indices(isa.bytes))
    levels, bytes_ = variables("a", 4, 8), variables("w", isa.bytes, 8)
    free_table = [number_of(entry(byte % 16), levels, None) for byte in range(isa.bytes)]
    found = looked_up(isa, free_table, bytes_)
    upper = z3.BitVec("upper", 4)
    for row, (claimed, lane) in enumerate(zip(exact, found, strict=True)):
        assert {group.row for group in claimed.terms if isinstance(group, Group)} == {None, row}
        difference = lane.term - number_of(claimed, levels, bytes_[row]).term
        for number in range(16):
            # With the index known, what is left is linear in the levels: 0, or it is not.
            known = z3.Concat(upper, z3.BitVecVal(number, 4))
            left = z3.simplify(z3.substitute(difference, (bytes_[row].term, known)))
            prove([left == 0])


def number_of(lane: SumLane, levels: list[SolverLane], index: SolverLane | None) -> SolverLane:
    """An exact lane as a number: its vectors are multiples of a level, where the bit is set."""
    total = z3.BitVecVal(lane.constant, 8)
    for group, vector in lane.terms.items():
        assert isinstance(group, Group)
        level = levels[group.chunk].term
        value = level * int(vector[3])
        if group.row is None:
            assert np.array_equal(vector, int(vector[3]) * LEVELS)
        else:
            assert index is not None and np.array_equal(vector, int(vector[3]) * LEVELS * WEIGHTS)
            bit = z3.Extract(group.chunk, group.chunk, index.term)
            value = z3.If(bit == 1, value, z3.BitVecVal(0, 8))
        total = total + value
    return SolverLane(8, total)


@TARGETS
def test_halves_of_bytes_are_indices(hardware: Hardware) -> None:
    isa = isa_of(hardware)
    bytes_ = variables("w", isa.bytes, 8)
    low, high = (
        isa[operation].execute([bytes_])
        for operation in (Operation.LOW_NIBBLE, Operation.HIGH_NIBBLE)
    )
    prove(
        [
            claim
            for byte, one, two in zip(bytes_, low, high, strict=True)
            for claim in (one.term == byte.term & 15, two.term == z3.LShR(byte.term, 4))
        ]
    )
    exact = isa[Operation.HIGH_NIBBLE].execute([indices(isa.bytes)])
    assert [g.chunk for g in exact[0].digits.groups] == [4, 5, 6, 7]


def changed(table: list[SumLane], number: int) -> list[SumLane]:
    """A table with one entry that is not the sum of what its bits add."""
    return [SumLane(8, e.terms, e.constant + (i == number)) for i, e in enumerate(table)]


def test_what_is_refused() -> None:
    table = [entry(number) for number in range(16)]
    (byte,) = indices(1)
    index = byte.split(4)[0].extend(8)
    assert index.lookup(table).constant == 7
    for number in range(16):
        with pytest.raises(InexactError, match=r"is not a sum over the bits|adds a constant"):
            index.lookup(changed(table, number))
    with pytest.raises(InexactError, match="a table of 15 entries by 4 bits"):
        index.lookup(table[:15])
    with pytest.raises(InexactError, match="something else than sums of its own width"):
        index.lookup([entry(number, bits=16) for number in range(16)])
    with pytest.raises(InexactError, match="combines positions"):
        indices(1, first=1)[0].split(4)[0].extend(8).lookup(table)
    with pytest.raises(InexactError, match="no exact form"):
        indices(1, positions=8)[0].extend(128)
    with pytest.raises(InexactError, match="no exact form"):
        byte.split(4)[0].extend(8, signed=True)
    with pytest.raises(InexactError, match="no exact form"):
        _ = index + index
    steps = [SumLane(8, {}, 3 * number.bit_count()) for number in range(16)]
    with pytest.raises(InexactError, match="a bit of an index adds a constant"):
        index.lookup(steps)


@pytest.mark.parametrize(
    ("hardware", "operation", "expected"),
    [
        (AVX2, "lookup", "vpshufb"),
        (AVX2, "odd.8", "vpsrlw"),
        (AVX512BW, "lookup", "vpshufb"),
        (AVX512BW, "add_quarters.32", "vshufi64x2"),
        (AARCH64, "lookup", "tbl"),
        (AARCH64, "high_nibble", "ushr"),
        (AARCH64, "widen.16", "ushll"),
    ],
    ids=lambda item: getattr(item, "name", item),
)
def test_the_compiler_selects_the_instruction(
    hardware: Hardware, operation: str, expected: str
) -> None:
    assert expected in mnemonics(isa_of(hardware)[Operation(operation)], None, hardware)
