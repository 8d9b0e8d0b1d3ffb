"""Tiles whose sums stay in registers: a function that computes those of one, and what follows.

Through scratch every sum is stored and read again, which takes a processor that stores 32 bytes a
cycle two cycles for a register of 64. Where sums take most of the registers the function is
compiled beside the kernel: in a loop over tiles LLVM would keep an epilogue's constants in theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from stages.codegen import Text
from stages.kernels.llvm import FunctionText
from stages.kernels.signature import BLOCK
from stages.nodes import PrimFunc

NAME = "bk_apart"
SUMS_AT = 2
"""Where a micro-kernel's pointer to its sums stands among its pointers."""
PAUSE = "bk_pause"
"""A function that does nothing, across which neither loads nor stores are moved. LLVM would begin
the epilogues of all pixels before it ends that of one, and lack registers."""


def pause() -> str:
    """PAUSE as LLVM IR."""
    code = FunctionText()
    code.do('call void asm sideeffect "", "~{memory}"()')
    code.do("ret void")
    return code.function(PAUSE, [])


@dataclass(frozen=True)
class MicroKernelCall:
    """A micro-kernel as it is called: its name and text, pointers, and constants behind them."""

    name: str
    text: Text
    pointers: int
    constants: Sequence[int | None] = ()
    """Numbers behind the pointers; None is one that each call passes."""
    preloads_bias: bool = False
    """Whether a pointer to the bias follows, which the sums of a pixel begin with."""


def micro_kernel_text(called: MicroKernelCall, pixels: int, channels: int) -> Text:
    """`void bk_apart(pointer…, sums…)`: calls a micro-kernel that writes sums [pixels][32].

    Its other pointers are in front, then a number if each call passes one, the bias if the
    micro-kernel preloads it, and a pointer to the sums [channels] of each pixel. As TVM puts all
    this where it is called, nothing of it is left in memory.
    """
    function, declarations = called.text
    code = FunctionText()
    sums = code.let(f"alloca [{pixels * BLOCK} x i32], align 64")
    reads = [f"ptr %p{number}" for number in range(called.pointers - 1)]
    writes = [f"ptr %s{m}" for m in range(pixels)]
    told = ["i64 %told"] * (None in called.constants)
    numbers = [f"i64 {'%told' if number is None else number}" for number in called.constants]
    begin = ["ptr %begin"] * called.preloads_bias
    arguments = ", ".join([*reads[:SUMS_AT], f"ptr {sums}", *reads[SUMS_AT:], *numbers, *begin])
    code.do(f"call void @{called.name}({arguments})")
    kind = f"<{channels} x i32>"
    for m in range(pixels):
        code.store(kind, code.load(kind, sums, 4, m * BLOCK * 4), f"%s{m}", 4)
    code.do("ret void")
    return f"{function}\n{code.function(NAME, [*reads, *told, *begin, *writes])}", declarations


def tile_function(
    symbol: str,
    called: MicroKernelCall,
    texts: Iterable[str],
    tile: tuple[int, int],
    declare: Callable[[], None],
    body: Callable[..., None],
) -> PrimFunc:
    """The PrimFunc `symbol(tensor…, block, run, tile)` of a tile of so many (pixels, channels).

    `declare` declares the tensors. `body` is given the three numbers; it may call NAME, PAUSE and
    what is in `texts`.
    """
    text, declarations = micro_kernel_text(called, *tile)
    imported = dict.fromkeys((*texts, *declarations, text, pause()))
    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        T.func_attr({"global_symbol": symbol})
        declare()
        numbers = [T.arg(name, tirx.Var(name, "int32")) for name in ("block", "run", "tile")]
        with T.attr(0, "pragma_import_llvm", "\n".join(imported)):
            body(*numbers)
    return builder.get()
