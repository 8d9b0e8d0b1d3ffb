"""Bodies with rows in lanes and counters that are carried from word to word.

A 32-bit lane is one output channel; a word of activations is broadcast, so that no horizontal
addition is needed before a counter is emptied. The kernel boundary is the whole window: passes over
it count the terms of one coefficient, or of several in a chain 12, 6, 3 … in which each divides the
one before, by doubling what was counted so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hw.isa import Isa, Vector
from stages.qnn.signature import KernelSignature
from stages.qnn.terms import Term, TermPlan
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.looked_up import lookup_body
from stages.synthesizing.program import Program, Register
from stages.synthesizing.tiles import tiles_body

__all__ = ["Body", "Pass", "body_of", "chains", "narrow_products", "step_of"]

_STEPS: dict[int, tuple[tuple[str, ...], ...]] = {
    8: (("mac.8",),),
    16: (("mac.16",), ("products.8", "add.16")),
    32: (("dot",),),
}
"""Width of the lanes that products are added up in → rows that do it."""


def body_of(signature: KernelSignature, isa: Isa) -> Body:
    """The body of a signature, whichever its family."""
    if signature.is_tiled:
        return tiles_body(signature)
    bodies = {"popcount": popcount_body, "lookup": lookup_body, "mac8": products_body}
    return bodies[signature.family](signature, isa)


def popcount_body(signature: KernelSignature, isa: Isa) -> Body:
    """The body of a term plan."""
    plan = signature.plan
    assert plan is not None
    counter = isa["count"].result
    vectors = signature.channels // isa.lanes
    passes: list[Pass] = []
    for chain in chains(plan.coefficients, isa.counts_bytes):
        previous = 0
        for coefficient in chain:
            groups = _groups(plan.of(coefficient), isa.counts_bytes)
            for number, terms in enumerate(groups):
                word = _counted_word(plan, terms, signature.rows, vectors, isa)
                carried = 1 if number else previous // coefficient
                ends = coefficient == chain[-1] and number == len(groups) - 1
                passes.append(Pass(coefficient, word, carried, ends))
            previous = coefficient
    return Body(counter, tuple(passes), _emptied(isa, counter))


def chains(coefficients: Sequence[int], narrow: bool) -> list[list[int]]:
    """Coefficients in chains of divisors; narrow counters would overflow, so each is its own."""
    if narrow:
        return [[c] for c in coefficients]
    left, result = list(coefficients), []
    while left:
        chain = [left.pop(0)]
        while divisors := [c for c in left if chain[-1] % c == 0]:
            chain.append(divisors[0])
            left.remove(divisors[0])
        result.append(chain)
    return result


def _groups(terms: Sequence[Term], narrow: bool) -> list[tuple[Term, ...]]:
    """Terms of one coefficient that share a pass.

    Narrow counters are emptied in every pass, so all do. Wide ones go on counting, and with one
    term a pass no register is needed for another term's planes.
    """
    return [tuple(terms)] if narrow else [(term,) for term in terms]


def _counted_word(
    plan: TermPlan, terms: Sequence[Term], rows: int, vectors: int, isa: Isa
) -> Program:
    """`counter += popcount(op(planes))` for every term, row and register of channels."""
    program = Program(part=isa.bytes)
    counter, word = isa["count"].result, Vector(isa.lanes, 32)
    add = isa[f"add.{counter.bits}"]
    counters = {
        (m, n): program.input(f"c{m}.{n}", counter) for m in range(rows) for n in range(vectors)
    }
    for term in terms:
        for m in range(rows):
            for n in range(vectors):
                a = [program.input(f"a{plane}.{m}", word) for plane in term.activations]
                w = [program.input(f"w{plane}.{n}", word) for plane in term.weights]
                counted = program.apply(isa["count"], _logic(program, term, a, w, isa))
                counters[m, n] = program.apply(add, counters[m, n], counted)
    program.outputs = {f"c{m}.{n}": register for (m, n), register in counters.items()}
    return program


def _logic(
    program: Program, term: Term, a: Sequence[Register], w: Sequence[Register], isa: Isa
) -> Register:
    if term.op == "choose_a":
        return program.apply(isa["select"], *w, *a)
    if term.op == "choose_w":
        return program.apply(isa["select"], *a, *w)
    return program.apply(isa[term.op], *a, *w)


def products_body(signature: KernelSignature, isa: Isa) -> Body:
    """The body of 8-bit products: `group` neighbouring channels a step, four a word."""
    products = signature.products
    assert products is not None
    step = step_of(isa, products.bits)
    assert step is not None
    counter, a_kind, w_kind = step.kinds(isa)
    program = Program(part=min(kind.bytes for kind in (counter, a_kind, w_kind)))
    vectors = signature.channels // isa.lanes
    tile = [(m, n) for m in range(signature.rows) for n in range(vectors)]
    sums = {(m, n): program.input(f"c{m}.{n}", counter) for m, n in tile}
    for part in range(4 // products.group):
        for m, n in tile:
            a = program.input(f"a{part}.{m}", a_kind)
            w = program.input(f"w{part}.{n}", w_kind)
            sums[m, n] = step.emit(program, isa, sums[m, n], a, w)
    program.outputs = {f"c{m}.{n}": register for (m, n), register in sums.items()}
    return Body(counter, (Pass(1, program, 0, True),), _emptied(isa, counter, signed=True))


@dataclass(frozen=True)
class _Step:
    """How products get into lanes of one width."""

    parts: tuple[str, ...]
    """Rows of the instruction set: one that multiplies and adds, or two."""

    def kinds(self, isa: Isa) -> tuple[Vector, Vector, Vector]:
        """Types of counters, activations and weights."""
        first = isa[self.parts[0]]
        if len(self.parts) == 1:
            return first.operands[0], first.operands[1], first.operands[2]
        return first.result, first.operands[0], first.operands[1]

    def emit(
        self, program: Program, isa: Isa, total: Register, a: Register, w: Register
    ) -> Register:
        """Add the products of two registers to a third."""
        first = isa[self.parts[0]]
        if len(self.parts) == 1:
            return program.apply(first, total, a, w)
        return program.apply(isa[self.parts[1]], total, program.apply(first, a, w))


def step_of(isa: Isa, bits: int) -> _Step | None:
    """The step for lanes of `bits` bits, if the instruction set has one."""
    for parts in _STEPS[bits]:
        if all(part in isa for part in parts):
            return _Step(parts)
    return None


def narrow_products(isa: Isa, bits: int) -> int:
    """Channels a step multiplies into one 32-bit lane, in lanes of `bits` bits; 0 if it cannot."""
    step = step_of(isa, bits)
    return step.kinds(isa)[2].lanes // isa.lanes if step else 0


def _emptied(isa: Isa, counter: Vector, signed: bool = False) -> Program:
    """Counters as 32-bit lanes, by pairwise additions where they are narrower."""
    program = Program(part=isa.bytes)
    value = program.input("c0", counter)
    bits = counter.bits
    while bits < 32:
        value = program.apply(isa[f"pair_widen{'_signed' * signed}.{bits}"], value)
        bits *= 2
    program.outputs = {"s0": value}
    return program
