"""Products of floats added to 32-bit lanes, on any instruction set.

A register of floats is one of 32-bit lanes that hold their bits, as every other register is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hw.isa.instruction import Instruction, Meaning, Vector, each, helper


def fused(name: str, lanes: int) -> Instruction:
    """`total + x * y`, rounded once."""
    floats = f"<{lanes} x float>"
    intrinsic = f"llvm.fma.v{lanes}f32"
    return _row(
        name,
        lanes,
        [f"call {floats} @{intrinsic}({floats} %b, {floats} %c, {floats} %a)"],
        lambda total, x, y: x.fma(y, total),
        f"declare {floats} @{intrinsic}({floats}, {floats}, {floats})",
    )


def rounded_twice(name: str, lanes: int) -> Instruction:
    """`total + x * y` of two instructions, for processors without a fused one."""
    floats = f"<{lanes} x float>"
    lines = [f"fmul {floats} %b, %c", f"fadd {floats} %a, %d"]
    return _row(name, lanes, lines, lambda total, x, y: total.fadd(x.fmul(y)))


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
    def meaning(total: Any, x: Any, y: Any) -> list[Any]:
        wide = [[lane.bfloat16() for lane in register] for register in (x, y)]
        low, high = ([register[half::2] for register in wide] for half in (0, 1))
        return product.meaning(product.meaning(total, *high), *low)

    return meaning


def _row(
    name: str, lanes: int, lines: list[str], meaning: Callable[..., Any], declares: str = ""
) -> Instruction:
    word, floats = Vector(lanes, 32), f"<{lanes} x float>"
    seen = [f"bitcast {word.llvm} %{number} to {floats}" for number in range(3)]
    result = chr(ord("a") + len(seen) + len(lines) - 1)
    body = [*seen, *lines, f"bitcast {floats} %{result} to {word.llvm}"]
    return helper(name, (word,) * 3, word, "\n".join(body), each(meaning), declares)
