"""x86-64 vector instructions (Intel 64 and IA-32 Software Developer's Manual, volume 2).

PMADDUBSW and PMADDWD by ones sum the four bytes of a lane. PMADDUBSW saturates at 16 bits, which
255 * 127 * 2 exceeds, so products of 8-bit values go through PMADDWD on widened operands unless all
weights are small; only VPDPBUSD multiplies any bytes directly.
"""

from __future__ import annotations

from collections.abc import Callable

from hw.isa.dot_products import dot_product
from hw.isa.float_rows import bfloat16_dot, fused, rounded_twice
from hw.isa.instruction import (
    Instruction,
    Vector,
    call,
    each,
    helper,
    high,
    low,
    nibbles,
    operator,
    pairs,
    popcount,
    scaled_sum,
    select,
    with_constant,
)
from hw.isa.instruction_set import DOTS, Dot, Isa
from hw.isa.lane import Lane, Lanes
from hw.isa.operation import Operation
from hw.isa.x86_extensions import BITALG, OF_256_BITS, OF_512_BITS

FACTORS = (2, 3, 4, 6, 8, 12, 16)
"""Constants that term plans and counts of carried bits are multiplied by."""


def _saturated_pairs(x: Lanes, y: Lanes) -> list[Lane]:
    """PMADDUBSW: sums of two products u8 x s8, saturated to 16 bits."""
    products = [p.extend(32) * q.extend(32, True) for p, q in zip(x, y, strict=True)]
    return [(p + q).saturate(16) for p, q in pairs(products)]


def _byte_pairs(x: Lanes) -> list[Lane]:
    return [(p.extend(32) + q.extend(32)).saturate(16) for p, q in pairs(x)]


def _word_pairs(x: Lanes) -> list[Lane]:
    return [p.extend(32, True) + q.extend(32, True) for p, q in pairs(x)]


