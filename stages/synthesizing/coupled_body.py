"""Bodies that count the bits of two words as one; `kernels.coupling` says why that is right."""

from __future__ import annotations

from hw.isa import Isa, Operation, Vector
from stages.kernels.coupling import is_coupled
from stages.kernels.operand_storage import WORD_BITS
from stages.kernels.signature import COUPLE, KernelSignature
from stages.kernels.terms import Term, TermPlan
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.counter_flush import registers_of, totals
from stages.synthesizing.vector_program import Program, Register

STEPS = (COUPLE, 2 * COUPLE)
"""Packed words of a step: with two couples, those of one are loaded beside the arithmetic of the
other."""


def coupled_steps(plan: TermPlan, isa: Isa, word_bits: int = WORD_BITS) -> list[int]:
    """Words of 32 bits that a step may have: none but on Arm as yet, whose choice overwrites what
    chooses."""
    if isa.architecture != "aarch64" or not is_coupled(plan):
        return []
    return [step * word_bits // WORD_BITS for step in STEPS if step * word_bits >= WORD_BITS]


def coupled_body(signature: KernelSignature, isa: Isa) -> Body:
    """The body of a term plan whose kernels take couples of words: a pass a coefficient."""
    plan = signature.plan
    assert plan is not None
    passes = tuple(
        Pass(coefficient, _Step(signature, plan.of(coefficient), isa).program, 0, True)
        for coefficient in plan.coefficients
    )
    return Body(passes, _flush_program(signature, isa))


class _Step:
    """What the terms of one coefficient in a step of words add to the counters of a tile.

    Of a pixel's counters `c{m}.{n}` the last one counts where its own two words differ.
    """

    def __init__(self, signature: KernelSignature, terms: tuple[Term, ...], isa: Isa) -> None:
        self.isa, self.step = isa, signature.words_per_step
        self.program = Program(part=isa.bytes)
        registers = registers_of(signature.channels, signature.word_bits, isa)
        self.counters = {
            (m, n): self.program.input(f"c{m}.{n}", isa[Operation.COUNT].result)
            for m in range(signature.rows)
            for n in range(registers + 1)
        }
        for number in range(0, self.step, COUPLE):
            for term in terms:
                self._couple(term, number, signature.rows, registers)
        self.program.outputs = {f"c{m}.{n}": count for (m, n), count in self.counters.items()}

    def _couple(self, term: Term, number: int, rows: int, registers: int) -> None:
        """Count two words of all pixels and channels: of what there is less, all are in registers
        at a time, of the other one by one."""
        pixels = [self._pixel(term, number, m) for m in range(rows)] if rows < registers else []
        if pixels:
            for n in range(registers):
                for m, pixel in enumerate(pixels):
                    self._beside(term, number, m, n, pixel)
        else:
            for m in range(rows):
                pixels.append(self._pixel(term, number, m))
                for n in range(registers):
                    self._beside(term, number, m, n, pixels[m])
                self._count(m, registers, pixels[m][1])
            return
        for m, (_, differ) in enumerate(pixels):
            self._count(m, registers, differ)

    def _pixel(self, term: Term, number: int, m: int) -> tuple[Register, Register]:
        """The second word of a pixel, and where it differs from the first."""
        (plane,) = term.activations
        first, second = (self._word("a", plane, number + word, m) for word in range(COUPLE))
        return second, self.program.apply(self.isa[Operation.XOR], first, second)

    def _beside(
        self, term: Term, number: int, m: int, n: int, pixel: tuple[Register, Register]
    ) -> None:
        """Count two words of a pixel beside those of a register of channels."""
        program, isa, (plane,), (second, differ) = self.program, self.isa, term.weights, pixel
        own, alike = (self._word("w", plane, number + word, n) for word in range(COUPLE))
        chosen = program.apply(isa[Operation.XOR], second, own)
        self._count(m, n, program.apply(isa[Operation.SELECT], chosen, alike, differ))

    def _count(self, m: int, n: int, bits: Register) -> None:
        counted = self.program.apply(self.isa[Operation.COUNT], bits)
        added = self.program.apply(self.isa[Operation.ADD_8], self.counters[m, n], counted)
        self.counters[m, n] = added

    def _word(self, operand: str, plane: int, number: int, place: int) -> Register:
        name = f"{operand}{plane * self.step + number}.{place}"
        return self.program.input(name, Vector(self.isa.lanes, 32))


def _flush_program(signature: KernelSignature, isa: Isa) -> Program:
    """All counters of a pixel as 32-bit lanes: twice each but the last one, less that."""
    word_bits, kind = signature.word_bits, isa[Operation.COUNT].result
    program = Program(part=isa.bytes // 2 if word_bits < WORD_BITS else isa.bytes)
    registers = registers_of(signature.channels, word_bits, isa)
    counts = [program.input(f"c{n}", kind) for n in range(registers + 1)]
    together = max(1, word_bits // WORD_BITS)
    sums = [
        total
        for n in range(0, registers, together)
        for total in totals(program, isa, counts[n : n + together], kind.bits, word_bits)
    ]
    # Every channel's lane counts the same.
    differ = totals(program, isa, [counts[-1]] * together, kind.bits, word_bits)[0]
    for n, total in enumerate(sums):
        twice = program.apply(isa[Operation.ADD_32], total, total)
        less = program.apply(isa[Operation.SCALE_ADD_32], twice, differ, immediate=-1)
        program.outputs[f"s{n}"] = less
    return program
