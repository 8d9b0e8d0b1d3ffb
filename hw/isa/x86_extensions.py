"""What some x86-64 processors have beyond an instruction set (Intel 64 and IA-32 manuals)."""

from __future__ import annotations

from hw.isa.dot_products import dot_product
from hw.isa.float_rows import fused, vdpbf16ps
from hw.isa.gfni import EXPANSIONS, GFNI
from hw.isa.instruction import Instruction, Vector, call, helper, popcount
from hw.isa.instruction_set import Dot, Extension
from hw.isa.lane import Lane, Lanes
from hw.isa.operation import Operation
from hw.isa.tile_registers import FEATURES

_ZMM = Vector(16, 32)


def _vpdpbusd(suffix: str, lanes: int) -> Instruction:
    """VNNI's dot product of four u8 x s8 pairs per 32-bit lane."""
    total, byte = Vector(lanes, 32), Vector(4 * lanes, 8)
    intrinsic = f"llvm.x86.avx512.vpdpbusd.{8 * total.bytes}"
    return call(f"vpdpbusd{suffix}", intrinsic, (total, byte, byte), total, dot_product(4))


VPDPBUSD = _vpdpbusd("", 16)
VPDPBUSD_YMM = _vpdpbusd("_ymm", 8)
"""VPDPBUSD of 256 bits, by AVX-VNNI or by AVX512-VNNI with AVX512-VL."""


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
        dot_product(2, signed=True),
        f"declare {kind} {intrinsic}({kind}, {kind}, {kind})",
    )


VPDPWSSD, VPDPWSSD_YMM = _vpdpwssd("", 16), _vpdpwssd("_ymm", 8)


def _weighed(total: Lanes, counts: Lanes, weight: int) -> list[Lane]:
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
"""VPDPBUSD with one weight for all bytes: counts of bits that each stand for several."""


def _columns(half: int) -> Instruction:
    """VPERMT2B: of two registers of two rows of 32 bytes each, half of the columns, one a lane."""
    byte, size = Vector(64, 8), 32
    order = [size * row + size // 2 * half + lane for lane in range(size // 2) for row in range(4)]
    indices = ", ".join(f"i8 {place}" for place in order)
    kind, intrinsic = byte.llvm, "@llvm.x86.avx512.vpermi2var.qi.512"

    def meaning(x: Lanes, y: Lanes) -> list[Lane]:
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


def _looked_up_pair(low: Lanes, index: Lanes, high: Lanes) -> list[Lane]:
    """VPERMI2B: seven bits of an index count."""
    return [lane.lookup([*low, *high] * 2) for lane in index]


def _pair_lookup() -> Instruction:
    """VPERMI2B: every byte looks up those of two registers."""
    byte, intrinsic = Vector(64, 8), "llvm.x86.avx512.vpermi2var.qi.512"
    return call("vpermi2b", intrinsic, (byte, byte, byte), byte, _looked_up_pair)


_VNNI = "+avx512vnni"
VNNI_256 = (_VNNI, "+avx512vl")
"""What has AVX-VNNI's instructions too, encoded otherwise."""


def _dot_products(dot: Instruction, words: Instruction, *features: tuple[str, ...]) -> Extension:
    """Dot products of one instruction each, beside which nobody multiplies alone."""
    return Extension(
        "dot products",
        features,
        {Operation.DOT: dot, Operation.DOT_16: words},
        dots=(Dot(Operation.DOT, 4),),
        without=(Operation.PRODUCTS_16,),
    )


OF_256_BITS = (_dot_products(VPDPBUSD_YMM, VPDPWSSD_YMM, ("+avxvnni",), VNNI_256),)
OF_512_BITS = (
    _dot_products(VPDPBUSD, VPDPWSSD, (_VNNI,)),
    Extension("weighed counts", ((_VNNI,),), {Operation.WEIGHED_8: WEIGHED}),
    Extension(
        "bytes from anywhere",
        ((_VNNI, "+avx512vbmi"),),
        {
            Operation.COLUMNS_0: _columns(0),
            Operation.COLUMNS_1: _columns(1),
            Operation.LOOKUP_PAIR: _pair_lookup(),
        },
    ),
    # Where the use of tiles is refused, the same weights are multiplied by dot products.
    Extension("tiles", ((_VNNI, *FEATURES),), tiles=True),
    Extension("bytes of few bits for tiles", ((_VNNI, *FEATURES, GFNI),), EXPANSIONS),
    Extension(
        "products of bfloat16",
        (("+avx512bf16",),),
        {Operation.BFLOAT16_DOT: vdpbf16ps(fused("vfmadd_zmm", 16))},
    ),
)
BITALG = Extension(
    "counts of bytes",
    (("+avx512bitalg",),),
    {Operation.COUNT: popcount("vpopcntb", Vector(64, 8))},
)
"""For sets that count no words."""
