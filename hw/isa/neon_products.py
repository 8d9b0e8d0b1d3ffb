"""Products and pairwise sums of Advanced SIMD: LLVM selects them for sequences, A32 has halves.

Arm Architecture Reference Manuals, DDI 0487 and 0406: SMLAL, SMULL, SADALP, ADDP.
"""

from __future__ import annotations

from hw.isa.instruction import Instruction, Meaning, Vector, call, each, helper, pairs
from hw.isa.lane import Lane, Lanes
from hw.isa.operation import Operation

A64, A32 = "llvm.aarch64.neon.", "llvm.arm.neon."
"""How LLVM's intrinsics are called."""


def widened_pairs(bits: int, signed: bool = False) -> Meaning:
    """Sums of neighbouring lanes, in lanes twice as wide."""
    return lambda x: [p.extend(2 * bits, signed) + q.extend(2 * bits, signed) for p, q in pairs(x)]


def pair_sums(x: Lanes, y: Lanes) -> list[Lane]:
    """Sums of neighbouring lanes of two registers."""
    return [p + q for p, q in pairs([*x, *y])]


def smlal(name: str, bits: int = 16) -> Instruction:
    """Products of half a register of lanes, added to lanes twice as wide."""
    wide, narrow = Vector(64 // bits, 2 * bits), Vector(64 // bits, bits)
    return helper(
        name,
        (wide, narrow, narrow),
        wide,
        f"sext {narrow.llvm} %1 to {wide.llvm}\n"
        f"sext {narrow.llvm} %2 to {wide.llvm}\n"
        f"mul {wide.llvm} %a, %b\n"
        f"add {wide.llvm} %0, %c",
        each(lambda total, x, y: total + x.extend(2 * bits, True) * y.extend(2 * bits, True)),
    )


def byte_pairs(arm32: bool) -> dict[Operation, Instruction]:
    """Products of bytes in 16 bits, pairs of these added to 32, and pairs of those."""
    name, prefix = ("v", A32) if arm32 else ("", A64)
    half, byte, word = Vector(8, 8), Vector(8, 16), Vector(4, 32)
    pairwise = widened_pairs(16, signed=True)
    return {
        Operation.MULTIPLY_8: helper(
            "smull.s8",
            (half, half),
            byte,
            f"sext {half.llvm} %0 to {byte.llvm}\n"
            f"sext {half.llvm} %1 to {byte.llvm}\n"
            f"mul {byte.llvm} %a, %b",
            each(lambda x, y: x.extend(16, True) * y.extend(16, True)),
        ),
        Operation.PAIR_WIDEN_ADD_SIGNED_16: _adalp_signed(name, byte, word, pairwise),
        Operation.PAIR_ADD_32: pair_sums_of(word)
        if arm32
        else call("addp.32", f"{prefix}addp.v4i32", (word, word), word, pair_sums),
    }


def _adalp_signed(name: str, narrow: Vector, wide: Vector, pairwise: Meaning) -> Instruction:
    def meaning(total: Lanes, x: Lanes) -> list[Lane]:
        return [t + s for t, s in zip(total, pairwise(x), strict=True)]

    types = f"{wide.suffix}.{narrow.suffix}"
    if name:
        return call(f"{name}adalp.s16", f"{A32}vpadals.{types}", (wide, narrow), wide, meaning)
    pairs_of = f"call {wide.llvm} @{A64}saddlp.{types}({narrow.llvm} %1)"
    declares = f"declare {wide.llvm} @{A64}saddlp.{types}({narrow.llvm})"
    body = f"{pairs_of}\nadd {wide.llvm} %0, %a"
    return helper("adalp.s16", (wide, narrow), wide, body, meaning, declares)


def pair_sums_of(kind: Vector) -> Instruction:
    """Pairwise sums of two registers, which A32 has of halves."""
    half = Vector(kind.lanes // 2, kind.bits)
    intrinsic = f"{A32}vpadd.{half.suffix}"

    def order(first: int, count: int) -> str:
        return f"<{count} x i32> <{', '.join(f'i32 {first + n}' for n in range(count))}>"

    parts = [order(first, half.lanes) for first in (0, half.lanes)]
    body = "\n".join(
        [
            *(
                f"shufflevector {kind.llvm} %{x}, {kind.llvm} poison, {part}"
                for x in (0, 1)
                for part in parts
            ),
            f"call {half.llvm} @{intrinsic}({half.llvm} %a, {half.llvm} %b)",
            f"call {half.llvm} @{intrinsic}({half.llvm} %c, {half.llvm} %d)",
            f"shufflevector {half.llvm} %e, {half.llvm} %f, {order(0, kind.lanes)}",
        ]
    )
    declares = f"declare {half.llvm} @{intrinsic}({half.llvm}, {half.llvm})"
    return helper(f"vaddp.{kind.bits}", (kind, kind), kind, body, pair_sums, declares)
