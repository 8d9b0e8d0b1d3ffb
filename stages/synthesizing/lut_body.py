"""Bodies that look products up: a byte is one output channel, an index four bits of its weights.

A word is 32 input channels of one digit of the weights. The entries of its LUTs fit a byte for a
while, so those of a few words are added up in bytes first and then in counters of 16 bits. Where
widening bytes in place is cheap (ARM), counters are in the order of channels; elsewhere one counter
gains whole words of two bytes and another the odd bytes alone, which are taken off when counters
are flushed.
"""

from __future__ import annotations

from dataclasses import replace

from hw.isa import Isa, Operation, Vector
from stages.kernels.lut import GROUP, Lut
from stages.kernels.operand_storage import WORD_BITS
from stages.kernels.problems import Problem
from stages.kernels.signature import BLOCK, KernelSignature
from stages.synthesizing.body import Body, Pass
from stages.synthesizing.vector_program import Program, Register

BYTE_MAX, COUNTER_MAX = (1 << 8) - 1, (1 << 16) - 1
TOGETHER = (2, 3)
"""Words whose entries are added up together, beside single ones."""


def luts_for(problem: Problem, isa: Isa) -> list[Lut]:
    """The LUTs for a problem on an instruction set: none where it looks nothing up.

    Of several words as many are added up in bytes as fit, and divide the rows of common windows.
    """
    if Operation.LOOKUP not in isa:
        return []
    groups = max(1, isa.bytes // BLOCK)
    one = Lut(
        problem.activation_bits,
        problem.weight_bits,
        problem.weights,
        channels=isa.bytes // groups,
        groups=groups,
        interleave=1 if _widens_in_order(isa) else 4,
    )
    most = _entries(one) // one.lookups
    return [one, *(replace(one, words=words) for words in TOGETHER if words <= most)]


def _entries(lut: Lut) -> int:
    """Entries that fit a byte together."""
    return BYTE_MAX // (GROUP * lut.largest)


def _widens_in_order(isa: Isa) -> bool:
    return Operation.WIDEN_ADD_8 in isa


def words_between(lut: Lut) -> int:
    """Words after which counters of 16 bits must be flushed."""
    most = COUNTER_MAX // (WORD_BITS // lut.groups * lut.largest)
    return most - most % lut.words


def lookup_body(signature: KernelSignature, isa: Isa) -> Body:
    """The body of a signature with a LUT: a pass for every digit of the weights."""
    lut = signature.lut
    assert lut is not None
    passes = tuple(
        Pass(coefficient, _Word(signature, lut, digit, isa).program, 0, True)
        for digit, coefficient in enumerate(lut.coefficients)
    )
    return Body(passes, _flush_program(lut, isa))


class _Word:
    """What one digit of a step of words of weights adds to the counters of a tile."""

    def __init__(self, signature: KernelSignature, lut: Lut, digit: int, isa: Isa) -> None:
        self.isa, self.lut, self.rows = isa, lut, signature.rows
        self.in_order = _widens_in_order(isa)
        self.byte = isa[Operation.LOOKUP].result
        self.program = Program(part=isa.bytes // 2 if self.in_order else isa.bytes)
        self.registers = signature.channels // lut.channels
        self.tile = [(m, n) for m in range(self.rows) for n in range(self.registers)]
        counter = Vector(2 * isa.lanes, 16)
        self.counters = {
            (m, n): self.program.input(f"c{m}.{n}", counter)
            for m in range(self.rows)
            for n in range(2 * self.registers)
        }
        # As many look-ups as fit a byte, in runs of one length.
        lookups = lut.words * lut.lookups
        runs = -(-lookups // _entries(lut))
        self.sums: dict[tuple[int, int], Register] = {}
        for number in range(lookups):
            self._look_up(digit * lookups // 2, number)
            if (number + 1) * runs % lookups < runs:
                self._widen()
        self.program.outputs = {f"c{m}.{n}": c for (m, n), c in self.counters.items()}

    def _look_up(self, first: int, number: int) -> None:
        """Look up one index of every channel and pixel of the tile."""
        program, isa = self.program, self.isa
        half = isa[Operation.HIGH_NIBBLE if number % 2 else Operation.LOW_NIBBLE]
        weights = [
            program.input(f"w{first + number // 2}.{n}", self.byte) for n in range(self.registers)
        ]
        indices = [program.apply(half, w) for w in weights]
        for m, n in self.tile:
            table = program.input(f"a{number}.{m}", self.byte)
            found = program.apply(isa[Operation.LOOKUP], table, indices[n])
            before = self.sums.get((m, n))
            self.sums[m, n] = (
                program.apply(isa[Operation.ADD_8], before, found) if before else found
            )

    def _widen(self) -> None:
        """Add bytes to counters."""
        program, isa = self.program, self.isa
        for m, n in self.tile:
            total = self.sums.pop((m, n))
            first, second = (m, 2 * n), (m, 2 * n + 1)
            if self.in_order:
                add, halves = isa[Operation.WIDEN_ADD_8], [total[:1], total[1:]]
            else:
                add, halves = (
                    isa[Operation.ADD_16],
                    [total, program.apply(isa[Operation.ODD_8], total)],
                )
            for place, half in zip((first, second), halves, strict=True):
                self.counters[place] = program.apply(add, self.counters[place], half)


def _flush_program(lut: Lut, isa: Isa) -> Program:
    """The two counters of a register of bytes as 32-bit lanes, in the order of channels."""
    in_order = _widens_in_order(isa)
    program = Program(part=isa.bytes // 2 if in_order else isa.bytes)
    counters = [program.input(f"c{n}", Vector(2 * isa.lanes, 16)) for n in range(2)]
    if in_order:
        found = [program.apply(isa[Operation.WIDEN_16], (part,)) for c in counters for part in c]
    else:
        whole, odd = counters
        even = program.apply(isa[Operation.LESS_ODD_8], whole, odd)
        found = [
            program.apply(isa[each], words)
            for each in (Operation.EVEN_16, Operation.ODD_16)
            for words in (even, odd)
        ]
    if lut.groups == 2:
        add = isa[Operation.ADD_QUARTERS_32]
        found = [program.apply(add, *found[n : n + 2]) for n in range(0, len(found), 2)]
    program.outputs = {f"s{n}": register for n, register in enumerate(found)}
    return program
