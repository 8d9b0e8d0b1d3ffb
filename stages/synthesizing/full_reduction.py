"""Kernels that reduce fully in one call: `rows` x `chunk` bytes of weights by one vector.

This is the boundary of the system of Cowan et al. (CGO 2020, section 4): the reduction axis lies in
lanes, an 8x8 kernel reads eight rows of eight bytes a plane and adds to eight 16-bit sums. It needs
no counters between calls, and no broadcast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from hw.isa import Isa, Operation, Vector
from hw.isa.exact import BitsLane
from hw.isa.sum_lane import Group, InexactError, zero_lane
from stages.kernels.llvm import FunctionText
from stages.kernels.terms import TermPlan, plane_bits
from stages.synthesizing.certificate import ProofError
from stages.synthesizing.interaction import residual
from stages.synthesizing.proof_inputs import packed_table
from stages.synthesizing.reduction import OUTPUT_BITS, REGISTER, Move, Stream
from stages.synthesizing.vector_program import Program, Register


@dataclass(frozen=True)
class FullSpec:
    """A matrix-vector product of a plan: `rows` rows of `chunk` bytes of bits a plane.

    The kernel counts in units of what divides all coefficients, and leaves that factor to what
    comes after, as it does the sums over activations.
    """

    plan: TermPlan
    rows: int
    chunk: int

    @property
    def registers(self) -> int:
        """Registers of weights a plane."""
        return self.rows * self.chunk // REGISTER

    @property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """Coefficients, and how many terms have each: all that a reduction depends on."""
        counts = Counter(term.coefficient // self.unit for term in self.plan.terms)
        return tuple(sorted(counts.items()))

    @property
    def unit(self) -> int:
        """The largest number that divides all coefficients."""
        return gcd(*self.plan.coefficients)


def full_program(spec: FullSpec, isa: Isa, moves: Sequence[Move]) -> Program:
    """Inputs `w{plane}.{register}.{use}`, `a{plane}`, `sums` (16-bit lanes); output `sums`.

    `moves` is a reduction of the terms' counts."""
    return _Builder(spec, isa).build(moves)


