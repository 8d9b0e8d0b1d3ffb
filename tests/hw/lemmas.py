"""What the lemmas of all rows share: which rows, unknown operands, and how a claim is proved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import z3

from hw.isa import Vector, isa_of
from hw.isa.solver import SolverLane, variables
from hw.isa.sum_lane import Group, SumLane
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
"""See `tests.hw.test_lookup_rows`."""
KINDS = {
    row.name: part.split(".")[0]
    for isa in map(isa_of, (*PROFILES, FP16, I8MM))
    for table in (isa.rows, isa.half_registers)
    for part, row in table.items()
}
CASES = {
    row.name + f"-{k}" * (k is not None): (row, k)
    for hardware in (*PROFILES, FP16, I8MM)
    for row, k in cases_of(isa_of(hardware))
}


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


# Activation and weight levels, the widest first; a row must be exact for one of these at least.
LEVELS = (
    ((0, 1, 2, 255), (-128, -1, 1, 127)),
    ((0, 1, 2, 128), (-128, -1, 1, 127)),
    ((0, 1, 2, 3), (-3, -1, 1, 3)),
)
PAIRS = len(LEVELS[0][0]) * len(LEVELS[0][1])
"""Entries of every vector."""


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


def chosen(index: Any, values: Any, bits: int) -> Any:
    """The entry of a table that an index names."""
    found = z3.BitVecVal(int(values[-1]), bits)
    for number, value in enumerate(values[:-1]):
        found = z3.If(index == number, z3.BitVecVal(int(value), bits), found)
    return found


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


def as_floats(values: Array, bits: int) -> Array:
    """Whole numbers as floats, or as bfloat16."""
    floats = values.astype(np.float32)
    return floats if bits == 32 else (floats.view(np.uint32) >> 16).astype(np.uint16)
