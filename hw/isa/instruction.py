"""What an instruction is: one row with its meaning in NumPy and its form in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Instruction:
    """One vector instruction.

    `operands` and `result` are LLVM types such as `<16 x i8>`; `emit` is the right-hand side of
    its LLVM IR with `{0}`, `{1}` … for the operands; `declares` is the intrinsic it calls, if any;
    `meaning` maps NumPy lanes (unsigned unless the name says otherwise) to NumPy lanes.
    """

    name: str
    operands: tuple[str, ...]
    result: str
    emit: str
    meaning: Callable[..., Array]
    declares: str | None = None

    def __post_init__(self) -> None:
        for position in range(len(self.operands)):
            if f"{{{position}}}" not in self.emit:
                raise ValueError(f"{self.name}: operand {position} does not occur in {self.emit!r}")


@dataclass(frozen=True)
class Isa:
    """A vector instruction set as the kernel families see it: which row plays which part.

    A 32-bit lane belongs to one output channel. `count` counts bits of bytes (then `widen` sums
    four bytes of a lane into 32 bits) or of whole words (then `widen` is empty). `dot` adds the
    products of `dot_group` neighbouring 8-bit channels to a lane; `dot_wide` says that its
    operands are 16-bit.
    """

    name: str
    lanes: int
    registers: int
    logic: dict[str, Instruction]
    count: Instruction
    accumulate: Instruction
    widen: tuple[Instruction, ...]
    dot: Instruction
    dot_group: int

    @property
    def counts_bytes(self) -> bool:
        """Whether counts are accumulated in bytes and need flushing."""
        return bool(self.widen)

    def instructions(self) -> tuple[Instruction, ...]:
        """Every row, in order."""
        return (*self.logic.values(), self.count, self.accumulate, *self.widen, self.dot)


def vector(lanes: int, bits: int) -> str:
    """The LLVM type of `lanes` integers of `bits` bits."""
    return f"<{lanes} x i{bits}>"


def lanewise(
    name: str, op: str, lanes: int, bits: int, meaning: Callable[..., Array]
) -> Instruction:
    """A two-operand instruction that LLVM IR has an operator for."""
    kind = vector(lanes, bits)
    return Instruction(name, (kind, kind), kind, f"{op} {kind} {{0}}, {{1}}", meaning)


def count_bits(name: str, lanes: int, bits: int) -> Instruction:
    """Population count per lane."""
    kind = vector(lanes, bits)
    intrinsic = f"@llvm.ctpop.v{lanes}i{bits}"
    return Instruction(
        name,
        (kind,),
        kind,
        f"call {kind} {intrinsic}({kind} {{0}})",
        lambda x: np.bitwise_count(x).astype(x.dtype),
        f"declare {kind} {intrinsic}({kind})",
    )


def call(
    name: str,
    intrinsic: str,
    operands: tuple[str, ...],
    result: str,
    meaning: Callable[..., Array],
    extra: str = "",
    extra_type: str = "",
) -> Instruction:
    """An instruction behind an LLVM intrinsic; `extra` is a constant last argument."""
    arguments = ", ".join(f"{kind} {{{i}}}" for i, kind in enumerate(operands))
    types = ", ".join(operands)
    if extra:
        arguments, types = f"{arguments}, {extra_type} {extra}", f"{types}, {extra_type}"
    return Instruction(
        name,
        operands,
        result,
        f"call {result} @{intrinsic}({arguments})",
        meaning,
        f"declare {result} @{intrinsic}({types})",
    )


def splat(kind: str, value: int) -> str:
    """A constant vector of one value."""
    count, element = kind.strip("<>").split(" x ")
    return "<" + ", ".join([f"{element} {value}"] * int(count)) + ">"


def pair_sums(x: Array) -> Array:
    """Sums of neighbouring lanes in twice the width (uaddlp; pmaddubsw and pmaddwd by ones)."""
    wide: Array = x.astype(np.dtype(f"u{2 * x.dtype.itemsize}"))
    sums: Array = wide[0::2] + wide[1::2]
    return sums


def dot_products(group: int) -> Callable[..., Array]:
    """`accumulator + sum over the group of a * w` per lane, int32; a unsigned, w signed 8 bits."""

    def meaning(accumulator: Array, a: Array, w: Array) -> Array:
        product = a.astype(np.int64) * w.astype(np.int64)
        total = accumulator.astype(np.int64) + product.reshape(-1, group).sum(1)
        result: Array = total.astype(np.int32)
        return result

    return meaning
