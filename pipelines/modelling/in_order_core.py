"""Cycles of a block on a core that issues two instructions a cycle in program order.

The rules are those of a Cortex-A53 as GCC's cortex-a53.md, contributed by Arm, states them:

- the first instruction of a cycle takes the first slot, a second one the other;
- vector operations of 128 bits, and widening and narrowing ones, start in the first slot only and
  take both halves of their pipe; those of 64 bits take one half, in either slot;
- a load of more than 64 bits takes both slots when it starts, and keeps the first slot and the
  load pipe for a cycle more for every further 64 bits; a store of more than 128 likewise;
- a vector load of 64 bits starts beside anything but a vector multiplication (ncnn measured that);
- nothing overtakes: an instruction whose operands are not there holds all that come after it.

An instruction after a taken branch starts a new cycle. Branches are predicted and loads hit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelines.modelling.arm_decoder import DecodedInstruction

_WARM, _COUNTED = 8, 16
"""Rounds before a loop is taken to be steady, and those that are averaged."""
_ROOM = {"alu": 2, "mul": 2, "div": 2, "none": 2}
_ADDING = 4
"""Cycles after which a multiply-accumulate of floats takes the adding pipe."""


@dataclass
class Pipeline:
    """What is taken and what is under way."""

    now: int = 0
    slots: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Slots taken in each cycle, as bits: 1 is the first, 2 the second."""
    busy: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    """Halves taken of each unit in each cycle."""
    made: dict[str, tuple[int, DecodedInstruction]] = field(default_factory=dict)
    """Which instruction made each register, and when it started."""

    def issue(self, instruction: DecodedInstruction) -> None:
        """Start an instruction in the first cycle that takes it."""
        at = max(
            [self.now, *(self._ready(register, instruction) for register in instruction.reads)]
        )
        while not self._fits(instruction, at):
            at += 1
        self._take(instruction, at)
        self.now = at

    def _ready(self, register: str, instruction: DecodedInstruction) -> int:
        """When a register can be read by an instruction, by what made it and what reads it."""
        if register not in self.made:
            return 0
        start, maker = self.made[register]
        return start + _latency(maker, instruction, register)

    def _fits(self, instruction: DecodedInstruction, at: int) -> bool:
        taken = self.slots[at]
        if (
            (instruction.slot == "both" and taken)
            or (instruction.slot == "first" and taken & 1)
            or taken == 3
        ):
            return False
        if (_loads_vector(instruction) and self.busy["mul", at]) or (
            instruction.unit == "mul" and self.busy["vector load", at]
        ):
            return False
        room = _ROOM.get(instruction.unit, 1)
        if any(
            self.busy[_pipe(instruction), at + k] + instruction.halves > room
            for k in range(instruction.cycles)
        ):
            return False
        return not instruction.adds or self.busy["alu", at + _ADDING] + instruction.halves <= 2

    def _take(self, instruction: DecodedInstruction, at: int) -> None:
        self.slots[at] |= 3 if instruction.slot == "both" else 2 if self.slots[at] & 1 else 1
        for k in range(instruction.cycles):
            self.busy[_pipe(instruction), at + k] += instruction.halves
            if k and instruction.unit in {"load", "store"}:
                self.slots[at + k] |= 1
        if instruction.adds:
            self.busy["alu", at + _ADDING] += instruction.halves
        if _loads_vector(instruction):
            self.busy["vector load", at] += 1
        if instruction.unit == "branch":
            self.slots[at] = 3
        for register in instruction.writes:
            self.made[register] = (at, instruction)


def cycles(instructions: Sequence[DecodedInstruction]) -> float:
    """Cycles of one round of a block that is repeated, once it is steady."""
    if not instructions:
        return 0.0
    pipeline = Pipeline()
    begun = 0
    for count in range(_WARM + _COUNTED):
        if count == _WARM:
            begun = pipeline.now
        for instruction in instructions:
            pipeline.issue(instruction)
    return max((pipeline.now - begun) / _COUNTED, len(instructions) / 2)


def _loads_vector(instruction: DecodedInstruction) -> bool:
    return instruction.unit == "load" and instruction.kind == "vector"


def _pipe(instruction: DecodedInstruction) -> str:
    """The unit that is shared: loads and stores make their addresses in one place."""
    return "memory" if instruction.unit in {"load", "store"} else instruction.unit


def _latency(maker: DecodedInstruction, reader: DecodedInstruction, register: str) -> int:
    """Cycles from the start of what makes a register to the start of what reads it."""
    if register in maker.bases:
        return 1
    if register in reader.sums:
        if register in maker.sums:
            return reader.forwards
        if maker.kind in {"vector", "fma"} and maker.unit in {"mul", reader.unit, "load"}:
            return min(maker.latency, 1 if maker.kind == "vector" else maker.forwards)
    if register in reader.addresses:
        return 3 if maker.kind in {"alu", "load"} else maker.latency
    if reader.unit == "branch":
        return 0 if maker.kind == "alu" else maker.latency
    if reader.unit == "store":
        return max(0, maker.latency - 2) if maker.kind != "alu" else 0
    if maker.kind == "load" and reader.kind == "alu":
        return maker.latency - 1
    return maker.latency
