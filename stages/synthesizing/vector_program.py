"""Straight-line programs over registers: what the searches build, the proofs run, LLVM gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hw.isa import Instruction, Vector
from stages.kernels.llvm import FunctionText

Register = tuple[int, ...]
"""Numbers of the parts of a register, lowest first: one part, or two where halves have names."""


@dataclass(frozen=True, eq=False)
class Step:
    """`result = instruction(operands, immediate)`."""

    instruction: Instruction
    result: Register
    operands: tuple[Register, ...]
    immediate: int | None = None
    after: Register | None = None
    """What it waits for, though it does not read it (x86)."""


@dataclass
class Program:
    """Steps from named inputs to named outputs; every part is written once.

    `part` is the size in bytes of the parts that registers consist of; 0 where none has parts.
    """

    part: int
    inputs: dict[str, Register] = field(default_factory=dict)
    types: dict[str, Vector] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    outputs: dict[str, Register] = field(default_factory=dict)
    _parts: int = 0

    def input(self, name: str, kind: Vector) -> Register:
        """The register of an input; the same one for the same name."""
        if name not in self.inputs:
            self.inputs[name] = self._new(kind)
            self.types[name] = kind
        return self.inputs[name]

    def apply(
        self,
        instruction: Instruction,
        *operands: Register,
        immediate: int | None = None,
        after: Register | None = None,
    ) -> Register:
        """Append a step and return its result."""
        result = self._new(instruction.result)
        self.steps.append(Step(instruction, result, operands, immediate, after))
        return result

    def _new(self, kind: Vector) -> Register:
        first = self._parts
        self._parts += kind.bytes // self.part if self.part else 1
        return tuple(range(first, self._parts))

    def counts(self) -> Counter[str]:
        """How often each instruction occurs."""
        return Counter(step.instruction.name for step in self.steps)

    def live(self) -> int:
        """The largest number of parts that are in use at one time, inputs from their first use."""
        last = {part: number for number, step in enumerate(self.steps) for part in _read(step)}
        last |= {part: len(self.steps) for register in self.outputs.values() for part in register}
        alive: set[int] = set()
        most = 0
        for number, step in enumerate(self.steps):
            touched = {*_read(step), *step.result}
            alive |= touched
            most = max(most, len(alive))
            alive -= {part for part in touched if last.get(part, -1) <= number}
        return most

    def depth_first(self) -> Program:
        """The steps, each result as late as its reader allows: few registers are in use.

        Of two operands the one that needs more registers goes first (Sethi and Ullman, 1970).
        """
        maker = {part: step for step in self.steps for part in step.result}
        need: dict[Step, int] = {}
        for step in self.steps:
            needs = sorted((need.get(s, 0) for s in _makers(step, maker)), reverse=True)
            need[step] = max([n + i for i, n in enumerate(needs)] + [len(step.result)])
        ordered: dict[Step, None] = {}

        def visit(step: Step) -> None:
            for operand in sorted(_makers(step, maker), key=lambda s: -need[s]):
                visit(operand)
            ordered.setdefault(step)

        for register in self.outputs.values():
            for part in register:
                visit(maker[part])
        return replace(self, steps=list(ordered))

    def run(self, inputs: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """The outputs' lanes for the inputs' lanes, whichever reader they belong to."""
        state: dict[int, list[Any]] = {}
        for name, register in self.inputs.items():
            _spread(state, register, list(inputs[name]))
        for step in self.steps:
            operands = [_gathered(state, register) for register in step.operands]
            _spread(state, step.result, step.instruction.execute(operands, step.immediate))
        return {name: _gathered(state, register) for name, register in self.outputs.items()}

    def emit(
        self, code: FunctionText, operand: Callable[[str], str], in_order: bool = False
    ) -> dict[str, str]:
        """Append the LLVM IR of all steps; inputs and outputs are values of their own types.

        `operand` gives the value of an input, and is asked when it is first read: LLVM keeps the
        order of many loads. With `in_order` it has to, where loads are volatile, or it would load
        more than it has registers for.
        """
        values = Values(code)
        names = {register: name for name, register in self.inputs.items()}
        whole = {part: register for register in names for part in register}
        latest = ""

        def bring(register: Register) -> None:
            if register not in names or register in values.whole:
                return
            if in_order and latest:
                code.after(latest)
            name = names[register]
            values.define(register, operand(name), self.types[name])

        for step in self.steps:
            row = step.instruction
            for part in _read(step):
                bring(whole.get(part, (part,)))
            operands = [
                values.read(register, kind)
                for register, kind in zip(step.operands, row.operands, strict=True)
            ]
            if step.after is not None:
                other = f"{row.operands[-1].llvm} {values.read(step.after, row.operands[-1])}"
                operands[-1] = code.waiting(row.operands[-1].llvm, operands[-1], other)
            result = code.apply(row, *operands, immediate=step.immediate)
            values.define(step.result, result, row.result)
            latest = f"{row.result.llvm} {result}"
        for register in self.outputs.values():
            bring(register)
        return {name: values.name(register) for name, register in self.outputs.items()}


def _makers(step: Step, maker: Mapping[int, Step]) -> list[Step]:
    """The steps that make a step's operands, each once."""
    return list(dict.fromkeys(maker[part] for part in _read(step) if part in maker))


