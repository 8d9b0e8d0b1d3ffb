"""Products of floats added to 32-bit lanes, on any instruction set.

A register of floats is one of 32-bit lanes that hold their bits, as every other register is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hw.isa.instruction import Instruction, Vector, each, helper


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


def _row(
    name: str, lanes: int, lines: list[str], meaning: Callable[..., Any], declares: str = ""
) -> Instruction:
    word, floats = Vector(lanes, 32), f"<{lanes} x float>"
    seen = [f"bitcast {word.llvm} %{number} to {floats}" for number in range(3)]
    result = chr(ord("a") + len(seen) + len(lines) - 1)
    body = [*seen, *lines, f"bitcast {floats} %{result} to {word.llvm}"]
    return helper(name, (word,) * 3, word, "\n".join(body), each(meaning), declares)
