"""Lemmas of rows of floats: they add up numbers exactly where nothing is rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from hw.isa import Instruction
from hw.isa.arrays import array_lanes, registers
from hw.isa.sum_lane import Group, SumLane
from tests.hw.lemmas import (
    FLOATS,
    HALVES,
    KINDS,
    LEVELS,
    Opaque,
    as_floats,
    cases,
    exact_levels,
)


@cases(lambda kind: kind in FLOATS)
def test_floats_are_added_up_as_numbers_where_nothing_is_rounded(
    row: Instruction, immediate: int | None
) -> None:
    """The exact domain takes them for such; integers of few bits are."""
    rng = np.random.default_rng(3)
    kind, (count, bits), trials = row.result, (row.operands[1].lanes, row.operands[1].bits), 64
    per_lane = count // kind.lanes
    totals = rng.integers(-(1 << 22), 1 << 22, (trials, kind.lanes))
    x, y = rng.integers(-(1 << 7), 1 << 7, (2, trials, count))
    factors = [as_floats(values, bits) for values in (x, y)]
    operands = [array_lanes(values) for values in (totals.astype(np.float32), *factors)]
    found = registers(row.execute(operands, immediate)).view(np.float32)
    added = (x * y).reshape(trials, kind.lanes, per_lane).sum(2)
    np.testing.assert_array_equal(found, totals + added)
    total = Opaque(0, kind, False)
    exact = row.execute([total.exact(), *exact_levels(row.operands[1], *LEVELS[2])], immediate)
    products = np.outer(*LEVELS[2]).ravel()
    for number, claimed in enumerate(exact):
        assert claimed.constant == 0
        terms = dict(claimed.terms)
        np.testing.assert_array_equal(terms.pop(total.group(number)), total.vector)
        own = {Group(0, 0, number * per_lane + part, 1) for part in range(per_lane)}
        assert terms.keys() == own
        for group in own:
            np.testing.assert_array_equal(terms[group], products)


@cases(lambda kind: kind in HALVES)
def test_floats_of_16_bits_are_numbers_where_nothing_is_rounded(
    row: Instruction, immediate: int | None
) -> None:
    """Every lane is a sum, or a sum and a product, of whole numbers, in the exact domain as well:
    where the terms stand there is where the numbers are read."""
    rng = np.random.default_rng(3)
    registers_of = [rng.integers(-30, 31, (64, kind.lanes)) for kind in row.operands]
    inputs = [array_lanes(values.astype(np.float16)) for values in registers_of]
    kind = np.float16 if row.result.bits == 16 else np.float32
    found = registers(row.execute(inputs, immediate)).view(kind)
    is_product = KINDS[row.name] == "half_mac"
    exact = row.execute(
        [
            [SumLane(16, {_place(row, n, lane, is_product): np.ones(1, np.int64)})
             for lane in range(operand.lanes)]
            for n, operand in enumerate(row.operands)
        ],
        immediate,
    )  # fmt: skip
    for number, claimed in enumerate(exact):
        wanted: Any = 0
        for place in claimed.terms:
            assert isinstance(place, Group)
            register, lane = divmod(place.chunk, 100)
            is_pair = is_product and place.row is not None
            factors = (1, 2) if is_pair else (register,)
            wanted = wanted + np.prod([registers_of[f][:, lane] for f in factors], axis=0)
        np.testing.assert_array_equal(found[:, number], wanted)


def _place(row: Instruction, operand: int, lane: int, is_product: bool) -> Group:
    """Where a lane of an operand stands: both factors of a product at one place."""
    if not is_product or operand == 0:
        return Group(None, None, 100 * operand + lane, 1)
    return Group(0 if operand == 2 else None, 0 if operand == 1 else None, lane, 1)
