"""Loops that are pipelined in software, as text: what an in-order core runs without waiting (A64).

`loop_schedule.py` says which instruction starts when; here that becomes inline assembly, which LLVM
does not reorder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stages.synthesizing.loop_schedule import (
    ADDRESSES,
    ARRANGEMENTS,
    LoopSchedule,
    PairedInstruction,
)

VECTOR = "<16 x i8>"
TEXTS = {
    "eor": "eor {0}.16b, {1}.16b, {2}.16b",
    "cnt": "cnt {0}.16b, {1}.16b",
    "add.8": "add {0}.16b, {1}.16b, {2}.16b",
    "bsl": "bsl {0}.16b, {2}.16b, {3}.16b",
}


class Loop(LoopSchedule):
    """The loop of a step's program: inline assembly and the call of it in LLVM IR."""

    def text(self) -> tuple[str, str]:
        """The loop as inline assembly, and its constraints.

        Operands are counters and other vectors, pointers as `pointers` has them, the number of
        iterations, general registers for addresses, and how far words are apart if they are.
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
        lines += ["1:", *self._iteration(False), "b.ne 1b", "2:", *self._iteration(True)]
        constraints = ",".join([*outputs, *map(str, tied), *["r"] * len(self.strides), "~{cc}"])
        return "\\0A".join(lines), constraints

    @property
    def result(self) -> str:
        """The type of what the loop gives in LLVM IR: counters first."""
        vectors = [VECTOR] * (len(self.counters) + self.temporaries)
        numbers = ["ptr"] * len(self.pointers) + ["i64"] * (1 + ADDRESSES)
        return f"{{ {', '.join([*vectors, *numbers])} }}"

    def call(
        self, kinds: Sequence[str], counters: Sequence[str], places: Sequence[str], iterations: str
    ) -> str:
        """The right-hand side of the loop in LLVM IR, from counters, where pointers begin, and how
        many iterations there are, one at least."""
        text, constraints = self.text()
        given = [f"{kind} {count}" for kind, count in zip(kinds, counters, strict=True)]
        given += [*(f"ptr {place}" for place in places), f"i64 {iterations}"]
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
        far = {x.distance for x in self.loads.values() if x.is_word and x.distance != x.bytes}
        assert len(far) <= 1, "words of one tensor are equally far apart"
        return [*far]

    def _ahead(self) -> Iterable[str]:
        """What the first iteration reads that an iteration before it would have loaded."""
        for moment in self.moments:
            if moment.paired is not None and moment.paired.is_next:
                yield from self._paired(moment.paired, 0)

    def _iteration(self, is_last: bool) -> Iterable[str]:
        """An iteration; pointers to vectors go on at its end."""
        ends: list[str] = []
        if not is_last:
            vectors = ((name, by) for name, by in self.step_bytes.items() if name in self.pointers)
            ends = [f"add {self._pointer(n)}, {self._pointer(n)}, #{by}" for n, by in vectors]
            ends.append(f"subs ${self.count}, ${self.count}, #1")
        for moment in self.moments:
            if (step := moment.arithmetic) is not None:
                registers = [self._vector(x) for (x,) in (step.result, *step.operands)]
                yield TEXTS[step.instruction.name].format(*registers)
            if (paired := moment.paired) is not None and not (is_last and paired.is_next):
                yield from self._paired(paired, 1 if paired.is_next else 0)
        yield from ends

    def _paired(self, paired: PairedInstruction, iteration: int) -> Iterable[str]:
        load, register = self.load_of(paired.value), self._vector(paired.value)
        pointer, address = self._pointer(load.pointer), f"${self.first_address + paired.address}"
        offset = load.offset + iteration * self.step_bytes.get(load.pointer, 0)
        if paired.kind == "word":
            lanes = ARRANGEMENTS[load.bytes]
            is_near = load.distance == load.bytes
            moved = f"#{load.bytes}" if is_near else f"${self.first_stride}"
            yield f"ld1r {{{register}.{lanes}}}, [{pointer}], {moved}"
        elif paired.kind == "low":
            yield f"ldr ${{{register[1:]}:d}}, [{pointer}, #{offset}]"
        elif paired.kind == "address":
            yield f"add {address}, {pointer}, #{offset + 8}"
        else:
            yield f"ld1 {{{register}.d}}[1], [{address}]"

    def _vector(self, value: int) -> str:
        return f"${self.homes[value]}"

    def _pointer(self, name: str) -> str:
        vectors = len(self.counters) + self.temporaries
        return f"${vectors + self.pointers.index(name)}"
