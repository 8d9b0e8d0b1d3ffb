"""Loops in an order of their own: what an in-order core runs without waiting.

LLVM's scheduler sees one turn of a loop, so that on a core without renaming each turn begins by
waiting for what it loads. Here a step's program becomes the text of a whole loop (A64): arithmetic
in the order in which results are ready, one instruction a cycle, and beside each, where one is left
to do, a load. What the first instructions of a turn read is loaded in the turn before it; the last
turn loads nothing for a next one. Vectors of weights come in halves: a load of 128 bits would keep
arithmetic waiting for two cycles, one of 64 bits does not (see `hw/timing/cortex-a53.yaml`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stages.synthesizing.vector_program import Program, Step

REGISTERS = 32
VECTOR = "<16 x i8>"
ARRANGEMENTS = {1: "16b", 2: "8h", 4: "4s", 8: "2d"}
"""Bytes of what fills all lanes of a register → what its lanes are called (A64)."""
WINDOW = 24
"""Instructions among which the next one is chosen."""
LATENCIES = {"eor": 1, "bsl": 1, "cnt": 2, "add.8": 2}
"""Of the rows that loops may be made of, cycles until their result is there."""
TEXTS = {
    "eor": "eor {0}.16b, {1}.16b, {2}.16b",
    "cnt": "cnt {0}.16b, {1}.16b",
    "add.8": "add {0}.16b, {1}.16b, {2}.16b",
    "bsl": "bsl {0}.16b, {2}.16b, {3}.16b",
}
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
    apart: int = 0
    """Bytes from a word to the next one at its pointer."""

    @property
    def is_word(self) -> bool:
        """Whether all lanes are filled with it."""
        return self.bytes in ARRANGEMENTS


@dataclass
class _Moment:
    """What starts in a cycle."""

    arithmetic: Step | None = None
    beside: _Beside | None = None


@dataclass(frozen=True)
class _Beside:
    """An instruction beside arithmetic: of a load, its low half, address or high half."""

    value: int
    kind: str
    is_next: bool = False
    """Whether it is for the next turn."""
    address: int = 0


@dataclass
class Loop:
    """The loop of a step's program, with loads of its inputs by name."""

    program: Program
    loads: Mapping[str, Load]
    step_bytes: Mapping[str, int]
    """How far pointers to vectors go on with a turn."""
    moments: list[_Moment] = field(default_factory=list)

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
            moment = _Moment(able[0] if able else None)
            if able:
                left.remove(able[0])
                ready[able[0].result[0]] = now + LATENCIES[able[0].instruction.name]
            self.moments.append(moment)
            now += 1

    @property
    def length(self) -> int:
        """Cycles of a turn."""
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
        for value in sorted(loaded, key=lambda v: (uses[v][0], self._load_of(v).offset))[::-1]:
            load, latest = self._load_of(value), uses[value][0] - LOADED
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
                    assert moment.beside is not None
                    moment.beside = replace(moment.beside, address=register)
                return
        raise CrowdedError("more addresses at a time than registers")

    def _load_of(self, value: int) -> Load:
        return self.loads[self.numbers[value]]

    def _place(self, value: int, kind: str, latest: int) -> int:
        """Put an instruction beside arithmetic, in a cycle at or before the latest one."""
        for at in range(latest, latest - self.length, -1):
            moment = self.moments[at % self.length]
            if moment.beside is None:
                moment.beside = _Beside(value, kind, at < 0)
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
                raise CrowdedError("a load is further ahead than a turn is long")
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

    # -- text ----------------------------------------------------------------------------------

    def text(self) -> tuple[str, str]:
        """The loop as inline assembly, and its constraints.

        Operands are counters and other vectors, pointers as `pointers` has them, how many turns
        there are, general registers for addresses, and how far words are apart if they are.
        """
        vectors = len(self.counters) + self.temporaries
        general = len(self.pointers) + 1
        self.count = vectors + len(self.pointers)
        self.first_address = vectors + general
        outputs = ["=&w"] * vectors + ["=&r"] * (general + ADDRESSES)
        tied = [*range(len(self.counters)), *range(vectors, vectors + general)]
        self.first_stride = len(outputs) + len(tied)
        lines = list(self._ahead())
        lines += [f"subs ${self.count}, ${self.count}, #1", "b.eq 2f"]
        lines += ["1:", *self._turn(False), "b.ne 1b", "2:", *self._turn(True)]
        constraints = ",".join([*outputs, *map(str, tied), *["r"] * len(self.strides), "~{cc}"])
        return "\\0A".join(lines), constraints

    @property
    def result(self) -> str:
        """The type of what the loop gives in LLVM IR: counters first."""
        vectors = [VECTOR] * (len(self.counters) + self.temporaries)
        numbers = ["ptr"] * len(self.pointers) + ["i64"] * (1 + ADDRESSES)
        return f"{{ {', '.join([*vectors, *numbers])} }}"

    def call(
        self, kinds: Sequence[str], counters: Sequence[str], places: Sequence[str], turns: str
    ) -> str:
        """The right-hand side of the loop in LLVM IR, from counters, where pointers begin, and how
        many turns there are, one at least."""
        text, constraints = self.text()
        given = [f"{kind} {count}" for kind, count in zip(kinds, counters, strict=True)]
        given += [*(f"ptr {place}" for place in places), f"i64 {turns}"]
        given += [f"i64 {stride}" for stride in self.strides]
        asm = f'asm "{text}", "{constraints}"'
        return f"call {self.result} {asm}({', '.join(given)}) memory(argmem: read) nounwind"

    @property
    def pointers(self) -> list[str]:
        """The pointers that it reads at, in order."""
        return list(dict.fromkeys(load.pointer for load in self.loads.values()))

    @property
    def strides(self) -> list[int]:
        """Bytes from word to word, where these do not lie one behind the other."""
        far = {x.apart for x in self.loads.values() if x.is_word and x.apart != x.bytes}
        assert len(far) <= 1, "words of one tensor are equally far apart"
        return [*far]

    def _ahead(self) -> Iterable[str]:
        """What the first turn reads that a turn before it would have loaded."""
        for moment in self.moments:
            if moment.beside is not None and moment.beside.is_next:
                yield from self._beside(moment.beside, 0)

    def _turn(self, is_last: bool) -> Iterable[str]:
        """A turn; pointers to vectors go on at its end."""
        ends: list[str] = []
        if not is_last:
            vectors = ((name, by) for name, by in self.step_bytes.items() if name in self.pointers)
            ends = [f"add {self._pointer(n)}, {self._pointer(n)}, #{by}" for n, by in vectors]
            ends.append(f"subs ${self.count}, ${self.count}, #1")
        for moment in self.moments:
            if (step := moment.arithmetic) is not None:
                registers = [self._vector(x) for (x,) in (step.result, *step.operands)]
                yield TEXTS[step.instruction.name].format(*registers)
            if (beside := moment.beside) is not None and not (is_last and beside.is_next):
                yield from self._beside(beside, 1 if beside.is_next else 0)
        yield from ends

    def _beside(self, beside: _Beside, turn: int) -> Iterable[str]:
        load, register = self._load_of(beside.value), self._vector(beside.value)
        pointer, address = self._pointer(load.pointer), f"${self.first_address + beside.address}"
        offset = load.offset + turn * self.step_bytes.get(load.pointer, 0)
        if beside.kind == "word":
            lanes = ARRANGEMENTS[load.bytes]
            is_near = load.apart == load.bytes
            moved = f"#{load.bytes}" if is_near else f"${self.first_stride}"
            yield f"ld1r {{{register}.{lanes}}}, [{pointer}], {moved}"
        elif beside.kind == "low":
            yield f"ldr ${{{register[1:]}:d}}, [{pointer}, #{offset}]"
        elif beside.kind == "address":
            yield f"add {address}, {pointer}, #{offset + 8}"
        else:
            yield f"ld1 {{{register}.d}}[1], [{address}]"

    def _vector(self, value: int) -> str:
        return f"${self.homes[value]}"

    def _pointer(self, name: str) -> str:
        vectors = len(self.counters) + self.temporaries
        return f"${vectors + self.pointers.index(name)}"
