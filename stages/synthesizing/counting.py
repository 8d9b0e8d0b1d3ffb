"""Bodies that count the bits of every word, and what the other bodies of bit planes share.

A 32-bit lane is one output channel; a word of activations is broadcast, so that no horizontal
addition is needed before a counter is emptied. The kernel boundary is the whole window: passes over
it count the terms of one coefficient, or of several in a chain 12, 6, 3 … in which each divides the
one before, by doubling what was counted so far.
"""

from __future__ import annotations

from collections.abc import Sequence

from hw.isa import Isa, Part, Vector
from stages.qnn.signature import KernelSignature
from stages.qnn.terms import Term, TermPlan
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.program import Program, Register


def popcount_body(signature: KernelSignature, isa: Isa) -> Body:
    """The body of a term plan."""
    plan = signature.plan
    assert plan is not None
    counter = isa[Part.COUNT].result
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
    return Body(tuple(passes), emptied(isa, counter))


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
    counter, word = isa[Part.COUNT].result, Vector(isa.lanes, 32)
    add = isa[Part.of("add", counter.bits)]
    counters = {
        (m, n): program.input(f"c{m}.{n}", counter) for m in range(rows) for n in range(vectors)
    }
    for term in terms:
        for m in range(rows):
            for n in range(vectors):
                a = [program.input(f"a{plane}.{m}", word) for plane in term.activations]
                w = [program.input(f"w{plane}.{n}", word) for plane in term.weights]
                counted = program.apply(isa[Part.COUNT], logic(program, term, a, w, isa))
                counters[m, n] = program.apply(add, counters[m, n], counted)
    program.outputs = {f"c{m}.{n}": register for (m, n), register in counters.items()}
    return program


def logic(
    program: Program, term: Term, a: Sequence[Register], w: Sequence[Register], isa: Isa
) -> Register:
    """The bits of a term, of its planes of activations and of weights."""
    if term.op == "choose_a":
        return program.apply(isa[Part.SELECT], *w, *a)
    if term.op == "choose_w":
        return program.apply(isa[Part.SELECT], *a, *w)
    return program.apply(isa[Part(term.op)], *a, *w)


def emptied(isa: Isa, counter: Vector, signed: bool = False) -> Program:
    """Counters as 32-bit lanes."""
    program = Program(part=isa.bytes)
    program.outputs = {
        "s0": widened(program, isa, program.input("c0", counter), counter.bits, signed)
    }
    return program


def emptied_halves(isa: Isa, together: int) -> Program:
    """Counters of float16, two of each output channel, as float32: one register of counters, or two
    `together`, which take the two slow conversions of one (Cortex-A76: 2 cycles each, of one pipe).
    """
    add = isa[Part.HALF_PAIR_ADD]
    program = Program(part=isa.bytes)
    counters = [program.input(f"c{i}", add.operands[0]) for i in range(together)]
    both = program.apply(add, counters[0], counters[-1])
    parts = (Part.HALF_WIDEN_LOW, Part.HALF_WIDEN_HIGH)[:together]
    program.outputs = {f"s{i}": program.apply(isa[part], both) for i, part in enumerate(parts)}
    return program


def widened(
    program: Program, isa: Isa, value: Register, bits: int, signed: bool = False
) -> Register:
    """Counters of `bits` bits as 32-bit lanes, by pairwise additions."""
    while bits < 32:
        value = program.apply(isa[Part.of("pair_widen" + "_signed" * signed, bits)], value)
        bits *= 2
    return value
