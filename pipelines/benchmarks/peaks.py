"""What the processor at hand reaches at most: the instructions of products, on registers alone."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hw import host
from hw.isa import Operation, tile_registers
from hw.profile import Hardware

if TYPE_CHECKING:
    from hw.isa import Instruction, Isa, Vector
    from stages.kernels.llvm import FunctionText
    from stages.kernels.signature import KernelSignature

CHAINS, STEPS, CALLS = 12, 64, 100
"""Independent chains of one instruction, how long they are, and how often they run."""
TILE_CHAINS = 4
"""Chains of products of tiles, whose factors take registers too."""
_RUNS = 20
_MEMORY = 1 << 12
Operand = Callable[[str], str]
"""An operand, `a` or `w`, that nothing is known about."""
StepWriter = Callable[["FunctionText", Sequence[str], Operand], list[str]]
"""Writes one step: from some counters to what they are after it."""


def peaks(hardware: Hardware) -> dict[str, float]:
    """Return multiply-accumulates a second of one thread: of `mac8`, `mac16`, `macf32` and
    `macbf16`, of `tiles` and `tiles_bf16` where there are any, and of `popcount` the pairs of
    single bits that it ands, counts and adds; the best of some runs."""
    from hw.isa import isa_of
    from stages.codegen import compile_object
    from stages.kernels.operand_storage import WORD_BITS
    from stages.kernels.signature import KernelSignature
    from stages.synthesizing.bodies import TOGETHER
    from stages.synthesizing.sketches import whole_products

    isa = isa_of(hardware)
    tile = 1, TOGETHER * isa.lanes
    kernels = [KernelSignature(isa.name, None, p, *tile, "none", 0) for p in whole_products(isa)]
    texts: dict[str, list[str]] = {s.family: products_text(s, isa) for s in kernels}
    texts["popcount"] = popcounts_text(isa)
    channels: dict[str, int] = {s.family: s.channels_per_word for s in kernels}
    channels["popcount"] = WORD_BITS
    macs = {name: CHAINS * isa.lanes * count for name, count in channels.items()}
    if isa.tiles and host.may_use_tiles():
        whole = (
            TILE_CHAINS * tile_registers.ROWS * tile_registers.COLUMNS * tile_registers.ROW_BYTES
        )
        texts["tiles"], macs["tiles"] = tile_products_text("tiles", tile_registers.tile_dot), whole
        texts["tiles_bf16"] = tile_products_text("tiles_bf16", tile_registers.bfloat16_dot)
        macs["tiles_bf16"] = whole // 2
    functions = {name: caller(name, f"bk_{name}", text) for name, text in texts.items()}
    library = linked({"peaks.o": compile_object(functions, hardware)})
    memory = np.zeros(3 * _MEMORY, np.uint8)
    pointers = [ctypes.c_void_p(memory.ctypes.data + i * _MEMORY) for i in range(3)]
    return {
        name: macs[name] * STEPS * CALLS / least_seconds(library[name], pointers, _RUNS)
        for name in texts
    }


def least_seconds(entry: Callable[..., object], pointers: Sequence[object], runs: int) -> float:
    """The least of a few runs: the first finds caches full of another kernel's operands."""
    least = math.inf
    for _ in range(runs):
        start = time.perf_counter_ns()
        entry(*pointers)
        least = min(least, (time.perf_counter_ns() - start) * 1e-9)
    return least


def products_text(signature: KernelSignature, isa: Isa) -> list[str]:
    """The LLVM function `bk_<family>`: a kernel's products of one pixel, on registers alone."""
    from stages.synthesizing.bodies import body_of

    program = body_of(signature, isa).passes[0].word
    together = signature.channels // isa.lanes

    def step(code: FunctionText, counters: Sequence[str], unknown: Operand) -> list[str]:
        outputs = program.emit(
            code, lambda name: unknown(name[0]) if name[0] != "c" else counters[int(name[3:])]
        )
        return [outputs[f"c0.{number}"] for number in range(together)]

    counter, a, w = (program.types[name] for name in ("c0.0", "a0.0", "w0.0"))
    return _chains(f"bk_{signature.family}", counter, (a, w), step, together)


def tile_products_text(name: str, make: Callable[[int, int], Instruction]) -> list[str]:
    """The same by tiles: whole registers, whatever is in them."""
    from stages.kernels.llvm import FunctionText

    shapes = [(tile_registers.ROWS, tile_registers.ROW_BYTES)] * tile_registers.REGISTERS
    dot = make(tile_registers.ROWS, tile_registers.COLUMNS)
    factors = (str(TILE_CHAINS), str(TILE_CHAINS + 1))
    code = FunctionText()
    code.do("call void @llvm.x86.ldtilecfg(ptr @bk_shapes)")
    for number in range(TILE_CHAINS + 2):
        code.do(f"call void @llvm.x86.tilezero(i8 {number})")

    def one(_index: str, _: list[str]) -> list[str]:
        for number in range(TILE_CHAINS):
            code.do(dot.text((str(number), *factors)))
        return []

    code.loop(str(STEPS), [], one, unroll=False)
    code.do("call void @llvm.x86.tilerelease()")
    code.do("ret void")
    return [
        tile_registers.configuration_text("bk_shapes", shapes),
        "declare void @llvm.x86.ldtilecfg(ptr)",
        "declare void @llvm.x86.tilezero(i8 immarg)",
        "declare void @llvm.x86.tilerelease()",
        str(dot.declares),
        code.function(f"bk_{name}", ["ptr %a", "ptr %w", "ptr %sums"]),
    ]


