"""Products of floats added to lanes of their own width, on any instruction set.

A register of floats is one of lanes that hold their bits, as every other register is.
"""

from __future__ import annotations

from collections.abc import Callable

from hw.isa.instruction import Instruction, Meaning, Vector, each, helper, pairs
from hw.isa.lane import Lane, Lanes


def fused(name: str, lanes: int) -> Instruction:
    """`total + x * y` of float32, rounded once."""
    return _fused(name, Vector(lanes, 32))


def fused_float16(name: str, lanes: int) -> Instruction:
    """`total + x * y` of float16, rounded once."""
    return _fused(name, Vector(lanes, 16))


def _fused(name: str, kind: Vector) -> Instruction:
    floats = _floats(kind)
    intrinsic = f"llvm.fma.v{kind.lanes}f{kind.bits}"
    return _row(
        name,
        kind,
        [f"call {floats} @{intrinsic}({floats} %b, {floats} %c, {floats} %a)"],
        lambda total, x, y: x.fma(y, total),
        f"declare {floats} @{intrinsic}({floats}, {floats}, {floats})",
    )


def rounded_twice(name: str, lanes: int) -> Instruction:
    """`total + x * y` of two instructions, for processors without a fused one."""
    floats = f"<{lanes} x float>"
    lines = [f"fmul {floats} %b, %c", f"fadd {floats} %a, %d"]
    return _row(name, Vector(lanes, 32), lines, lambda total, x, y: total.fadd(x.fmul(y)))


def widened_float16(name: str, part: int) -> Instruction:
    """The first (0) or the last (1) four of eight floats of 16 bits, as floats of 32 (A64)."""
    whole, word = Vector(8, 16), Vector(4, 32)
    mask = ", ".join(f"i32 {4 * part + lane}" for lane in range(4))
    lines = [
        f"bitcast {whole.llvm} %0 to <8 x half>",
        f"shufflevector <8 x half> %a, <8 x half> poison, <4 x i32> <{mask}>",
        "fpext <4 x half> %b to <4 x float>",
        f"bitcast <4 x float> %c to {word.llvm}",
    ]
    own = slice(4 * part, 4 * part + 4)
    return helper(
        name, (whole,), word, "\n".join(lines), lambda x: [lane.widened() for lane in x[own]]
    )


def added_float16(name: str, *, neighbours: bool) -> Instruction:
    """Sums of two registers of eight floats of 16 bits, lane by lane, or of neighbours in the one
    and then in the other (A64)."""
    kind, intrinsic = Vector(8, 16), "llvm.aarch64.neon.faddp.v8f16"
    pairwise = f"call <8 x half> @{intrinsic}(<8 x half> %a, <8 x half> %b)"
    lines = [
        f"bitcast {kind.llvm} %0 to <8 x half>",
        f"bitcast {kind.llvm} %1 to <8 x half>",
        pairwise if neighbours else "fadd <8 x half> %a, %b",
        f"bitcast <8 x half> %c to {kind.llvm}",
    ]
    meaning: Meaning = each(lambda x, y: x.fadd(y))
    if neighbours:
        meaning = lambda x, y: [p.fadd(q) for p, q in pairs([*x, *y])]  # noqa: E731
    declares = f"declare <8 x half> @{intrinsic}(<8 x half>, <8 x half>)" if neighbours else ""
    return helper(name, (kind, kind), kind, "\n".join(lines), meaning, declares)


def bfloat16_dot(product: Instruction) -> Instruction:
    """`total + x * y` of both bfloat16 of a lane, the upper first, each as `product` does it."""
    word = product.result
    half = Vector(2 * word.lanes, 16)
    lines = [
        f"bitcast {half.llvm} %1 to {word.llvm}",
        f"bitcast {half.llvm} %2 to {word.llvm}",
        f"and {word.llvm} %a, {word.splat(-1 << 16)}",
        f"and {word.llvm} %b, {word.splat(-1 << 16)}",
        f"shl {word.llvm} %a, {word.splat(16)}",
        f"shl {word.llvm} %b, {word.splat(16)}",
        product.text(["%0", "%c", "%d"]),
        product.text(["%g", "%e", "%f"]),
    ]
    name, declares = f"{product.name}_bf16", product.declares or ""
    return helper(name, (word, half, half), word, "\n".join(lines), _of_pairs(product), declares)


def vdpbf16ps(product: Instruction) -> Instruction:
    """AVX512-BF16's instruction for the same; what is smaller than normal floats is 0 to it."""
    word, half = product.result, Vector(2 * product.result.lanes, 16)
    floats, brain = f"<{word.lanes} x float>", f"<{half.lanes} x bfloat>"
    intrinsic = f"llvm.x86.avx512bf16.dpbf16ps.{8 * word.bytes}"
    lines = [
        f"bitcast {word.llvm} %0 to {floats}",
        f"bitcast {half.llvm} %1 to {brain}",
        f"bitcast {half.llvm} %2 to {brain}",
        f"call {floats} @{intrinsic}({floats} %a, {brain} %b, {brain} %c)",
        f"bitcast {floats} %d to {word.llvm}",
    ]
    declares = f"declare {floats} @{intrinsic}({floats}, {brain}, {brain})"
    return helper(
        "vdpbf16ps", (word, half, half), word, "\n".join(lines), _of_pairs(product), declares
    )


def _of_pairs(product: Instruction) -> Meaning:
    def meaning(total: Lanes, x: Lanes, y: Lanes) -> list[Lane]:
        wide = [[lane.bfloat16() for lane in register] for register in (x, y)]
        low, high = ([register[half::2] for register in wide] for half in (0, 1))
        return product.meaning(product.meaning(total, *high), *low)

    return meaning


def _floats(kind: Vector) -> str:
    return f"<{kind.lanes} x {'half' if kind.bits == 16 else 'float'}>"


def _row(
    name: str, kind: Vector, lines: list[str], meaning: Callable[..., Lane], declares: str = ""
) -> Instruction:
    floats = _floats(kind)
    seen = [f"bitcast {kind.llvm} %{number} to {floats}" for number in range(3)]
    result = chr(ord("a") + len(seen) + len(lines) - 1)
    body = [*seen, *lines, f"bitcast {floats} %{result} to {kind.llvm}"]
    return helper(name, (kind,) * 3, kind, "\n".join(body), each(meaning), declares)
