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
import pytest
import z3

from hw.isa import Instruction, Vector, isa_of
from hw.isa.arrays import array_lanes, registers
from hw.isa.exact import BitsLane
from hw.isa.solver import SolverLane, variables
from hw.isa.sum_lane import Group, InexactError, SumLane
from tests.hw.isa_code import cases_of
from tests.targets import FP16, I8MM, PROFILES

Array = np.ndarray[Any, Any]
BITWISE = {"and", "or", "xor", "select", "bit_sum", "bit_carry", "count"}
PRODUCTS = {"dot", "mac", "matrix", "multiply", "products"}
MATRICES = {"matrix"}
"""Of these, those of which lanes of a result have lanes of operands in common."""
FLOATS = {"float_mac", "bfloat16_dot"}
HALVES = {"half_mac", "half_add", "half_pair_add", "half_widen_low", "half_widen_high"}
"""Floats of 16 bits."""
LOOKUPS = {"lookup", "low_nibble", "high_nibble"}
"""See `tests.hw.test_lookups`."""
KINDS = {
    row.name: part.split(".")[0]
    for isa in map(isa_of, (*PROFILES, FP16, I8MM))
    for table in (isa.parts, isa.halves)
    for part, row in table.items()
}
CASES = {
    row.name + f"-{k}" * (k is not None): (row, k)
    for hardware in (*PROFILES, FP16, I8MM)
    for row, k in cases_of(isa_of(hardware))
}
# Activation and weight levels, the widest first; a row must be exact for one of these at least.
LEVELS = (
    ((0, 1, 2, 255), (-128, -1, 1, 127)),
    ((0, 1, 2, 128), (-128, -1, 1, 127)),
    ((0, 1, 2, 3), (-3, -1, 1, 3)),
)
PAIRS = len(LEVELS[0][0]) * len(LEVELS[0][1])
"""Entries of every vector."""


def cases(wanted: Any) -> pytest.MarkDecorator:
    """The rows of some kinds, with each immediate."""
    chosen = [
        pytest.param(row, immediate, id=name)
        for name, (row, immediate) in CASES.items()
        if wanted(KINDS[row.name])
    ]
    return pytest.mark.parametrize(("row", "immediate"), chosen)


def prove(claims: Sequence[Any]) -> None:
    """The claims hold for all values of their variables."""
    solver = z3.Solver()
    solver.set("timeout", 60_000)
    solver.add(z3.Not(z3.And(*claims)))
    found = solver.check()
    assert found == z3.unsat, solver.model() if found == z3.sat else solver.reason_unknown()


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


class Opaque:
    """A register of numbers about which nothing is known but their range, that of their type."""

    def __init__(self, number: int, kind: Vector, signed: bool) -> None:
        self.number, self.kind, self.signed = number, kind, signed
        self.low = -(1 << (kind.bits - 1)) if signed else 0
        self.high = self.low + (1 << kind.bits) - 1
        # The last entry tells numbers from what is added to them.
        self.vector = np.array([self.low] * (PAIRS - 1) + [self.high], np.int64)

    def group(self, lane: int) -> Group:
        return Group(None, None, self.number << 8 | lane, 1)

    def exact(self) -> list[SumLane]:
        return [
            SumLane(self.kind.bits, {self.group(n): self.vector}) for n in range(self.kind.lanes)
        ]

    def free(self) -> list[SolverLane]:
        return variables(f"x{self.number}_", self.kind.lanes, self.kind.bits)

    def share(self, claimed: SumLane) -> Any:
        """What these numbers contribute to a claimed sum: each times its coefficient."""
        total = z3.BitVecVal(0, claimed.bits)
        for lane, number in enumerate(self.free()):
            vector = claimed.terms.get(self.group(lane), 0 * self.vector)
            factor = int(vector[-1]) // self.high
            assert np.array_equal(vector, factor * self.vector)
            if factor:
                total = total + number.extend(claimed.bits, self.signed).term * factor
        return total


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


def term_by_term(claim: Any) -> list[Any]:
    """What two sums are equal by whose terms may be equal one by one: products take the solver
    longer together."""
    found, value = ([t for t in terms_of(x) if not is_zero(t)] for x in claim.children())
    if len(found) != len(value):
        return [claim]
    return [x == y for x, y in zip(found, value, strict=True)]


def terms_of(term: Any) -> list[Any]:
    """The terms of a sum, in order."""
    if term.decl().kind() != z3.Z3_OP_BADD:
        return [term]
    return [each for part in term.children() for each in terms_of(part)]


def is_zero(term: Any) -> bool:
    return bool(z3.is_bv_value(term)) and term.as_long() == 0


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
    factors = [_as_floats(values, bits) for values in (x, y)]
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


def _as_floats(values: Array, bits: int) -> Array:
    """Whole numbers as floats, or as bfloat16."""
    floats = values.astype(np.float32)
    return floats if bits == 32 else (floats.view(np.uint32) >> 16).astype(np.uint16)


def exact_levels(kind: Vector, *levels: Sequence[int], size: int = 0) -> list[list[SumLane]]:
    """A register of activations and one of weights, with every pair of their levels; `size` lanes
    are of one pixel, or one row."""
    activations, weights = (np.array(values, np.int64) for values in levels)
    places = [divmod(n, size or kind.lanes) for n in range(kind.lanes)]
    a, w = np.repeat(activations, len(weights)), np.tile(weights, len(activations))
    return [
        [SumLane(kind.bits, {Group(None, pixel, n, 1): a}) for pixel, n in places],
        [SumLane(kind.bits, {Group(row, None, n, 1): w}) for row, n in places],
    ]


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


def chosen(index: Any, values: Any, bits: int) -> Any:
    """The entry of a table that an index names."""
    found = z3.BitVecVal(int(values[-1]), bits)
    for number, value in enumerate(values[:-1]):
        found = z3.If(index == number, z3.BitVecVal(int(value), bits), found)
    return found


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
        values = [_as_floats(v >> (v.itemsize * 8 - 8), v.itemsize * 8) for v in values]
        values = [v.view(f"u{v.itemsize}") for v in values]
    expected = registers(row.execute([array_lanes(v) for v in values], immediate))
    for trial, wanted in enumerate(expected):
        constants = [
            [SolverLane(k.bits, z3.BitVecVal(int(number), k.bits)) for number in v[trial]]
            for v, k in zip(values, row.operands, strict=True)
        ]
        found = row.execute(constants, immediate)
        assert [z3.simplify(lane.term).as_long() for lane in found] == wanted.tolist()