def popcounts_text(isa: Isa) -> list[str]:
    """The LLVM function `bk_popcount`: bits of two operands that are both set, counted."""
    counter, word = isa[Operation.COUNT].result, isa[Operation.AND].result

    def step(code: FunctionText, totals: Sequence[str], unknown: Operand) -> list[str]:
        (total,) = totals
        both = code.apply(isa[Operation.AND], unknown("a"), unknown("w"))
        bits = code.bitcast(both, word.llvm, counter.llvm)
        return [
            code.apply(
                isa[Operation.ADD_8.for_lanes(counter.bits)],
                total,
                code.apply(isa[Operation.COUNT], bits),
            )
        ]

    return _chains("bk_popcount", counter, (word, word), step)


def _chains(
    name: str, counter: Vector, kinds: tuple[Vector, Vector], step: StepWriter, together: int = 1
) -> list[str]:
    """A function of CHAINS counters, with so many of which a step goes on."""
    from stages.kernels.llvm import FunctionText

    code = FunctionText()

    def one(_index: str, carried: list[str]) -> list[str]:
        counters, latest = carried[:CHAINS], dict(zip("aw", carried[CHAINS:], strict=True))

        def unknown(operand: str) -> str:
            # Or LLVM would move the same work out of the loop.
            kind = kinds["aw".index(operand)].llvm
            text = f'call {kind} asm sideeffect "", "=v,0"({kind} {latest[operand]})'
            latest[operand] = code.let(text)
            return latest[operand]

        results = []
        for number in range(0, CHAINS, together):
            results += step(code, counters[number : number + together], unknown)
        return [*results, *latest.values()]

    operands = [
        (kind.llvm, code.load(kind.llvm, pointer, 1))
        for kind, pointer in zip(kinds, ("%a", "%w"), strict=True)
    ]
    zeros = [(counter.llvm, "zeroinitializer")] * CHAINS
    totals = code.loop(str(STEPS), [*zeros, *operands], one)[:CHAINS]
    for number, total in enumerate(totals):
        code.store(counter.llvm, total, "%sums", 1, number * counter.bytes)
    code.do("ret void")
    return [*code.declarations, code.function(name, ["ptr %a", "ptr %w", "ptr %sums"])]


# After it, nothing is known about memory: LLVM may not do the work of all calls once.
_FORGET = """define internal void @bk_forget(ptr %a, ptr %w, ptr %sums) alwaysinline {
  call void asm sideeffect "", "r,r,r,~{memory}"(ptr %a, ptr %w, ptr %sums)
  ret void
}"""


def linked(objects: Mapping[str, bytes]) -> Any:
    """Relocatable objects by file name, linked and loaded into this process."""
    with tempfile.TemporaryDirectory() as folder:
        for file, data in objects.items():
            (Path(folder) / file).write_bytes(data)
        linker = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", "-z", "notext"]
        subprocess.run([*linker, *objects, "-o", "kernels.so"], cwd=folder, check=True)
        return ctypes.CDLL(str(Path(folder) / "kernels.so"))


def caller(
    symbol: str,
    callee: str,
    texts: Sequence[str],
    strides: Sequence[int] = (),
    around: tuple[str, str] | None = None,
) -> Any:
    """A PrimFunc that calls a kernel many times, as a package does.

    With strides it is a micro-kernel, and the later weights that it fetches are its own. `around`
    names functions that are called before and after all of that.
    """
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        T.func_attr({"global_symbol": symbol})
        buffers = [T.arg(name, T.Buffer((1 << 16,), "uint8")) for name in ("a", "w", "sums")]
        with T.attr(0, "pragma_import_llvm", "\n".join([*texts, _FORGET])):
            if around:
                T.evaluate(T.call_extern("void", around[0]))
            with T.serial(0, CALLS):
                addresses = [T.address_of(buffer[0]) for buffer in buffers]
                operands = [*addresses, addresses[1]] if strides else addresses
                T.evaluate(T.call_extern("void", callee, *operands, *map(T.int64, strides)))
                T.evaluate(T.call_extern("void", "bk_forget", *addresses))
            if around:
                T.evaluate(T.call_extern("void", around[1]))
    return builder.get()