def _common(prefix: str, lanes: int) -> dict[Operation, Instruction]:
    """Rows that every width has."""
    word = Vector(lanes, 32)
    rows = {
        Operation.AND: operator(f"{prefix}pand", "and", word, lambda x, y: x & y),
        Operation.OR: operator(f"{prefix}por", "or", word, lambda x, y: x | y),
        Operation.XOR: operator(f"{prefix}pxor", "xor", word, lambda x, y: x ^ y),
        Operation.SELECT: helper(
            f"{prefix}select",
            (word, word, word),
            word,
            f"and {word.llvm} %0, %1\n"
            f"xor {word.llvm} %0, {word.splat(-1)}\n"
            f"and {word.llvm} %b, %2\n"
            f"or {word.llvm} %a, %c",
            each(select),
        ),
        Operation.SCALE_ADD_32: scaled_sum(f"{prefix}mulld_add", word, FACTORS),
    }
    for bits, letter in ((8, "b"), (16, "w"), (32, "d")):
        kind = Vector(32 * lanes // bits, bits)
        rows[Operation.ADD_8.for_lanes(bits)] = operator(
            f"{prefix}padd{letter}", "add", kind, lambda x, y: x + y
        )
    return rows


def _products_of_words(
    name: str, suffix: str, intrinsic: str, lanes: int
) -> dict[Operation, Instruction]:
    """PMADDWD: two 16-bit products per 32-bit lane, added up or to an accumulator."""
    wide, narrow = Vector(lanes, 32), Vector(2 * lanes, 16)
    products = call(f"{name}{suffix}", intrinsic, (narrow, narrow), wide, _word_products)
    return {Operation.PRODUCTS_16: products} | dict.fromkeys(
        DOTS, _madd(f"{name}_add{suffix}", products)
    )


def _word_products(x: Lanes, y: Lanes) -> list[Lane]:
    products = [p.extend(32, True) * q.extend(32, True) for p, q in zip(x, y, strict=True)]
    return [p + q for p, q in pairs(products)]


def _madd(name: str, products: Instruction) -> Instruction:
    """Products of words, added to an accumulator."""
    wide, narrow = products.result, products.operands[0]
    return helper(
        name,
        (wide, narrow, narrow),
        wide,
        f"{products.text(('%1', '%2'))}\nadd {wide.llvm} %0, %a",
        dot_product(2, signed=True),
        products.declares or "",
    )


def _floats(product: Instruction) -> dict[Operation, Instruction]:
    """Products of floats, and of pairs of bfloat16."""
    return {Operation.FLOAT_MAC: product, Operation.BFLOAT16_DOT: bfloat16_dot(product)}


def _sums_of_bytes(suffix: str, ubsw: str, wd: str, lanes: int) -> dict[Operation, Instruction]:
    """Pair sums by multiplication with ones, and products of small bytes in 16 bits."""
    byte, word, wide = Vector(4 * lanes, 8), Vector(2 * lanes, 16), Vector(lanes, 32)
    ones = [(kind.llvm, kind.splat(1)) for kind in (byte, word)]
    words = call(f"vpmaddwd_ones{suffix}", wd, (word,), wide, _word_pairs, ones[1])
    return {
        Operation.PAIR_WIDEN_8: call(
            f"vpmaddubsw_ones{suffix}", ubsw, (byte,), word, _byte_pairs, ones[0]
        ),
        Operation.PAIR_WIDEN_16: words,
        Operation.PAIR_WIDEN_SIGNED_16: words,
        Operation.PRODUCTS_8: call(
            f"vpmaddubsw{suffix}", ubsw, (byte, byte), word, _saturated_pairs
        ),
    }


def _shifted_sums(lanes: int) -> dict[Operation, Instruction]:
    """Sums of neighbours by shift and mask, for SSE2, which has no PMADDUBSW."""

    def row(bits: int) -> Instruction:
        narrow, wide = Vector(32 * lanes // bits, bits), Vector(16 * lanes // bits, 2 * bits)
        return helper(
            f"sum_pairs_{bits}",
            (narrow,),
            wide,
            f"bitcast {narrow.llvm} %0 to {wide.llvm}\n"
            f"and {wide.llvm} %a, {wide.splat((1 << bits) - 1)}\n"
            f"lshr {wide.llvm} %a, {wide.splat(bits)}\n"
            f"add {wide.llvm} %b, %c",
            lambda x: [p.extend(2 * bits) + q.extend(2 * bits) for p, q in pairs(x)],
        )

    return {Operation.PAIR_WIDEN_8: row(8), Operation.PAIR_WIDEN_16: row(16)}


def _looked_up(table: Lanes, index: Lanes) -> list[Lane]:
    """VPSHUFB: every 16 bytes look up 16 others; of an index, four bits count and the sign bit."""
    return [lane.lookup([*table[n // 16 * 16 :][:16]] * 8) for n, lane in enumerate(index)]


def _lookups(prefix: str, intrinsic: str, lanes: int) -> dict[Operation, Instruction]:
    """VPSHUFB, and what its indices and sums need."""
    byte, word, wide = Vector(4 * lanes, 8), Vector(2 * lanes, 16), Vector(lanes, 32)
    mask = (1 << 16) - 1
    return {
        Operation.LOOKUP: call(f"{prefix}pshufb", intrinsic, (byte, byte), byte, _looked_up),
        **nibbles(prefix, byte),
        Operation.ODD_8: with_constant(f"{prefix}odd_bytes", "lshr", word, 8, high, byte),
        # Of words that odd bytes were added to with the even ones: the even ones alone.
        Operation.LESS_ODD_8: helper(
            f"{prefix}less_odd_bytes",
            (word, word),
            word,
            f"shl {word.llvm} %1, {word.splat(8)}\nsub {word.llvm} %0, %a",
            each(lambda x, y: x - y.times(256)),
        ),
        Operation.EVEN_16: with_constant(f"{prefix}even_words", "and", wide, mask, low, word),
        Operation.ODD_16: with_constant(f"{prefix}odd_words", "lshr", wide, 16, high, word),
    }


def _quarter_sums(name: str) -> Instruction:
    """Neighbouring quarters of two 512-bit registers added: VSHUFI64X2 twice, and VPADDD."""
    kind = Vector(16, 32)

    def quarters(first: int) -> str:
        lanes = [4 * q + lane for q in range(first, 8, 2) for lane in range(4)]
        order = ", ".join(f"i32 {lane}" for lane in lanes)
        return f"shufflevector {kind.llvm} %0, {kind.llvm} %1, <16 x i32> <{order}>"

    def meaning(x: Lanes, y: Lanes) -> list[Lane]:
        lanes = [*x, *y]
        return [lanes[n] + lanes[n + 4] for q in range(0, 32, 8) for n in range(q, q + 4)]

    body = f"{quarters(0)}\n{quarters(1)}\nadd {kind.llvm} %a, %b"
    return helper(name, (kind, kind), kind, body, meaning)


SSE2 = Isa(
    name="sse2",
    architecture="x86_64",
    lanes=4,
    registers=16,
    rows={
        **_common("", 4),
        Operation.COUNT: popcount("popcount_bytes_xmm", Vector(16, 8)),
        **_shifted_sums(4),
        **_products_of_words("pmaddwd", "", "llvm.x86.sse2.pmadd.wd", 4),
        **_floats(rounded_twice("mulps_addps", 4)),
    },
    dots=(Dot(Operation.DOT, 2),),
)

AVX2 = Isa(
    name="avx2",
    architecture="x86_64",
    features=("+avx2", "+fma"),
    lanes=8,
    registers=16,
    rows={
        **_common("v", 8),
        Operation.COUNT: popcount("popcount_bytes_ymm", Vector(32, 8)),
        **_sums_of_bytes("_ymm", "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd", 8),
        **_products_of_words("vpmaddwd", "_ymm", "llvm.x86.avx2.pmadd.wd", 8),
        **_floats(fused("vfmadd_ymm", 8)),
        **_lookups("v", "llvm.x86.avx2.pshuf.b", 8),
    },
    dots=(Dot(Operation.DOT, 2),),
    extensions=OF_256_BITS,
)

_ZMM = Vector(16, 32)
_AVX512BW = ("+avx2", "+fma", "+avx512f", "+avx512bw")


def _ternary(name: str, table: int, meaning: Callable[..., Lane]) -> Instruction:
    """VPTERNLOGD: any function of three bits, by its truth table (Intel SDM, volume 2C)."""
    intrinsic, kinds = "llvm.x86.avx512.pternlog.d.512", (_ZMM, _ZMM, _ZMM)
    constant = ("i32", str(table))
    return call(f"vpternlogd_{name}", intrinsic, kinds, _ZMM, each(meaning), constant)


_ZMM_ROWS = {
    **_common("z", 16),
    Operation.SELECT: _ternary("select", 0xCA, select),
    Operation.BIT_SUM: _ternary("sum", 0x96, lambda x, y, z: x ^ y ^ z),
    Operation.BIT_CARRY: _ternary("carry", 0xE8, lambda x, y, z: select(x ^ y, z, x)),
    **_sums_of_bytes("_zmm", "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512", 16),
    **_products_of_words("vpmaddwd", "_zmm", "llvm.x86.avx512.pmaddw.d.512", 16),
    **_floats(fused("vfmadd_zmm", 16)),
    **_lookups("z", "llvm.x86.avx512.pshuf.b.512", 16),
    Operation.ADD_QUARTERS_32: _quarter_sums("zadd_quarters"),
}

AVX512BW = Isa(
    name="avx512bw",
    architecture="x86_64",
    features=_AVX512BW,
    lanes=16,
    registers=32,
    rows={**_ZMM_ROWS, Operation.COUNT: popcount("popcount_bytes_zmm", Vector(64, 8))},
    dots=(Dot(Operation.DOT, 2),),
    extensions=(*OF_512_BITS, BITALG),
)

AVX512VPOPCNTDQ = Isa(
    name="avx512vpopcntdq",
    architecture="x86_64",
    features=(*_AVX512BW, "+avx512vpopcntdq"),
    lanes=16,
    registers=32,
    rows={**_ZMM_ROWS, Operation.COUNT: popcount("vpopcntd", _ZMM)},
    dots=(Dot(Operation.DOT, 2),),
    extensions=OF_512_BITS,
)
