"""What some 64-bit Arm processors have beyond Advanced SIMD (Arm Architecture Reference Manual,
DDI 0487: FEAT_DotProd, FEAT_FP16 and FEAT_I8MM)."""

from __future__ import annotations

from dataclasses import replace

from hw.isa.floats import added_halves, fused_halves, widened_half
from hw.isa.instruction import Instruction, Vector, call
from hw.isa.parts import Part
from hw.isa.products import dot_product
from hw.isa.sets import Dot, Extension

_WORD, _BYTE = Vector(4, 32), Vector(16, 8)


def _dot(name: str, *, signed: bool) -> Instruction:
    """Four products of bytes a lane, weights signed, added to the lane."""
    intrinsic = f"llvm.aarch64.neon.{name}.v4i32.v16i8"
    row = call(name, intrinsic, (_WORD, _BYTE, _BYTE), _WORD, dot_product(4, signed=signed))
    if not signed:
        return row
    # Only the last factor may be a lane of a register, and it is pixels that lie in lanes.
    return replace(row, emit=row.text(("{0}", "{2}", "{1}")))


DOTPROD = Extension(
    "dot products of signed bytes",
    (("+dotprod",),),
    {Part.DOT_SIGNED: _dot("sdot", signed=True)},
    dots=(Dot(Part.DOT_SIGNED, 4, is_signed=True),),
)
FP16 = Extension(
    "products of floats of 16 bits",
    (("+fullfp16",),),
    {
        Part.HALF_MAC: fused_halves("fmla.8h", 8),
        Part.HALF_ADD: added_halves("fadd.8h", neighbours=False),
        Part.HALF_PAIR_ADD: added_halves("faddp.8h", neighbours=True),
        Part.HALF_WIDEN_LOW: widened_half("fcvtl", 0),
        Part.HALF_WIDEN_HIGH: widened_half("fcvtl2", 1),
    },
)
I8MM = Extension(
    "dot products of unsigned and signed bytes",
    (("+i8mm",),),
    {Part.DOT_MIXED: _dot("usdot", signed=False)},
    dots=(Dot(Part.DOT_MIXED, 4),),
)
