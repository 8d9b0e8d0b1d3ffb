"""What some 64-bit Arm processors have beyond Advanced SIMD (Arm Architecture Reference Manual,
DDI 0487: FEAT_DotProd, FEAT_FP16 and FEAT_I8MM)."""

from __future__ import annotations

from dataclasses import replace

from hw.isa.dot_products import dot_product, matrix_product
from hw.isa.float_rows import added_float16, fused_float16, widened_float16
from hw.isa.instruction import Instruction, Vector, call
from hw.isa.instruction_set import Dot, Extension
from hw.isa.lane import Lane, Lanes
from hw.isa.operation import Operation

_WORD, _BYTE = Vector(4, 32), Vector(16, 8)


def _dot(name: str, *, signed: bool) -> Instruction:
    """Four products of bytes a lane, weights signed, added to the lane."""
    intrinsic = f"llvm.aarch64.neon.{name}.v4i32.v16i8"
    row = call(name, intrinsic, (_WORD, _BYTE, _BYTE), _WORD, dot_product(4, signed=signed))
    if not signed:
        return row
    # Only the last factor may be a lane of a register, and it is pixels that lie in lanes.
    return replace(row, emit=row.text(("{0}", "{2}", "{1}")))


def _matrix(name: str, *, signed: bool) -> Instruction:
    """Eight products of bytes a lane, weights signed, of two pixels by two channels."""
    intrinsic = f"llvm.aarch64.neon.{name}.v4i32.v16i8"
    return call(name, intrinsic, (_WORD, _BYTE, _BYTE), _WORD, matrix_product(8, signed=signed))


def _halves(number: int, kind: Vector) -> Instruction:
    """One of the halves of two registers, as one register (ZIP1 or ZIP2 of 64 bits)."""
    half = kind.lanes // 2
    own = range(number * half, (number + 1) * half)
    order = ", ".join(f"i32 {lane}" for lane in (*own, *(kind.lanes + lane for lane in own)))

    def meaning(x: Lanes, y: Lanes) -> list[Lane]:
        return [*(x[lane] for lane in own), *(y[lane] for lane in own)]

    text = f"shufflevector {kind.llvm} {{0}}, {kind.llvm} {{1}}, <{kind.lanes} x i32> <{order}>"
    return Instruction(f"zip{number + 1}.{kind.bits}", (kind, kind), kind, text, meaning)


DOTPROD = Extension(
    "dot products of signed bytes",
    (("+dotprod",),),
    {Operation.DOT_SIGNED: _dot("sdot", signed=True)},
    dots=(Dot(Operation.DOT_SIGNED, 4, is_signed=True),),
)
FP16 = Extension(
    "products of floats of 16 bits",
    (("+fullfp16",),),
    {
        Operation.FLOAT16_MAC: fused_float16("fmla.8h", 8),
        Operation.FLOAT16_ADD: added_float16("fadd.8h", neighbours=False),
        Operation.FLOAT16_PAIR_ADD: added_float16("faddp.8h", neighbours=True),
        Operation.FLOAT16_WIDEN_LOW: widened_float16("fcvtl", 0),
        Operation.FLOAT16_WIDEN_HIGH: widened_float16("fcvtl2", 1),
    },
)
I8MM = Extension(
    "dot products of unsigned and signed bytes, and products of matrices of 2x8 and 8x2 bytes",
    (("+i8mm",),),
    {
        Operation.DOT_MIXED: _dot("usdot", signed=False),
        Operation.MATRIX_MIXED: _matrix("usmmla", signed=False),
        Operation.MATRIX_SIGNED: _matrix("smmla", signed=True),
        Operation.LOW_HALVES_8: _halves(0, _BYTE),
        Operation.HIGH_HALVES_8: _halves(1, _BYTE),
        Operation.LOW_HALVES_32: _halves(0, _WORD),
        Operation.HIGH_HALVES_32: _halves(1, _WORD),
    },
    dots=(
        Dot(Operation.DOT_MIXED, 4),
        Dot(Operation.MATRIX_MIXED, 8, pixels=2),
        Dot(Operation.MATRIX_SIGNED, 8, is_signed=True, pixels=2),
    ),
)
