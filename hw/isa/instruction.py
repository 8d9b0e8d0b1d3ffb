"""What an instruction is: one row, with one meaning for all readers and its form in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hw.isa.lane import L, Lane, Lanes, regroup
from hw.isa.operation import Operation

Meaning = Callable[..., list[Lane]]
"""Operand registers as lists of `Lane` (then the immediate, if any) to the result's lanes."""


@dataclass(frozen=True)
class Vector:
    """The type of a register: `lanes` integers of `bits` bits."""

    lanes: int
    bits: int

    @property
    def llvm(self) -> str:
        """The type in LLVM IR."""
        return f"<{self.lanes} x i{self.bits}>"

    @property
    def suffix(self) -> str:
        """The type in the name of an LLVM intrinsic."""
        return f"v{self.lanes}i{self.bits}"

    @property
    def bytes(self) -> int:
        """Size of the register."""
        return self.lanes * self.bits // 8

    def splat(self, value: int) -> str:
        """A constant of one value, without its type."""
        return "<" + ", ".join([f"i{self.bits} {value}"] * self.lanes) + ">"


@dataclass(frozen=True)
class Instruction:
    """One vector instruction, or a fixed short sequence that LLVM IR has one operator for.

    `emit` is the right-hand side of its LLVM IR, with `{0}`, `{1}` … for the operands and `{k}` for
    an immediate, in every lane of the last operand's type; `declares` is the intrinsic or helper
    it calls. `meaning` is read by NumPy, by Z3 and by the exact domain (see `hw.isa.lane`).
    `immediates` lists constants to test it with; empty if it takes none. LLVM must not know an
    `opaque` constant: it would turn the one multiply-accumulate by a power of two into a shift and
    an addition.
    """

    name: str
    operands: tuple[Vector, ...]
    result: Vector
    emit: str
    meaning: Meaning
    declares: str | None = None
    immediates: tuple[int, ...] = ()
    opaque: bool = False

    def __post_init__(self) -> None:
        for position in range(len(self.operands)):
            if f"{{{position}}}" not in self.emit:
                raise ValueError(f"{self.name}: operand {position} does not occur in {self.emit!r}")
        if bool(self.immediates) != ("{k}" in self.emit):
            raise ValueError(f"{self.name}: immediates and {self.emit!r} do not agree")

    def text(self, operands: Sequence[str], constant: str = "") -> str:
        """The right-hand side of its LLVM IR; `constant` is the immediate in every lane."""
        return self.emit.format(*operands, k=constant)

    def execute(self, registers: Sequence[Lanes], immediate: int | None = None) -> list[Any]:
        """The result's lanes for operand registers, whichever reader their lanes belong to.

        Of the exact domain bits may become sums, so that the caller says which lanes it expects.
        """
        seen = [regroup(r, kind.bits) for r, kind in zip(registers, self.operands, strict=True)]
        lanes = self.meaning(*seen) if immediate is None else self.meaning(*seen, immediate)
        return [lane.as_operand() for lane in lanes]


# -- ways to write a meaning -------------------------------------------------------------------


def each(function: Callable[..., Lane]) -> Meaning:
    """Lane by lane; an immediate, an int, goes to every lane."""

    def meaning(*operands: Lanes | int) -> list[Lane]:
        constants = [x for x in operands if isinstance(x, int)]
        registers = [x for x in operands if not isinstance(x, int)]
        return [function(*lanes, *constants) for lanes in zip(*registers, strict=True)]

    return meaning


def pairs(lanes: Sequence[L]) -> list[tuple[L, L]]:
    """Neighbouring lanes."""
    return list(zip(lanes[0::2], lanes[1::2], strict=True))


def select(mask: L, x: L, y: L) -> L:
    """Bits of `x` where `mask` is set, of `y` elsewhere."""
    return (mask & x) | (~mask & y)


def multiply_add(total: L, x: L, factor: int) -> L:
    """`total + factor * x`."""
    return total + x.times(factor)


def nibble(number: int) -> Meaning:
    """A lane's half byte, as a number of a whole one: an index to look up."""
    return each(lambda x: x.split(4)[number].extend(8))


def low(lanes: Sequence[L]) -> list[L]:
    """The lower lane of each pair, as a lane of the pair's width."""
    return [first.extend(2 * first.bits) for first, _ in pairs(lanes)]


def high(lanes: Sequence[L]) -> list[L]:
    """The upper lane of each pair, as a lane of the pair's width."""
    return [second.extend(2 * second.bits) for _, second in pairs(lanes)]