def _read(step: Step) -> list[int]:
    return [part for register in step.operands for part in register]


def _gathered(state: Mapping[int, list[Any]], register: Register) -> list[Any]:
    widths = {state[part][0].bits for part in register}
    if len(widths) == 1:
        return [lane for part in register for lane in state[part]]
    raise ValueError(f"parts {register} hold lanes of different widths")


def _spread(state: dict[int, list[Any]], register: Register, lanes: list[Any]) -> None:
    share = len(lanes) // len(register)
    for position, part in enumerate(register):
        state[part] = lanes[position * share : (position + 1) * share]


class Values:
    """The LLVM values that hold a program's registers; halves are shuffles, free in hardware."""

    def __init__(self, code: FunctionText) -> None:
        self.code = code
        self.whole: dict[Register, tuple[str, Vector]] = {}
        self.home: dict[int, Register] = {}

    def define(self, register: Register, value: str, kind: Vector) -> None:
        """Say which value a register holds."""
        self.whole[register] = value, kind
        for part in register:
            self.home[part] = register

    def name(self, register: Register) -> str:
        """The value as it was defined; bytes, where its parts were by themselves."""
        if register not in self.whole:
            homes = [self.home[part] for part in register]
            sizes = [self.whole[home][1].bytes // len(home) for home in homes]
            self._assemble(register, Vector(sum(sizes), 8))
        return self.whole[register][0]

    def read(self, register: Register, kind: Vector) -> str:
        """The register as a value of type `kind`."""
        if register not in self.whole:
            self._assemble(register, kind)
        value, found = self.whole[register]
        return self.code.bitcast(value, found.llvm, kind.llvm)

    def _assemble(self, register: Register, kind: Vector) -> None:
        """Make a register that was defined in other groupings of its parts."""
        halves = [self._half(part, Vector(kind.bytes // len(register), 8)) for part in register]
        if len(register) == 1:
            self.whole[register] = halves[0], Vector(kind.bytes, 8)
            return
        half = Vector(kind.bytes // 2, 8)
        joined = self.code.joined(half.llvm, halves[0], halves[1], half.lanes)
        self.whole[register] = joined, Vector(kind.bytes, 8)

    def _half(self, part: int, half: Vector) -> str:
        home = self.home[part]
        value, kind = self.whole[home]
        if len(home) == 1:
            return self.code.bitcast(value, kind.llvm, half.llvm)
        both = Vector(2 * half.lanes, 8)
        whole = self.code.bitcast(value, kind.llvm, both.llvm)
        return self.code.lanes(both.llvm, whole, home.index(part) * half.lanes, half.lanes)
