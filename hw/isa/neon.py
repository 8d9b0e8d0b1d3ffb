"""Advanced SIMD instructions of ARMv8-A and ARMv7-A (Arm Architecture Reference Manuals).

SMLAL has no intrinsic of its own: LLVM selects it for a product of sign-extended 16-bit lanes.
"""

from __future__ import annotations

import numpy as np

from hw.isa.instruction import (
    Instruction,
    Isa,
    call,
    count_bits,
    dot_products,
    lanewise,
    pair_sums,
    vector,
)


def _pairwise(prefix: str, instruction: str) -> tuple[Instruction, Instruction]:
    return (
        call(
            f"{instruction}.u8", f"{prefix}.v8i16.v16i8", (vector(16, 8),), vector(8, 16), pair_sums
        ),
        call(
            f"{instruction}.u16",
            f"{prefix}.v4i32.v8i16",
            (vector(8, 16),),
            vector(4, 32),
            pair_sums,
        ),
    )


_WIDE, _HALF = vector(4, 32), vector(4, 16)
SMLAL = Instruction(
    "smlal",
    (_WIDE, _HALF, _HALF),
    _WIDE,
    f"call {_WIDE} @bk_smlal({_WIDE} {{0}}, {_HALF} {{1}}, {_HALF} {{2}})",
    dot_products(1),
    f"define internal {_WIDE} @bk_smlal({_WIDE} %c, {_HALF} %a, {_HALF} %w) alwaysinline {{\n"
    f"  %x = sext {_HALF} %a to {_WIDE}\n"
    f"  %y = sext {_HALF} %w to {_WIDE}\n"
    f"  %p = mul {_WIDE} %x, %y\n"
    f"  %r = add {_WIDE} %c, %p\n"
    f"  ret {_WIDE} %r\n}}",
)


def _neon(name: str, registers: int, pairwise: tuple[Instruction, Instruction]) -> Isa:
    return Isa(
        name=name,
        lanes=4,
        registers=registers,
        logic={
            "and": lanewise("and", "and", 4, 32, np.bitwise_and),
            "xor": lanewise("eor", "xor", 4, 32, np.bitwise_xor),
        },
        count=count_bits("cnt", 16, 8),
        accumulate=lanewise("add.i8", "add", 16, 8, np.add),
        widen=pairwise,
        dot=SMLAL,
        dot_group=1,
    )


AARCH64 = _neon("neon_aarch64", 32, _pairwise("llvm.aarch64.neon.uaddlp", "uaddlp"))
ARMV7 = _neon("neon_armv7", 16, _pairwise("llvm.arm.neon.vpaddlu", "vpaddl"))
