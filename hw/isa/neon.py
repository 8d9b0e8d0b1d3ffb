"""Advanced SIMD of ARMv8-A and ARMv7-A (Arm Architecture Reference Manuals, DDI 0487 and 0406).

MLA, SMLAL, UMLAL and BSL have no intrinsic of their own: LLVM selects them for the sequences here.
A64 names halves of a register only as its low 64 bits, A32 names both (d registers).
"""

from __future__ import annotations

from hw.isa.float_rows import bfloat16_dot, fused
from hw.isa.instruction import (
    Instruction,
    Vector,
    call,
    each,
    helper,
    nibbles,
    operator,
    popcount,
    scaled_sum,
    select,
)
from hw.isa.instruction_set import DOTS, Dot, Isa
from hw.isa.lane import Lane, Lanes
from hw.isa.neon_extensions import DOTPROD, FP16, I8MM
from hw.isa.neon_products import A32, A64, byte_pairs, pair_sums, pair_sums_of, smlal, widened_pairs
from hw.isa.operation import Operation

FACTORS = (2, 3, 4, 6, 12)
"""Constants that term plans multiply by."""


def _widening(
    name: str, size: int, bits: int, prefix: str, adalp: str
) -> dict[Operation, Instruction]:
    """Rows from lanes of `bits` bits in `size` bytes to lanes twice as wide."""
    narrow, wide = Vector(8 * size // bits, bits), Vector(4 * size // bits, 2 * bits)
    half = Vector(4 * size // bits, bits)
    pairwise = call(
        f"{name}addlp.u{bits}",
        f"{prefix}addl{'u' if 'arm.' in prefix else 'p'}.{wide.suffix}.{narrow.suffix}",
        (narrow,),
        wide,
        widened_pairs(bits),
    )
    meaning = widened_pairs(bits)
    accumulating = (
        call(
            f"{name}adalp.u{bits}",
            f"{adalp}.{wide.suffix}.{narrow.suffix}",
            (wide, narrow),
            wide,
            lambda total, x: [t + s for t, s in zip(total, meaning(x), strict=True)],
        )
        if adalp
        else helper(
            f"{name}adalp.u{bits}",
            (wide, narrow),
            wide,
            f"{pairwise.emit.format('%1')}\nadd {wide.llvm} %0, %a",
            lambda total, x: [t + s for t, s in zip(total, meaning(x), strict=True)],
            pairwise.declares or "",
        )
    )
    added = helper(
        f"{name}addw.u{bits}",
        (wide, half),
        wide,
        f"zext {half.llvm} %1 to {wide.llvm}\nadd {wide.llvm} %0, %a",
        each(lambda total, x: total + x.extend(2 * bits)),
    )
    scaled = Instruction(
        f"{name}mlal.u{bits}",
        (wide, half),
        wide,
        f"call {wide.llvm} @bk_{name}mlal_u{bits}"
        f"({wide.llvm} {{0}}, {half.llvm} {{1}}, {half.llvm} {{k}})",
        each(lambda total, x, k: total + x.extend(2 * bits).times(k)),
        f"define internal {wide.llvm} @bk_{name}mlal_u{bits}"
        f"({wide.llvm} %0, {half.llvm} %1, {half.llvm} %2) alwaysinline {{\n"
        f"  %a = zext {half.llvm} %1 to {wide.llvm}\n"
        f"  %b = zext {half.llvm} %2 to {wide.llvm}\n"
        f"  %c = mul {wide.llvm} %a, %b\n  %d = add {wide.llvm} %0, %c\n  ret {wide.llvm} %d\n}}",
        FACTORS,
        opaque=True,
    )
    signed = f"{prefix}addl" if "arm." in prefix else f"{prefix}addlp"
    signed = signed.replace(".vpaddl", ".vpaddls").replace(".uaddlp", ".saddlp")
    return {
        Operation.PAIR_WIDEN_SIGNED_8.for_lanes(bits): call(
            f"{name}addlp.s{bits}",
            f"{signed}.{wide.suffix}.{narrow.suffix}",
            (narrow,),
            wide,
            widened_pairs(bits, signed=True),
        ),
        Operation.PAIR_WIDEN_8.for_lanes(bits): pairwise,
        Operation.PAIR_WIDEN_ADD_8.for_lanes(bits): accumulating,
        Operation.WIDEN_ADD_8.for_lanes(bits): added,
        Operation.WIDEN_SCALE_ADD_8.for_lanes(bits): scaled,
    }


def _register(
    name: str, size: int, prefix: str, adalp: str, addp: str
) -> dict[Operation, Instruction]:
    """The rows on registers of `size` bytes; `addp` is the intrinsic of pairwise addition."""
    byte, word = Vector(size, 8), Vector(size // 4, 32)
    rows = {
        Operation.AND: operator(f"{name}and", "and", word, lambda x, y: x & y),
        Operation.OR: operator(f"{name}orr", "or", word, lambda x, y: x | y),
        Operation.XOR: operator(f"{name}eor", "xor", word, lambda x, y: x ^ y),
        Operation.SELECT: _select(name, byte if "arm." in prefix else word, prefix),
        Operation.COUNT: popcount(f"{name}cnt", byte),
        Operation.MAC_8: helper(
            f"{name}mla.8",
            (byte, byte, byte),
            byte,
            f"mul {byte.llvm} %1, %2\nadd {byte.llvm} %0, %a",
            each(lambda total, x, y: total + x * y),
        ),
    }
    for bits in (8, 16, 32):
        kind = Vector(8 * size // bits, bits)
        rows[Operation.ADD_8.for_lanes(bits)] = operator(
            f"{name}add.{bits}", "add", kind, lambda x, y: x + y
        )
        rows[Operation.SCALE_ADD_8.for_lanes(bits)] = scaled_sum(
            f"{name}mla_k.{bits}", kind, FACTORS, opaque=True
        )
    for bits in (8, 16):
        rows |= _widening(name, size, bits, prefix, adalp)
        if addp:
            kind = Vector(8 * size // bits, bits)
            intrinsic = f"{addp}.{kind.suffix}"
            rows[Operation.PAIR_ADD_8.for_lanes(bits)] = call(
                f"{name}addp.{bits}", intrinsic, (kind, kind), kind, pair_sums
            )
    return rows


def _select(name: str, kind: Vector, prefix: str) -> Instruction:
    operands = (kind, kind, kind)
    if "arm." in prefix:
        intrinsic = f"llvm.arm.neon.vbsl.{kind.suffix}"
        return call(f"{name}bsl", intrinsic, operands, kind, each(select))
    body = f"""
        and {kind.llvm} %0, %1
        xor {kind.llvm} %0, {kind.splat(-1)}
        and {kind.llvm} %b, %2
        or {kind.llvm} %a, %c"""
    return helper(f"{name}bsl", operands, kind, body, each(select))


def _half_registers(rows: dict[Operation, Instruction]) -> dict[Operation, Instruction]:
    """Rows on half registers; a widening operand would be a quarter, which has no name."""
    return {
        each: row for each, row in rows.items() if all(kind.bytes >= 8 for kind in row.operands)
    }


def _looked_up(*operands: Lanes) -> list[Lane]:
    """TBL: entries of a table of some registers, 0 behind its end."""
    *table, index = operands
    entries = [entry for register in table for entry in register]
    return [lane.lookup(entries) for lane in index]


def _looked_up_or_kept(kept: Lanes, *operands: Lanes) -> list[Lane]:
    """TBX: the same, but what was there before behind the table's end."""
    ones = [[~(lane ^ lane) for lane in register] for register in operands[:-1]]
    is_inside, found = _looked_up(*ones, operands[-1]), _looked_up(*operands)
    return [select(*lanes) for lanes in zip(is_inside, found, kept, strict=True)]


def _lookups() -> dict[Operation, Instruction]:
    """TBL over a register of 16 entries, and what its indices and sums need; over four of them."""
    byte = Vector(16, 8)
    return {
        Operation.LOOKUP: call(
            "tbl", "llvm.aarch64.neon.tbl1.v16i8", (byte, byte), byte, _looked_up
        ),
        Operation.LOOKUP_FOUR: call(
            "tbl4", "llvm.aarch64.neon.tbl4.v16i8", (byte,) * 5, byte, _looked_up
        ),
        Operation.LOOKUP_FOUR_ELSE: call(
            "tbx4", "llvm.aarch64.neon.tbx4.v16i8", (byte,) * 6, byte, _looked_up_or_kept
        ),
        **nibbles("", byte),
    }


def _extended(name: str) -> dict[Operation, Instruction]:
    """Rows from the lanes of half a register to lanes twice as wide."""
    rows = {}
    for bits in (8, 16):
        narrow, wide = Vector(64 // bits, bits), Vector(64 // bits, 2 * bits)
        rows[Operation.WIDEN_8.for_lanes(bits)] = Instruction(
            f"{name}.u{bits}",
            (narrow,),
            wide,
            f"zext {narrow.llvm} {{0}} to {wide.llvm}",
            each(lambda x: x.extend(2 * x.bits)),
        )
    return rows


_FMA, _VFMA = fused("fma", 4), fused("vfma", 4)

AARCH64 = Isa(
    name="neon_aarch64",
    architecture="aarch64",
    lanes=4,
    registers=32,
    rows={
        **_register("", 16, f"{A64}u", "", f"{A64}addp"),
        **dict.fromkeys(DOTS, smlal("smlal")),
        Operation.MAC_16: smlal("smlal.s8", 8),
        **byte_pairs(arm32=False),
        Operation.FLOAT_MAC: _FMA,
        Operation.BFLOAT16_DOT: bfloat16_dot(_FMA),
        **_lookups(),
        **_extended("uxtl"),
    },
    dots=(Dot(Operation.DOT, 1),),
    extensions=(DOTPROD, I8MM, FP16),
    half_registers=_half_registers(_register("d_", 8, f"{A64}u", "", f"{A64}addp")),
)

ARMV7 = Isa(
    name="neon_armv7",
    architecture="armv7",
    features=("+neon", "+vfp4"),
    lanes=4,
    registers=16,
    rows={
        **_register("v", 16, f"{A32}vp", f"{A32}vpadalu", ""),
        **dict.fromkeys(DOTS, smlal("smlal")),
        Operation.MAC_16: smlal("smlal.s8", 8),
        **byte_pairs(arm32=True),
        Operation.FLOAT_MAC: _VFMA,
        Operation.BFLOAT16_DOT: bfloat16_dot(_VFMA),
        **_extended("vmovl"),
        Operation.PAIR_ADD_16: pair_sums_of(Vector(8, 16)),
    },
    dots=(Dot(Operation.DOT, 1),),
    half_registers=_half_registers(_register("vd_", 8, f"{A32}vp", f"{A32}vpadalu", f"{A32}vpadd")),
    adds_half_registers=True,
)
