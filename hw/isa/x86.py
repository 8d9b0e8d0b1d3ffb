"""x86-64 vector instructions (Intel 64 and IA-32 Software Developer's Manual, volume 2).

PMADDUBSW and PMADDWD by ones sum the four bytes of a lane. PMADDUBSW saturates at 16 bits, which
255 * 127 * 2 exceeds, so products of 8-bit values go through PMADDWD on widened operands unless all
weights are small; only VPDPBUSD multiplies any bytes directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hw.isa.floats import bfloat16_dot, fused, rounded_twice, vdpbf16ps
from hw.isa.instruction import (
    DOTS,
    Instruction,
    Isa,
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

FACTORS = (2, 3, 4, 6, 8, 12, 16)
"""Constants that term plans and counts of carried bits are multiplied by."""


def _dot(group: int, signed: bool) -> Any:
    """`total + sum over a group of x * y` per 32-bit lane; x unsigned unless `signed`."""

    def meaning(total: Any, x: Any, y: Any) -> list[Any]:
        products = [p.extend(32, signed) * q.extend(32, True) for p, q in zip(x, y, strict=True)]
        sums = list(total)
        for position, product in enumerate(products):
            sums[position // group] = sums[position // group] + product
        return sums

    return meaning


def _saturated_pairs(x: Any, y: Any) -> list[Any]:
    """PMADDUBSW: sums of two products u8 x s8, saturated to 16 bits."""
    products = [p.extend(32) * q.extend(32, True) for p, q in zip(x, y, strict=True)]
    return [(p + q).saturate(16) for p, q in pairs(products)]


def _byte_pairs(x: Any) -> list[Any]:
    return [(p.extend(32) + q.extend(32)).saturate(16) for p, q in pairs(x)]


def _word_pairs(x: Any) -> list[Any]:
    return [p.extend(32, True) + q.extend(32, True) for p, q in pairs(x)]


def _common(prefix: str, lanes: int) -> dict[str, Instruction]:
    """Rows that every width has."""
    word = Vector(lanes, 32)
    rows = {
        "and": operator(f"{prefix}pand", "and", word, lambda x, y: x & y),
        "or": operator(f"{prefix}por", "or", word, lambda x, y: x | y),
        "xor": operator(f"{prefix}pxor", "xor", word, lambda x, y: x ^ y),
        "select": helper(
            f"{prefix}select",
            (word, word, word),
            word,
            f"and {word.llvm} %0, %1\n"
            f"xor {word.llvm} %0, {word.splat(-1)}\n"
            f"and {word.llvm} %b, %2\n"
            f"or {word.llvm} %a, %c",
            each(select),
        ),
        "scale_add.32": scaled_sum(f"{prefix}mulld_add", word, FACTORS),
    }
    for bits, letter in ((8, "b"), (16, "w"), (32, "d")):
        kind = Vector(32 * lanes // bits, bits)
        rows[f"add.{bits}"] = operator(f"{prefix}padd{letter}", "add", kind, lambda x, y: x + y)
    return rows


def _products_of_words(name: str, suffix: str, intrinsic: str, lanes: int) -> dict[str, Any]:
    """PMADDWD: two 16-bit products per 32-bit lane, added up or to an accumulator."""
    wide, narrow = Vector(lanes, 32), Vector(2 * lanes, 16)
    products = call(f"{name}{suffix}", intrinsic, (narrow, narrow), wide, _word_products)
    return {"products.16": products} | dict.fromkeys(DOTS, _madd(f"{name}_add{suffix}", products))


def _word_products(x: Any, y: Any) -> list[Any]:
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
        _dot(2, True),
        products.declares or "",
    )


def _floats(product: Instruction) -> dict[str, Instruction]:
    """Products of floats, and of pairs of bfloat16."""
    return {"float_mac": product, "bfloat16_dot": bfloat16_dot(product)}


def _sums_of_bytes(suffix: str, ubsw: str, wd: str, lanes: int) -> dict[str, Instruction]:
    """Pair sums by multiplication with ones, and products of small bytes in 16 bits."""
    byte, word, wide = Vector(4 * lanes, 8), Vector(2 * lanes, 16), Vector(lanes, 32)
    ones = [(kind.llvm, kind.splat(1)) for kind in (byte, word)]
    words = call(f"vpmaddwd_ones{suffix}", wd, (word,), wide, _word_pairs, ones[1])
    return {
        "pair_widen.8": call(f"vpmaddubsw_ones{suffix}", ubsw, (byte,), word, _byte_pairs, ones[0]),
        "pair_widen.16": words,
        "pair_widen_signed.16": words,
        "products.8": call(f"vpmaddubsw{suffix}", ubsw, (byte, byte), word, _saturated_pairs),
    }


def _shifted_sums(lanes: int) -> dict[str, Instruction]:
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

    return {"pair_widen.8": row(8), "pair_widen.16": row(16)}


def _looked_up(table: Any, index: Any) -> list[Any]:
    """VPSHUFB: every 16 bytes look up 16 others; of an index, four bits count and the sign bit."""
    return [lane.lookup([*table[n // 16 * 16 :][:16]] * 8) for n, lane in enumerate(index)]


def _lookups(prefix: str, intrinsic: str, lanes: int) -> dict[str, Instruction]:
    """VPSHUFB, and what its indices and sums need."""
    byte, word, wide = Vector(4 * lanes, 8), Vector(2 * lanes, 16), Vector(lanes, 32)
    mask = (1 << 16) - 1
    return {
        "lookup": call(f"{prefix}pshufb", intrinsic, (byte, byte), byte, _looked_up),
        **nibbles(prefix, byte),
        "odd.8": with_constant(f"{prefix}odd_bytes", "lshr", word, 8, high, byte),
        # Of words that odd bytes were added to with the even ones: the even ones alone.
        "less_odd.8": helper(
            f"{prefix}less_odd_bytes",
            (word, word),
            word,
            f"shl {word.llvm} %1, {word.splat(8)}\nsub {word.llvm} %0, %a",
            each(lambda x, y: x - y.times(256)),
        ),
        "even.16": with_constant(f"{prefix}even_words", "and", wide, mask, low, word),
        "odd.16": with_constant(f"{prefix}odd_words", "lshr", wide, 16, high, word),
    }


def _quarter_sums(name: str) -> Instruction:
    """Neighbouring quarters of two 512-bit registers added: VSHUFI64X2 twice, and VPADDD."""
    kind = Vector(16, 32)

    def quarters(first: int) -> str:
        lanes = [4 * q + lane for q in range(first, 8, 2) for lane in range(4)]
        order = ", ".join(f"i32 {lane}" for lane in lanes)
        return f"shufflevector {kind.llvm} %0, {kind.llvm} %1, <16 x i32> <{order}>"

    def meaning(x: Any, y: Any) -> list[Any]:
        lanes = [*x, *y]
        return [lanes[n] + lanes[n + 4] for q in range(0, 32, 8) for n in range(q, q + 4)]

    body = f"{quarters(0)}\n{quarters(1)}\nadd {kind.llvm} %a, %b"
    return helper(name, (kind, kind), kind, body, meaning)


SSE2 = Isa(
    name="sse2",
    lanes=4,
    registers=16,
    parts={
        **_common("", 4),
        "count": popcount("popcount_bytes_xmm", Vector(16, 8)),
        **_shifted_sums(4),
        **_products_of_words("pmaddwd", "", "llvm.x86.sse2.pmadd.wd", 4),
        **_floats(rounded_twice("mulps_addps", 4)),
    },
    dot_group=2,
)

AVX2 = Isa(
    name="avx2",
    lanes=8,
    registers=16,
    parts={
        **_common("v", 8),
        "count": popcount("popcount_bytes_ymm", Vector(32, 8)),
        **_sums_of_bytes("_ymm", "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd", 8),
        **_products_of_words("vpmaddwd", "_ymm", "llvm.x86.avx2.pmadd.wd", 8),
        **_floats(fused("vfmadd_ymm", 8)),
        **_lookups("v", "llvm.x86.avx2.pshuf.b", 8),
    },
    dot_group=2,
)

_ZMM = Vector(16, 32)


def _ternary(name: str, table: int, meaning: Callable[..., Any]) -> Instruction:
    """VPTERNLOGD: any function of three bits, by its truth table (Intel SDM, volume 2C)."""
    intrinsic, kinds = "llvm.x86.avx512.pternlog.d.512", (_ZMM, _ZMM, _ZMM)
    constant = ("i32", str(table))
    return call(f"vpternlogd_{name}", intrinsic, kinds, _ZMM, each(meaning), constant)


_ZMM_ROWS = {
    **_common("z", 16),
    "select": _ternary("select", 0xCA, select),
    "bit_sum": _ternary("sum", 0x96, lambda x, y, z: x ^ y ^ z),
    "bit_carry": _ternary("carry", 0xE8, lambda x, y, z: select(x ^ y, z, x)),
    **_sums_of_bytes("_zmm", "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512", 16),
    **_products_of_words("vpmaddwd", "_zmm", "llvm.x86.avx512.pmaddw.d.512", 16),
    **_floats(fused("vfmadd_zmm", 16)),
    **_lookups("z", "llvm.x86.avx512.pshuf.b.512", 16),
    "add_quarters.32": _quarter_sums("zadd_quarters"),
}

AVX512BW = Isa(
    name="avx512bw",
    lanes=16,
    registers=32,
    parts={**_ZMM_ROWS, "count": popcount("popcount_bytes_zmm", Vector(64, 8))},
    dot_group=2,
)

AVX512VPOPCNTDQ = Isa(
    name="avx512vpopcntdq",
    lanes=16,
    registers=32,
    parts={**_ZMM_ROWS, "count": popcount("vpopcntd", _ZMM)},
    dot_group=2,
)

VDPBF16PS = vdpbf16ps(_ZMM_ROWS["float_mac"])
"""Where AVX512-BF16 exists, pairs of bfloat16 are multiplied by it."""

VPOPCNTB = popcount("vpopcntb", Vector(64, 8))
"""AVX512-BITALG's byte count; where it exists, `avx512bw` profiles count with it."""


