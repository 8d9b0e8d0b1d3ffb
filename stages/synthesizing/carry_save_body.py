"""Bodies that add bits up before they count them: full adders in place of most population counts.

At every position the sum of three bits is a bit of the same weight and a carry of twice that. What
is left of one step goes into the next, and of several words one is counted, in bytes (the circuit
of Harley and Seal; Muła, Kurz and Lemire, "Faster Population Counts Using AVX2 Instructions", The
Computer Journal 61(1), 2018, section 3). It pays where counting a word takes many instructions and
an adder two (VPTERNLOG).
"""

from __future__ import annotations

from hw.isa import Isa, Operation, Vector
from stages.kernels.signature import KernelSignature
from stages.kernels.terms import Term, TermPlan
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.counter_flush import widened
from stages.synthesizing.popcount_body import logic
from stages.synthesizing.vector_program import Program, Register

WORDS = (4, 6, 8, 12, 16)
"""Words of a step: rows of common windows are multiples of them."""
MOST_PIXELS = 3
"""Larger tiles would save loads, of which adders leave room for many."""
MOST_LEVELS = 4
"""More would leave a larger tile no registers."""


def steps_of(plan: TermPlan, isa: Isa) -> list[int]:
    """Words that a step may have: none without adders, or where counting takes one instruction."""
    if Operation.BIT_CARRY not in isa or not isa.counts_bytes:
        return []
    return [words for words in WORDS if levels_of(plan, words) <= MOST_LEVELS]


def levels_of(plan: TermPlan, words: int) -> int:
    """Weights 1, 2, 4 … of carried bits, where a step leaves one word to count."""
    return (words * plan.widest - 1).bit_length()


def carry_save_body(signature: KernelSignature, isa: Isa) -> Body:
    """The body of a term plan whose kernels take several words a step."""
    plan = signature.plan
    assert plan is not None
    levels = levels_of(plan, signature.step)
    passes = tuple(
        Pass(coefficient, _Step(signature, plan.of(coefficient), levels, isa).program, 0, True)
        for coefficient in plan.coefficients
    )
    return Body(passes, _flush_program(levels, isa), carried_bits=levels)


class _Step:
    """What the terms of one coefficient in a step of words add to the bits and counts of a tile.

    Words are the outermost loop, so that few of them are in registers at a time.
    """

    def __init__(
        self, signature: KernelSignature, terms: tuple[Term, ...], levels: int, isa: Isa
    ) -> None:
        self.isa, self.levels, self.step = isa, levels, signature.step
        self.program = Program(part=isa.bytes)
        word, count = Vector(isa.lanes, 32), isa[Operation.COUNT].result
        self.tile = [
            (m, n) for m in range(signature.rows) for n in range(signature.channels // isa.lanes)
        ]
        self.waiting: dict[tuple[int, int, int], Register] = {}
        self.state = {
            (m, n, level): self.program.input(
                f"c{m}.{n * (levels + 1) + level}", word if level < levels else count
            )
            for m, n in self.tile
            for level in range(levels + 1)
        }
        for number in range(signature.step):
            for term in terms:
                for m, n in self.tile:
                    a = [self._word("a", p, number, m) for p in term.activations]
                    w = [self._word("w", p, number, n) for p in term.weights]
                    self._add(m, n, 0, logic(self.program, term, a, w, isa))
        for level in range(levels):
            for m, n in self.tile:
                self._settle(m, n, level)
        self.program.outputs = {
            f"c{m}.{n * (levels + 1) + level}": register
            for (m, n, level), register in self.state.items()
        }

    def _word(self, operand: str, plane: int, number: int, place: int) -> Register:
        name = f"{operand}{plane * self.step + number}.{place}"
        return self.program.input(name, Vector(self.isa.lanes, 32))

    def _add(self, m: int, n: int, level: int, bits: Register) -> None:
        """Add bits to those of a weight: two and what is carried make a sum and a carry."""
        program, isa, place = self.program, self.isa, (m, n, level)
        if level == self.levels:
            counted = program.apply(isa[Operation.COUNT], bits)
            self.state[place] = program.apply(isa[Operation.ADD_8], self.state[place], counted)
        elif (other := self.waiting.pop(place, None)) is None:
            self.waiting[place] = bits
        else:
            three = self.state[place], other, bits
            self.state[place] = program.apply(isa[Operation.BIT_SUM], *three)
            self._add(m, n, level + 1, program.apply(isa[Operation.BIT_CARRY], *three))

    def _settle(self, m: int, n: int, level: int) -> None:
        """Add bits that have no partner in this step."""
        program, isa, place = self.program, self.isa, (m, n, level)
        if (bits := self.waiting.pop(place, None)) is not None:
            before = self.state[place]
            self.state[place] = program.apply(isa[Operation.XOR], before, bits)
            self._add(m, n, level + 1, program.apply(isa[Operation.AND], before, bits))


def _flush_program(levels: int, isa: Isa) -> Program:
    """What carried bits and counts hold, as 32-bit lanes."""
    program = Program(part=isa.bytes)
    bits = [program.input(f"c{level}", Vector(isa.lanes, 32)) for level in range(levels)]
    counts = program.input(f"c{levels}", isa[Operation.COUNT].result)
    if Operation.WEIGHED_8 in isa:
        total = widened(program, isa, program.apply(isa[Operation.COUNT], bits[0]), 8)
        heavier = [*(program.apply(isa[Operation.COUNT], one) for one in bits[1:]), counts]
        for level, counted in enumerate(heavier, 1):
            total = program.apply(isa[Operation.WEIGHED_8], total, counted, immediate=1 << level)
    else:
        left = program.apply(isa[Operation.COUNT], bits[-1])
        for one in reversed(bits[:-1]):
            twice = program.apply(isa[Operation.ADD_8], left, left)
            left = program.apply(
                isa[Operation.ADD_8], twice, program.apply(isa[Operation.COUNT], one)
            )
        few, many = (widened(program, isa, value, 8) for value in (left, counts))
        total = program.apply(isa[Operation.SCALE_ADD_32], few, many, immediate=1 << levels)
    program.outputs = {"s0": total}
    return program
