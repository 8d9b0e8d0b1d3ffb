"""x86-64 vector instructions (Intel 64 and IA-32 Software Developer's Manual, volume 2).

PMADDUBSW and PMADDWD by ones sum the four bytes of a lane. PMADDUBSW saturates at 16 bits, which
255 * 127 * 2 exceeds, so products of 8-bit values go through PMADDWD on widened operands; only
VPDPBUSD multiplies bytes directly.
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
    splat,
    vector,
)


def _logic(lanes: int) -> dict[str, Instruction]:
    return {
        "and": lanewise("pand", "and", lanes, 32, np.bitwise_and),
        "xor": lanewise("pxor", "xor", lanes, 32, np.bitwise_xor),
    }


def _madd(name: str, intrinsic: str, lanes: int) -> Instruction:
    """PMADDWD added to an accumulator: two 16-bit products per 32-bit lane."""
    wide, pairs = vector(lanes, 32), vector(2 * lanes, 16)
    return Instruction(
        name,
        (wide, pairs, pairs),
        wide,
        f"call {wide} @bk_{name}({wide} {{0}}, {pairs} {{1}}, {pairs} {{2}})",
        dot_products(2),
        f"declare {wide} @{intrinsic}({pairs}, {pairs})\n"
        f"define internal {wide} @bk_{name}({wide} %c, {pairs} %a, {pairs} %w) alwaysinline {{\n"
        f"  %p = call {wide} @{intrinsic}({pairs} %a, {pairs} %w)\n"
        f"  %r = add {wide} %c, %p\n"
        f"  ret {wide} %r\n}}",
    )


def _sum_bytes(prefix: str, ubsw: str, wd: str, lanes: int) -> tuple[Instruction, Instruction]:
    bytes_, words = vector(4 * lanes, 8), vector(2 * lanes, 16)
    return (
        call(
            f"{prefix}pmaddubsw_ones", ubsw, (bytes_,), words, pair_sums, splat(bytes_, 1), bytes_
        ),
        call(
            f"{prefix}pmaddwd_ones",
            wd,
            (words,),
            vector(lanes, 32),
            pair_sums,
            splat(words, 1),
            words,
        ),
    )


def _shifted_sums(lanes: int) -> tuple[Instruction, Instruction]:
    """Sums of neighbours by shift and mask, for SSE2, which has no PMADDUBSW."""

    def row(bits: int) -> Instruction:
        kind, narrow = vector(lanes * 16 // bits, 2 * bits), vector(lanes * 32 // bits, bits)
        mask = (1 << bits) - 1
        return Instruction(
            f"sum_pairs_{bits}",
            (narrow,),
            kind,
            f"call {kind} @bk_sum_pairs_{bits}({narrow} {{0}})",
            pair_sums,
            f"define internal {kind} @bk_sum_pairs_{bits}({narrow} %x) alwaysinline {{\n"
            f"  %v = bitcast {narrow} %x to {kind}\n"
            f"  %l = and {kind} %v, {splat(kind, mask)}\n"
            f"  %h = lshr {kind} %v, {splat(kind, bits)}\n"
            f"  %r = add {kind} %l, %h\n"
            f"  ret {kind} %r\n}}",
        )

    return row(8), row(16)


SSE2 = Isa(
    name="sse2",
    lanes=4,
    registers=16,
    logic=_logic(4),
    count=count_bits("popcount_bytes", 16, 8),
    accumulate=lanewise("paddb", "add", 16, 8, np.add),
    widen=_shifted_sums(4),
    dot=_madd("pmaddwd", "llvm.x86.sse2.pmadd.wd", 4),
    dot_group=2,
)

AVX2 = Isa(
    name="avx2",
    lanes=8,
    registers=16,
    logic=_logic(8),
    count=count_bits("popcount_bytes", 32, 8),
    accumulate=lanewise("vpaddb", "add", 32, 8, np.add),
    widen=_sum_bytes("v", "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd", 8),
    dot=_madd("vpmaddwd_ymm", "llvm.x86.avx2.pmadd.wd", 8),
    dot_group=2,
)

AVX512BW = Isa(
    name="avx512bw",
    lanes=16,
    registers=32,
    logic=_logic(16),
    count=count_bits("popcount_bytes", 64, 8),
    accumulate=lanewise("vpaddb", "add", 64, 8, np.add),
    widen=_sum_bytes("v", "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512", 16),
    dot=_madd("vpmaddwd_zmm", "llvm.x86.avx512.pmaddw.d.512", 16),
    dot_group=2,
)

AVX512VPOPCNTDQ = Isa(
    name="avx512vpopcntdq",
    lanes=16,
    registers=32,
    logic=_logic(16),
    count=count_bits("vpopcntd", 16, 32),
    accumulate=lanewise("vpaddd", "add", 16, 32, np.add),
    widen=(),
    dot=AVX512BW.dot,
    dot_group=2,
)

VPDPBUSD = call(
    "vpdpbusd",
    "llvm.x86.avx512.vpdpbusd.512",
    (vector(16, 32), vector(64, 8), vector(64, 8)),
    vector(16, 32),
    dot_products(4),
)
"""AVX512-VNNI's dot product of four u8 x s8 pairs per 32-bit lane."""