def _vpdpbusd(suffix: str, lanes: int) -> Instruction:
    """VNNI's dot product of four u8 x s8 pairs per 32-bit lane."""
    total, byte = Vector(lanes, 32), Vector(4 * lanes, 8)
    intrinsic = f"llvm.x86.avx512.vpdpbusd.{8 * total.bytes}"
    return call(f"vpdpbusd{suffix}", intrinsic, (total, byte, byte), total, _dot(4, False))


VPDPBUSD = _vpdpbusd("", 16)
VPDPBUSD_YMM = _vpdpbusd("_ymm", 8)
"""The same in 256 bits, by AVX-VNNI or by AVX512-VNNI with AVX512-VL."""


def _vpdpwssd(suffix: str, lanes: int) -> Instruction:
    """VNNI's dot product of two s16 x s16 pairs per 32-bit lane; sums wrap around."""
    total, word = Vector(lanes, 32), Vector(2 * lanes, 16)
    kind, intrinsic = total.llvm, f"@llvm.x86.avx512.vpdpwssd.{8 * total.bytes}"
    return helper(
        f"vpdpwssd{suffix}",
        (total, word, word),
        total,
        # LLVM's intrinsic takes pairs as the 32-bit lanes that they are.
        f"bitcast {word.llvm} %1 to {kind}\n"
        f"bitcast {word.llvm} %2 to {kind}\n"
        f"call {kind} {intrinsic}({kind} %0, {kind} %a, {kind} %b)",
        _dot(2, True),
        f"declare {kind} {intrinsic}({kind}, {kind}, {kind})",
    )


