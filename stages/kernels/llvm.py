"""LLVM IR as text, built line by line: fresh names, loops with carried values, declarations."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hw.isa import Instruction, Vector

L1_CACHE, L2_CACHE = 3, 2
"""Caches, as `llvm.prefetch` numbers them."""


@dataclass
class FunctionText:
    """The body of one LLVM function under construction."""

    lines: list[str] = field(default_factory=list)
    declarations: dict[str, None] = field(default_factory=dict)
    _count: int = 0
    _block: str = "entry"
    _entry: dict[str, str] = field(default_factory=dict)
    """What is computed once, in front of everything: right-hand side → name."""

    def name(self) -> str:
        """A fresh local value name."""
        self._count += 1
        return f"%v{self._count}"

    def let(self, right_hand_side: str) -> str:
        """Bind a right-hand side to a fresh name."""
        name = self.name()
        self.lines.append(f"  {name} = {right_hand_side}")
        return name

    def do(self, statement: str) -> None:
        """Append a statement without a result."""
        self.lines.append(f"  {statement}")

    def apply(self, instruction: Instruction, *operands: str, immediate: int | None = None) -> str:
        """Apply an instruction to operands of its own types."""
        # A helper's text is its intrinsic's declaration, which others share, and its definition.
        for declaration in re.split(r"\n(?=define)", instruction.declares or ""):
            if declaration:
                self.declarations[declaration] = None
        constant = "" if immediate is None else instruction.operands[-1].splat(immediate)
        if instruction.opaque:
            constant = self._opaque(instruction.operands[-1].llvm, constant)
        return self.let(instruction.text(operands, constant))

    def _opaque(self, kind: str, constant: str) -> str:
        """A constant as a value that LLVM knows nothing about, made once at the entry (ARM)."""
        line = f'call {kind} asm "", "=w,0"({kind} {constant})'
        if line not in self._entry:
            self._entry[line] = f"%k{len(self._entry)}"
        return self._entry[line]

    def after(self, value: str) -> None:
        """Volatile loads that follow wait for `value`, with its type, a register of ARM's."""
        self.do(f'call void asm sideeffect "", "w"({value})')

    def hidden(self, kind: str, value: str) -> str:
        """A value that LLVM knows nothing about, in a register of ARM's."""
        return self.let(f'call {kind} asm "", "=w,0"({kind} {value})')

    def held(self, kind: str, value: str) -> str:
        """A value in a register of ARM's, made before those that are held after it."""
        return self.let(f'call {kind} asm sideeffect "", "=w,0"({kind} {value})')

    def waiting(self, kind: str, value: str, other: str) -> str:
        """A value that is there once `other`, with its type, is: registers of x86.

        LLVM orders what has no effects by how many registers are in use.
        """
        return self.let(f'call {kind} asm "", "=v,0,v"({kind} {value}, {other})')

    def bitcast(self, value: str, source: str, target: str) -> str:
        """Reinterpret a vector; nothing where the types agree."""
        return value if source == target else self.let(f"bitcast {source} {value} to {target}")

    def splat(self, value: str, element: str, count: int) -> str:
        """A scalar in every lane."""
        kind = f"<{count} x {element}>"
        single = self.let(f"insertelement {kind} poison, {element} {value}, i64 0")
        return self.let(
            f"shufflevector {kind} {single}, {kind} poison, <{count} x i32> zeroinitializer"
        )

    def repeated(self, value: str, size: int, kind: Vector) -> str:
        """`size` bytes, as often as they fit into a register of bytes."""
        if size == kind.bytes:
            return value
        order = ", ".join(f"i32 {lane % size}" for lane in range(kind.lanes))
        source = f"<{size} x i8>"
        mask = f"<{kind.lanes} x i32> <{order}>"
        return self.let(f"shufflevector {source} {value}, {source} poison, {mask}")

    def lanes(self, kind: str, value: str, first: int, count: int) -> str:
        """`count` lanes from lane `first`."""
        order = ", ".join(f"i32 {lane}" for lane in range(first, first + count))
        return self.let(f"shufflevector {kind} {value}, {kind} poison, <{count} x i32> <{order}>")

    def joined(self, kind: str, low: str, high: str, count: int) -> str:
        """Two vectors of a kind, of `count` lanes each, as one: `low` has its first lanes."""
        order = ", ".join(f"i32 {lane}" for lane in range(2 * count))
        return self.let(f"shufflevector {kind} {low}, {kind} {high}, <{2 * count} x i32> <{order}>")

    def pointer(self, base: str, offset: str, kind: str = "i64") -> str:
        """`base` moved by `offset` bytes."""
        return self.let(f"getelementptr i8, ptr {base}, {kind} {offset}")

    def load(
        self, kind: str, base: str, align: int, offset: int = 0, volatile: bool = False
    ) -> str:
        """Load a value `offset` bytes behind `base`."""
        source = self.pointer(base, str(offset)) if offset else base
        return self.let(f"load {'volatile ' * volatile}{kind}, ptr {source}, align {align}")

    def store(self, kind: str, value: str, base: str, align: int, offset: int = 0) -> None:
        """Store a value `offset` bytes behind `base`."""
        target = self.pointer(base, str(offset)) if offset else base
        self.do(f"store {kind} {value}, ptr {target}, align {align}")

    def prefetch(self, place: str, cache: int) -> None:
        """Bring the line at a place into L1_CACHE or L2_CACHE; any address may be given."""
        self.declarations["declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"] = None
        self.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 {cache}, i32 1)")

    def loop(
        self,
        count: str,
        carried: Sequence[tuple[str, str]],
        body: Callable[[str, list[str]], list[str]],
        kind: str = "i64",
        unroll: bool = True,
    ) -> list[str]:
        """A loop of `count` (at least 1) iterations over carried `(type, initial)` values.

        `kind` is the type of `count` and of the index that `body` gets beside the carried values.
        Without `unroll` LLVM keeps the loop as it is.
        """
        self._count += 1
        label = f"loop{self._count}"
        before = self._block
        self.do(f"br label %{label}")
        self.lines.append(f"{label}:")
        self._block = label
        index = self.name()
        names = [self.name() for _ in carried]
        phis = len(self.lines)
        results = body(index, names)
        following = self.let(f"add nuw nsw {kind} {index}, 1")
        latch = self._block
        header = [f"  {index} = phi {kind} [ 0, %{before} ], [ {following}, %{latch} ]"]
        for name, (type_, initial), result in zip(names, carried, results, strict=True):
            header.append(
                f"  {name} = phi {type_} [ {initial}, %{before} ], [ {result}, %{latch} ]"
            )
        self.lines[phis:phis] = header
        again = self.let(f"icmp ult {kind} {following}, {count}")
        end = f"end{label.removeprefix('loop')}"
        kept = "" if unroll else f", !llvm.loop {_LOOP}"
        self.do(f"br i1 {again}, label %{label}, label %{end}{kept}")
        self.lines.append(f"{end}:")
        self._block = end
        return results

    def function(self, name: str, parameters: Sequence[str]) -> str:
        """The finished void function, without its declarations; TVM inlines it in any case."""
        head = f"define internal void @{name}({', '.join(parameters)}) alwaysinline nounwind {{"
        entry = [f"  {name} = {line}" for line, name in self._entry.items()]
        text = "\n".join([head, "entry:", *entry, *self.lines, "}"])
        return _with_metadata(name, text) if _LOOP in text else text


_LOOP = "!LOOP"


def _with_metadata(name: str, text: str) -> str:
    """The function with what `!LOOP` stands for: a property of loops, numbered by its name.

    Texts of several functions are put together, and metadata have numbers that all of them share.
    """
    number = int(hashlib.sha256(name.encode()).hexdigest()[:7], 16) * 2
    kept = f"!{number} = distinct !{{!{number}, !{number + 1}}}"
    disabled = f'!{number + 1} = !{{!"llvm.loop.unroll.disable"}}'
    return "\n".join([text.replace(_LOOP, f"!{number}"), kept, disabled])
