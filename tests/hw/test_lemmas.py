"""Every row's lemma, proved by Z3: what the exact domain says of it holds for all operands.

A row runs twice: on exact lanes, which claim what the result is, and on free bit-vectors. The claim
must hold, modulo the width of a lane, for every operand in the range the exact lanes declare.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import isqrt
from typing import Any

import numpy as np
import z3

from hw.isa import Instruction
from hw.isa.arrays import array_lanes, registers
from hw.isa.exact import BitsLane
from hw.isa.solver import SolverLane, variables
from hw.isa.sum_lane import Group, InexactError, SumLane
from tests.hw.lemmas import (
    BITWISE,
    FLOATS,
    HALVES,
    KINDS,
    LEVELS,
    LOOKUPS,
    MATRICES,
    PRODUCTS,
    Opaque,
    as_floats,
    cases,
    chosen,
    exact_levels,
    prove,
    term_by_term,
)


@cases(lambda kind: kind in BITWISE)
def test_bits_have_their_truth_table(row: Instruction, immediate: int | None) -> None:
    """At every position, for every combination of operand bits."""
    entries = 1 << len(row.operands)
    kind = row.operands[0]
    groups = [Group(None, None, n, kind.bits) for n in range(kind.lanes)]
    tables = [
        sum(1 << e for e in range(entries) if e >> bit & 1) for bit in range(len(row.operands))
    ]
    exact = row.execute([[BitsLane((g,), table, entries) for g in groups] for table in tables])
    free = [variables(f"x{n}_", kind.lanes, kind.bits) for n in range(len(row.operands))]
    claims = []
    for number, (claimed, found) in enumerate(zip(exact, row.execute(free), strict=True)):
        operands = [register[number].term for register in free]
        if isinstance(claimed, SumLane):
            assert list(claimed.terms) == [groups[number]]
            (vector,) = claimed.terms.values()
            claims.append(found.term == counted(operands[0], vector) + claimed.constant)
        else:
            assert claimed.groups == (groups[number],)
            claims.append(found.term == combined(operands, claimed.table))
    prove(claims)


def combined(operands: Sequence[Any], table: int) -> Any:
    """The bits that a truth table makes of operands, as a disjunction of its entries."""
    found = z3.BitVecVal(0, operands[0].size())
    for entry in range(1 << len(operands)):
        if table >> entry & 1:
            chosen = [x if entry >> bit & 1 else ~x for bit, x in enumerate(operands)]
            found |= reduce(lambda x, y: x & y, chosen)
    return found


def counted(bits: Any, vector: Any) -> Any:
    """The sum over positions of what `vector` says of the bit there."""
    width = bits.size()
    zero, one = (z3.BitVecVal(int(value), width) for value in vector)
    return sum(z3.If(z3.Extract(i, i, bits) == 1, one, zero) for i in range(width))


@cases(lambda kind: kind not in BITWISE | PRODUCTS | FLOATS | HALVES | LOOKUPS)
def test_sums_have_their_linear_form(row: Instruction, immediate: int | None) -> None:
    """For all operands of their types, signed or not, where the exact domain accepts them."""
    proved = 0
    for signs in product((False, True), repeat=len(row.operands)):
        opaque = [
            Opaque(n, kind, s) for n, (kind, s) in enumerate(zip(row.operands, signs, strict=True))
        ]
        try:
            exact = row.execute([x.exact() for x in opaque], immediate)
        except InexactError:
            continue
        found = row.execute([x.free() for x in opaque], immediate)
        claims = [
            lane.term == sum((x.share(claimed) for x in opaque), z3.BitVecVal(0, lane.bits))
            for claimed, lane in zip(exact, found, strict=True)
        ]
        assert all(lane.constant == 0 for lane in exact)
        prove(claims)
        proved += 1
    assert proved


@cases(lambda kind: kind in PRODUCTS)
def test_products_have_their_value_for_every_pair_of_levels(
    row: Instruction, immediate: int | None
) -> None:
    """For every pair of levels at every position, on top of any total."""
    proved = 0
    *totals, kind, _ = row.operands
    size = kind.lanes // isqrt(row.result.lanes) if KINDS[row.name] in MATRICES else kind.lanes
    total = [Opaque(0, operand, False) for operand in totals]
    indices = [variables(name, kind.lanes, 2) for name in ("a", "w")]
    for levels in LEVELS:
        free = [
            [SolverLane(kind.bits, chosen(i.term, values, kind.bits)) for i in side]
            for side, values in zip(indices, levels, strict=True)
        ]
        try:
            sides = exact_levels(kind, *levels, size=size)
            exact = row.execute([*(t.exact() for t in total), *sides], immediate)
        except InexactError:
            continue
        found = row.execute([*(t.free() for t in total), *free], immediate)
        claims = []
        for claimed, lane in zip(exact, found, strict=True):
            value = sum((t.share(claimed) for t in total), z3.BitVecVal(0, lane.bits))
            for group, vector in claimed.terms.items():
                if group.row is not None:
                    places = (group.pixel * size, group.row * size)
                    a, w = (
                        side[place + group.chunk].term
                        for side, place in zip(indices, places, strict=True)
                    )
                    value = value + chosen(z3.Concat(a, w), vector, lane.bits)
            claims.append(lane.term == value)
        for claim in term_by_term(claims[0]):
            prove([claim])
        for number, claim in enumerate(claims):
            # The other lanes' claims are the first one's with other names.
            assert claim.eq(moved(claims[0], [*(t.free() for t in total), *indices], number, row))
        proved += 1
    assert proved


def moved(claim: Any, operands: Sequence[list[SolverLane]], number: int, row: Instruction) -> Any:
    """The claim about a row's first lane as it reads for another one."""
    lanes, places = row.result.lanes, [number] * len(operands)
    counts = [lanes] * len(operands)
    if KINDS[row.name] in MATRICES:
        side = isqrt(lanes)
        places[-2:], counts[-2:] = divmod(number, side), (side, side)
    pairs = []
    for each, place, count in zip(operands, places, counts, strict=True):
        step = len(each) // count
        pairs += [(each[n].term, each[place * step + n].term) for n in range(step)]
    return z3.substitute(claim, *pairs)


@cases(lambda kind: True)
def test_the_solver_and_numpy_read_the_same_meaning(
    row: Instruction, immediate: int | None
) -> None:
    rng = np.random.default_rng(7)
    values = [
        rng.integers(0, 256, (2, kind.bytes), np.uint8).view(f"u{kind.bits // 8}")
        for kind in row.operands
    ]
    if KINDS[row.name] in HALVES:
        values = [rng.normal(size=v.shape).astype(np.float16).view(np.uint16) for v in values]
    if KINDS[row.name] in FLOATS:  # of what is no number, neither says which
        values = [as_floats(v >> (v.itemsize * 8 - 8), v.itemsize * 8) for v in values]
        values = [v.view(f"u{v.itemsize}") for v in values]
    expected = registers(row.execute([array_lanes(v) for v in values], immediate))
    for trial, wanted in enumerate(expected):
        constants = [
            [SolverLane(k.bits, z3.BitVecVal(int(number), k.bits)) for number in v[trial]]
            for v, k in zip(values, row.operands, strict=True)
        ]
        found = row.execute(constants, immediate)
        assert [z3.simplify(lane.term).as_long() for lane in found] == wanted.tolist()