# -- ways to write the LLVM IR -----------------------------------------------------------------


def operator(name: str, op: str, kind: Vector, meaning: Callable[..., Lane]) -> Instruction:
    """Two operands of one type that LLVM IR has an operator for."""
    text = f"{op} {kind.llvm} {{0}}, {{1}}"
    return Instruction(name, (kind, kind), kind, text, each(meaning))


def call(
    name: str,
    intrinsic: str,
    operands: tuple[Vector, ...],
    result: Vector,
    meaning: Meaning,
    constant: tuple[str, str] | None = None,
) -> Instruction:
    """An intrinsic; `constant` is the type and the value of a fixed last argument."""
    arguments = [f"{kind.llvm} {{{i}}}" for i, kind in enumerate(operands)]
    types = [kind.llvm for kind in operands]
    if constant:
        arguments.append(" ".join(constant))
        types.append(constant[0])
    return Instruction(
        name,
        operands,
        result,
        f"call {result.llvm} @{intrinsic}({', '.join(arguments)})",
        meaning,
        f"declare {result.llvm} @{intrinsic}({', '.join(types)})",
    )


def helper(
    name: str,
    operands: tuple[Vector, ...],
    result: Vector,
    body: str,
    meaning: Meaning,
    declares: str = "",
) -> Instruction:
    """A sequence that the compiler selects one instruction for, in an always-inline function.

    `body` reads `%0`, `%1` …, one right-hand side a line, and returns its last line's value; its
    lines are named `%a`, `%b` … in order.
    """
    function = f"bk_{name.replace('.', '_').replace('/', '_')}"
    lines = [line.strip() for line in body.strip().splitlines()]
    named = [f"  %{chr(97 + i)} = {line}" for i, line in enumerate(lines)]
    parameters = ", ".join(f"{kind.llvm} %{i}" for i, kind in enumerate(operands))
    definition = [
        f"define internal {result.llvm} @{function}({parameters}) alwaysinline {{",
        *named,
        f"  ret {result.llvm} %{chr(96 + len(lines))}",
        "}",
    ]
    arguments = ", ".join(f"{kind.llvm} {{{i}}}" for i, kind in enumerate(operands))
    text = "\n".join(([declares] if declares else []) + definition)
    emit = f"call {result.llvm} @{function}({arguments})"
    return Instruction(name, operands, result, emit, meaning, text)


def with_constant(
    name: str, op: str, kind: Vector, constant: int, meaning: Meaning, seen: Vector | None = None
) -> Instruction:
    """An operator of LLVM IR with a constant in every lane, on a register seen as lanes `kind`.

    `seen` is the type of the operand, where it is not that of the result.
    """
    text = f"{op} {kind.llvm} {{0}}, {kind.splat(constant)}"
    if seen is None:
        return Instruction(name, (kind,), kind, text, meaning)
    body = f"bitcast {seen.llvm} %0 to {kind.llvm}\n{text.format('%a')}"
    return helper(name, (seen,), kind, body, meaning)


def nibbles(prefix: str, kind: Vector) -> dict[Operation, Instruction]:
    """Half bytes, each as a byte."""
    return {
        Operation.LOW_NIBBLE: with_constant(f"{prefix}low_nibble", "and", kind, 15, nibble(0)),
        Operation.HIGH_NIBBLE: with_constant(f"{prefix}high_nibble", "lshr", kind, 4, nibble(1)),
    }


def popcount(name: str, kind: Vector) -> Instruction:
    """Population count per lane."""
    intrinsic = f"llvm.ctpop.{kind.suffix}"
    return call(name, intrinsic, (kind,), kind, each(lambda x: x.popcount()))


def scaled_sum(
    name: str, kind: Vector, immediates: tuple[int, ...], opaque: bool = False
) -> Instruction:
    """`{0} + k * {1}`: a multiply-accumulate by a constant."""
    function = f"bk_{name.replace('.', '_').replace('/', '_')}"
    return Instruction(
        name,
        (kind, kind),
        kind,
        f"call {kind.llvm} @{function}({kind.llvm} {{0}}, {kind.llvm} {{1}}, {kind.llvm} {{k}})",
        each(multiply_add),
        f"define internal {kind.llvm} @{function}"
        f"({kind.llvm} %0, {kind.llvm} %1, {kind.llvm} %2) alwaysinline {{\n"
        f"  %a = mul {kind.llvm} %1, %2\n  %b = add {kind.llvm} %0, %a\n  ret {kind.llvm} %b\n}}",
        immediates,
        opaque,
    )
