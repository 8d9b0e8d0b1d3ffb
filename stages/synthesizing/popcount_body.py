"""Bodies that count the bits of every word, and what the other bodies of bit planes share.

A packed word of a register is of one output channel; a word of activations is broadcast, so that no
horizontal addition is needed before a counter is flushed. The kernel boundary is the whole window:
passes over it count the terms of one coefficient, or of several in a chain 12, 6, 3 … in which each
divides the one before, by doubling what was counted so far.
"""

from __future__ import annotations

from collections.abc import Sequence

from hw.isa import Isa, Operation, Vector
from stages.kernels.signature import KernelSignature
from stages.kernels.terms import Term
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.counter_flush import flush_program, registers_of
from stages.synthesizing.vector_program import Program, Register


def popcount_body(signature: KernelSignature, isa: Isa) -> Body:
    """The body of a term plan."""
    plan = signature.plan
    assert plan is not None
    counter = isa[Operation.COUNT].result
    passes: list[Pass] = []
    for chain in chains(plan.coefficients, isa.counts_bytes):
        previous = 0
        for coefficient in chain:
            groups = _groups(plan.of(coefficient), isa.counts_bytes)
            for number, terms in enumerate(groups):
                word = _counted_step(signature, terms, isa)
                carried = 1 if number else previous // coefficient
                ends = coefficient == chain[-1] and number == len(groups) - 1
                passes.append(Pass(coefficient, word, carried, ends))
            previous = coefficient
    return Body(tuple(passes), flush_program(isa, counter, word_bits=signature.word_bits))


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

    Narrow counters are flushed in every pass, so all do. Wide ones go on counting, and with one
    term a pass no register is needed for another term's planes.
    """
    return [tuple(terms)] if narrow else [(term,) for term in terms]


def _counted_step(signature: KernelSignature, terms: Sequence[Term], isa: Isa) -> Program:
    """`counter += popcount(op(planes))` for every packed word of a step, term, row and register of
    channels."""
    program, step = Program(part=isa.bytes), signature.words_per_step
    counter, word = isa[Operation.COUNT].result, Vector(isa.lanes, 32)
    add = isa[Operation.ADD_8.for_lanes(counter.bits)]
    registers = registers_of(signature.channels, signature.word_bits, isa)
    tile = [(m, n) for m in range(signature.rows) for n in range(registers)]
    counters = {(m, n): program.input(f"c{m}.{n}", counter) for m, n in tile}
    for number in range(step):
        for term in terms:
            for m, n in tile:
                a = [program.input(f"a{p * step + number}.{m}", word) for p in term.activations]
                w = [program.input(f"w{p * step + number}.{n}", word) for p in term.weights]
                counted = program.apply(isa[Operation.COUNT], logic(program, term, a, w, isa))
                counters[m, n] = program.apply(add, counters[m, n], counted)
    program.outputs = {f"c{m}.{n}": register for (m, n), register in counters.items()}
    return program


def logic(
    program: Program, term: Term, a: Sequence[Register], w: Sequence[Register], isa: Isa
) -> Register:
    """The bits of a term, of its planes of activations and of weights."""
    if term.op == "choose_a":
        return program.apply(isa[Operation.SELECT], *w, *a)
    if term.op == "choose_w":
        return program.apply(isa[Operation.SELECT], *a, *w)
    return program.apply(isa[Operation(term.op)], *a, *w)
