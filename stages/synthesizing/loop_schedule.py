"""The schedule of a loop that is pipelined in software: order, loads, registers.

LLVM's scheduler sees one iteration of a loop, so that on a core without renaming each iteration
begins by waiting for what it loads. Here arithmetic stands in the order in which results are ready,
one instruction a cycle, and beside each, where one is left to do, a load: the two are issued as a
pair. What the first instructions of an iteration read is loaded in the iteration before it; the
last one loads nothing for a next one. Vectors of weights come in halves: a load of 128 bits would
keep arithmetic waiting for two cycles, one of 64 bits does not (see `hw/timing/cortex-a53.yaml`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stages.synthesizing.vector_program import Program, Step

REGISTERS = 32
ARRANGEMENTS = {1: "16b", 2: "8h", 4: "4s", 8: "2d"}
"""Bytes of what fills all lanes of a register → what its lanes are called (A64)."""
WINDOW = 24
"""Instructions among which the next one is chosen."""
LATENCIES = {"eor": 1, "bsl": 1, "cnt": 2, "add.8": 2}
"""Instruction that loops may be made of → cycles until its result is there."""
LOADED, HALVED = 5, 4
"""Cycles from a load to what reads it, and to that of the other half."""
ADDRESSED = 4
"""Cycles from the calculation of an address to the load."""
ADDRESSES = 6
"""General registers for addresses that are calculated."""


class CrowdedError(ValueError):
    """A loop that needs more registers than there are."""


@dataclass(frozen=True)
class Load:
    """A register to be loaded: a word of so many bytes for all lanes, or a vector of 16."""

    pointer: str
    """Which pointer it is at; words at one pointer are loaded one after the other."""
    offset: int
    bytes: int
    distance: int = 0
    """Bytes from a word to the next one at its pointer."""

    @property
    def is_word(self) -> bool:
        """Whether all lanes are filled with it."""
        return self.bytes in ARRANGEMENTS


@dataclass
class Moment:
    """What starts in a cycle."""

    arithmetic: Step | None = None
    paired: PairedInstruction | None = None


@dataclass(frozen=True)
class PairedInstruction:
    """An instruction beside arithmetic: of a load, its low half, address or high half."""

    value: int
    kind: str
    is_next: bool = False
    """Whether it is for the next iteration."""
    address: int = 0


@dataclass
class LoopSchedule:
    """Which instruction of a step's program starts in which cycle of an iteration, and in which
    register its result is; loads of inputs are given by name."""

    program: Program
    loads: Mapping[str, Load]
    step_bytes: Mapping[str, int]
    """How far pointers to vectors go on with an iteration."""
    moments: list[Moment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.numbers = {register[0]: name for name, register in self.program.inputs.items()}
        self._order()
        self._load()
        self._allocate()

    # -- order ---------------------------------------------------------------------------------

    def _order(self) -> None:
        """Arithmetic, one a cycle: the first of the next few whose operands are there."""
        ready: dict[int, int] = {}
        left = list(self.program.steps)
        now = 0
        while left:
            near = left[:WINDOW]
            made = {part for step in left for part in step.result}
            able = [
                step
                for step in near
                if all(ready.get(x, 0) <= now and x not in made for (x,) in step.operands)
            ]
            moment = Moment(able[0] if able else None)
            if able:
                left.remove(able[0])
                ready[able[0].result[0]] = now + LATENCIES[able[0].instruction.name]
            self.moments.append(moment)
            now += 1

    @property
    def length(self) -> int:
        """Cycles of an iteration."""
        return len(self.moments)

    def _uses(self) -> dict[int, list[int]]:
        uses: dict[int, list[int]] = {}
        for now, moment in enumerate(self.moments):
            for (value,) in moment.arithmetic.operands if moment.arithmetic else ():
                uses.setdefault(value, []).append(now)
        return uses

    # -- loads ---------------------------------------------------------------------------------

    def _load(self) -> None:
        """Place loads as late as what reads them allows, the latest first."""
        uses = self._uses()
        self.start: dict[int, int] = {}
        self.addresses: dict[int, set[int]] = {}
        loaded = [v for v, name in self.numbers.items() if name in self.loads]
        before: dict[str, int] = {}
        count = 0
        for value in sorted(loaded, key=lambda v: (uses[v][0], self.load_of(v).offset))[::-1]:
            load, latest = self.load_of(value), uses[value][0] - LOADED
            if load.is_word:
                latest = min(latest, before.get(load.pointer, latest + 1) - 1)
                before[load.pointer] = self._place(value, "word", latest)
                self.start[value] = before[load.pointer]
                continue
            high = self._place(value, "high", latest)
            self.start[value] = self._place(value, "low", high - HALVED)
            self._address(value, high, count)
            count += 1

    def _address(self, value: int, high: int, number: int) -> None:
        """Calculate the address of a high half, in a register that holds no other one by then."""
        at = self._place(value, "address", high - ADDRESSED)
        held = {t % self.length for t in range(at, high)}
        for register in (number % ADDRESSES, *range(ADDRESSES)):
            busy = self.addresses.setdefault(register, set())
            if high - at < self.length and not busy & held:
                busy |= held
                for now in (at, high):
                    moment = self.moments[now % self.length]
                    assert moment.paired is not None
                    moment.paired = replace(moment.paired, address=register)
                return
        raise CrowdedError("more addresses at a time than registers")

    def load_of(self, value: int) -> Load:
        """How an input is loaded."""
        return self.loads[self.numbers[value]]

    def _place(self, value: int, kind: str, latest: int) -> int:
        """Put an instruction beside arithmetic, in a cycle at or before the latest one."""
        for at in range(latest, latest - self.length, -1):
            moment = self.moments[at % self.length]
            if moment.paired is None:
                moment.paired = PairedInstruction(value, kind, at < 0)
                return at
        raise CrowdedError("more loads than arithmetic")

    # -- registers -----------------------------------------------------------------------------

    def _allocate(self) -> None:
        """Registers for all values: counters keep theirs, a choice takes that of what chooses."""
        uses = self._uses()
        self.homes: dict[int, int] = {}
        self.counters = [name for name in self.program.inputs if name[0] == "c"]
        for number, name in enumerate(self.counters):
            self.homes[self.program.inputs[name][0]] = number
        same: dict[int, int] = {}
        lives: dict[int, set[int]] = {}
        for value, at in self.start.items():
            lives[value] = {t % self.length for t in range(at + 1, uses[value][-1] + 1)}
            if uses[value][-1] - at >= self.length:
                raise CrowdedError("a load is further ahead than an iteration is long")
        for now, moment in enumerate(self.moments):
            if (step := moment.arithmetic) is None:
                continue
            (result,), name = step.result, step.instruction.name
            if name == "add.8":
                self.homes[result] = self.homes[step.operands[0][0]]
                continue
            life = set(range(now + 1, uses[result][-1] + 1))
            if name == "bsl":
                chooser = step.operands[0][0]
                if uses[chooser][-1] > now or chooser in self.start:
                    raise CrowdedError("what chooses is needed again")
                same[result] = same.get(chooser, chooser)
                lives[same[result]] |= life
            else:
                lives[result] = life
        busy: list[set[int]] = [set() for _ in range(REGISTERS - len(self.counters))]
        for value in sorted(lives, key=lambda v: (-len(lives[v]), v)):
            free = next((i for i, taken in enumerate(busy) if not taken & lives[value]), None)
            if free is None:
                raise CrowdedError("more values at a time than registers")
            busy[free] |= lives[value]
            self.homes[value] = len(self.counters) + free
        for result, chooser in same.items():
            self.homes[result] = self.homes[chooser]
        self.temporaries = sum(1 for taken in busy if taken)