class _Builder:
    """Replays the moves of a reduction on registers."""

    def __init__(self, spec: FullSpec, isa: Isa) -> None:
        self.spec, self.isa = spec, isa
        self.program = Program(part=REGISTER // 2)
        self.streams: list[tuple[Stream, list[Register]]] = []
        self.uses = 0

    def build(self, moves: Sequence[Move]) -> Program:
        """The program: counts of each coefficient just before they are first moved."""
        program = self.program
        sums = program.input("sums", Vector(self.spec.rows, OUTPUT_BITS))
        for move in moves:
            registers = self._take(move.stream)
            if move.kind == "finish":
                for register in registers:
                    sums = self._apply(move, sums, register)
                continue
            assert move.result is not None
            self.streams.append((move.result, self._moved(move, registers)))
        program.outputs = {"sums": sums}
        return program.depth_first()

    def _moved(self, move: Move, registers: list[Register]) -> list[Register]:
        if move.kind == "pair_add":
            return self._pair_add(move.operation, registers)
        if move.kind == "pair_widen":
            return [self._sized(move.operation, x) for x in registers]
        assert move.other is not None
        others = self._take(move.other)
        if move.kind == "merge":
            return [self._apply(move, x, y) for x, y in zip(registers, others, strict=True)]
        return [self._sized(move.operation, y, x) for x, y in zip(registers, others, strict=True)]

    def _apply(self, move: Move, total: Register, x: Register) -> Register:
        immediate = move.factor if move.factor != 1 else None
        return self._sized(move.operation, total, x, immediate=immediate)

    def _sized(
        self, operation: Operation, *operands: Register, immediate: int | None = None
    ) -> Register:
        """The form of an instruction for the size of its first operand."""
        forms = self.isa.rows if len(operands[0]) == 2 else self.isa.half_registers
        return self.program.apply(forms[operation], *operands, immediate=immediate)

    def _pair_add(self, operation: Operation, registers: list[Register]) -> list[Register]:
        """Neighbouring lanes added; the order of rows stays."""
        if not self.isa.adds_half_registers and len(registers[0]) == 2:
            pairs = [registers[i : i + 2] for i in range(0, len(registers), 2)]
            whole = [self.program.apply(self.isa[operation], p[0], p[-1]) for p in pairs]
            return whole if len(registers) > 1 else [whole[0][:1]]
        halves = [(half,) for register in registers for half in register]
        added = [
            self.program.apply(self.isa.half_registers[operation], *halves[i : i + 2])
            for i in range(0, len(halves), 2)
        ]
        joined = [(*added[i], *added[i + 1]) for i in range(0, len(added) - 1, 2)]
        return joined or added

    def _take(self, stream: Stream) -> list[Register]:
        for number, (kept, registers) in enumerate(self.streams):
            if kept == stream:
                del self.streams[number]
                return registers
        return self._counted(stream.coefficient * self.spec.unit)

    def _counted(self, coefficient: int) -> list[Register]:
        """Bytes of counts of the terms of one coefficient, added up."""
        totals: list[Register] = []
        for term in self.spec.plan.of(coefficient):
            counts = []
            for r in range(self.spec.registers):
                a = [self._input(f"a{plane}") for plane in term.activations]
                w = [self._weight(plane, r) for plane in term.weights]
                operands = [*a, *w] if term.op == "choose_w" else [*w, *a]
                op = Operation.SELECT if term.op.startswith("choose") else Operation(term.op)
                bits = self.program.apply(self.isa[op], *operands)
                counts.append(self.program.apply(self.isa[Operation.COUNT], bits))
            totals = (
                [
                    self.program.apply(self.isa[Operation.ADD_8], x, y)
                    for x, y in zip(totals, counts, strict=True)
                ]
                if totals
                else counts
            )
        return totals

    def _input(self, name: str) -> Register:
        return self.program.input(name, Vector(REGISTER, 8))

    def _weight(self, plane: int, register: int) -> Register:
        """A register of weights, loaded for every use: BSL overwrites one of its operands, and a
        load is cheaper than a copy kept in a register."""
        self.uses += 1
        return self._input(f"w{plane}.{register}.{self.uses}")


def prove_full(spec: FullSpec, program: Program) -> None:
    """Check in the exact domain that each sum gains its own row's products; ProofError if not."""
    plan = spec.plan
    residual(plan)
    n, m = 1 << plan.activation_bits, 1 << plan.weight_bits
    pairs = np.arange(n * m)
    inputs: dict[str, list[object]] = {"sums": [zero_lane(OUTPUT_BITS)] * spec.rows}
    for plane, table in enumerate(plan.activation_planes):
        bits = packed_table(plane_bits(table, n)[pairs // m])
        inputs[f"a{plane}"] = [
            BitsLane((Group(None, 0, byte % spec.chunk, 8),), bits, n * m)
            for byte in range(REGISTER)
        ]
    for plane, table in enumerate(plan.weight_planes):
        bits = packed_table(plane_bits(table, m)[pairs % m])
        for r in range(spec.registers):
            places = [divmod(r * REGISTER + byte, spec.chunk) for byte in range(REGISTER)]
            inputs[f"w{plane}.{r}"] = [
                BitsLane((Group(row, None, k, 8),), bits, n * m) for row, k in places
            ]
    for name in program.inputs:
        if name.count(".") == 2:
            inputs[name] = inputs[name.rpartition(".")[0]]
    expected = plan.table()
    if plan.activation_sum:
        expected = expected - np.array(plan.activation_sum)[:, None]
    expected = expected // spec.unit
    try:
        sums = program.run({name: inputs[name] for name in program.inputs})["sums"]
        for row, lane in enumerate(sums):
            low, high = lane.range()
            if low < 0 or high >= 1 << OUTPUT_BITS:
                raise ProofError(f"row {row} sums to {low} to {high}")
            if set(lane.terms) != {Group(row, 0, k, 8) for k in range(spec.chunk)}:
                raise ProofError(f"row {row} sums other positions than its own")
            if any(not np.array_equal(v, expected.ravel()) for v in lane.terms.values()):
                raise ProofError(f"row {row} does not sum the products")
    except InexactError as error:
        raise ProofError(str(error)) from error


def full_text(name: str, spec: FullSpec, program: Program) -> tuple[str, list[str]]:
    """`void name(w, a, sums)` and its declarations; planes lie one behind the other."""
    code = FunctionText()

    def loaded(key: str) -> str:
        kind = program.types[key]
        if key == "sums":
            return code.load(kind.llvm, "%sums", 1)
        if key[0] == "a":
            return code.load(kind.llvm, "%a", 1, int(key[1:]) * REGISTER)
        plane, register, _ = (int(x) for x in key[1:].split("."))
        offset = (plane * spec.registers + register) * REGISTER
        # Volatile, or LLVM would load a register of weights once and copy it.
        return code.load(kind.llvm, "%w", 1, offset, volatile=True)

    sums = program.emit(code, loaded, in_order=True)["sums"]
    code.store(program.types["sums"].llvm, sums, "%sums", 1)
    code.do("ret void")
    parameters = ["ptr noalias readonly %w", "ptr noalias readonly %a", "ptr noalias %sums"]
    return code.function(name, parameters), list(code.declarations)