VPDPWSSD, VPDPWSSD_YMM = _vpdpwssd("", 16), _vpdpwssd("_ymm", 8)


def _weighed(total: Any, counts: Any, weight: int) -> list[Any]:
    sums = list(total)
    for position, count in enumerate(counts):
        sums[position // 4] = sums[position // 4] + count.extend(32).times(weight)
    return sums


WEIGHED = Instruction(
    "vpdpbusd_weighed",
    (_ZMM, Vector(64, 8)),
    _ZMM,
    "call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> {0}, <64 x i8> {1}, <64 x i8> {k})",
    _weighed,
    VPDPBUSD.declares,
    immediates=(2, 4, 8, 16),
)
"""The same with one weight for all bytes: counts of bits that each stand for several."""


def _columns(half: int) -> Instruction:
    """VPERMT2B: of two registers of two rows of 32 bytes each, half of the columns, one a lane."""
    byte, size = Vector(64, 8), 32
    order = [size * row + size // 2 * half + lane for lane in range(size // 2) for row in range(4)]
    indices = ", ".join(f"i8 {place}" for place in order)
    kind, intrinsic = byte.llvm, "@llvm.x86.avx512.vpermi2var.qi.512"

    def meaning(x: Any, y: Any) -> list[Any]:
        lanes = [*x, *y]
        return [lanes[place] for place in order]

    return Instruction(
        f"vpermt2b_columns{half}",
        (byte, byte),
        byte,
        f"call {kind} {intrinsic}({kind} {{0}}, {kind} <{indices}>, {kind} {{1}})",
        meaning,
        f"declare {kind} {intrinsic}({kind}, {kind}, {kind})",
    )


def _looked_up_pair(low: Any, index: Any, high: Any) -> list[Any]:
    """VPERMI2B: seven bits of an index count."""
    return [lane.lookup([*low, *high] * 2) for lane in index]


def _pair_lookup() -> Instruction:
    """VPERMI2B: every byte looks up those of two registers."""
    byte, intrinsic = Vector(64, 8), "llvm.x86.avx512.vpermi2var.qi.512"
    return call("vpermi2b", intrinsic, (byte, byte, byte), byte, _looked_up_pair)


VBMI = {
    **{f"columns.{half}": _columns(half) for half in (0, 1)},
    "lookup.pair": _pair_lookup(),
}
"""What AVX512-VBMI adds."""
