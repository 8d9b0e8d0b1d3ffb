"""Micro-kernels timed on the processor at hand, beside the peak of their instructions."""

from __future__ import annotations

import ctypes
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hw.profile import Hardware
from pipelines.runners.native import aligned

if TYPE_CHECKING:
    from stages.qnn.signature import KernelSignature

PEAK = "peak"
_WINDOW, _CHANNELS = 3, 128
_CALLS, _RUNS = 100, 5
_CHAINS, _STEPS = 12, 64
_MEMORY = 1 << 16  # of each operand; what a kernel touches stays in the first-level cache

# After it, nothing is known about memory: LLVM may not do the work of all calls once.
_FORGET = """define internal void @bk_forget(ptr %a, ptr %w, ptr %sums) alwaysinline {
  call void asm sideeffect "", "r,r,r,~{memory}"(ptr %a, ptr %w, ptr %sums)
  ret void
}"""


@dataclass(frozen=True)
class Timing:
    """Nanoseconds per 1,000 multiply-accumulates: the median of rounds, and the middle half."""

    low: float
    median: float
    high: float


def timings(
    signatures: Sequence[KernelSignature], hardware: Hardware, rounds: int
) -> dict[str, Timing]:
    """Every kernel by name, and as `peak` the instructions of one popcount, on registers alone.

    A kernel runs over a window of 3x3 pixels of 128 channels, as in a package. All run in turn,
    round by round, so that what disturbs one disturbs all.
    """
    from hw.isa import isa_of

    library = _library(signatures, hardware)
    memory = [aligned(_MEMORY) for _ in range(3)]
    for array in memory:
        array[:] = 0
    macs = {s.name: s.rows * s.channels * _WINDOW**2 * _CHANNELS * _CALLS for s in signatures}
    macs[PEAK] = _CHAINS * _STEPS * _CALLS * isa_of(hardware).lanes * 32
    samples: dict[str, list[float]] = {name: [] for name in macs}
    for _ in range(rounds):
        for name in macs:
            samples[name].append(_seconds(library[f"time_{name}"], memory) / macs[name])
    return {
        name: Timing(*(1e12 * x for x in statistics.quantiles(values, n=4)))
        for name, values in samples.items()
    }


def _seconds(entry: Any, arguments: Sequence[Any]) -> float:
    """The least of a few runs: the first finds caches full of another kernel's operands."""
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in arguments]
    least = math.inf
    for _ in range(_RUNS):
        start = time.perf_counter_ns()
        entry(*pointers)
        least = min(least, (time.perf_counter_ns() - start) * 1e-9)
    return least


def _library(signatures: Sequence[KernelSignature], hardware: Hardware) -> Any:
    """A function `time_NAME(data, weights, sums)` a kernel, and `time_peak`, loaded."""
    from stages.codegen import compile_object
    from stages.synthesizing import synthesized

    functions = {}
    for signature in signatures:
        body = synthesized(signature, hardware)
        words = _CHANNELS // signature.channels_per_word
        per_pixel = words * signature.word_bytes
        row = per_pixel * (_WINDOW + signature.rows)
        strides = (_WINDOW, _WINDOW * words, row, per_pixel, row * _WINDOW)
        name = f"time_{signature.name}"
        texts = [*body["declarations"], body["text"], _FORGET]
        functions[name] = _caller(name, signature.name, texts, strides)
    functions[f"time_{PEAK}"] = _caller(f"time_{PEAK}", "bk_peak", [*_peak(hardware), _FORGET], ())
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernels.o").write_bytes(compile_object(functions, hardware))
        linker = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", "-z", "notext"]
        subprocess.run([*linker, "kernels.o", "-o", "kernels.so"], cwd=folder, check=True)
        return ctypes.CDLL(str(Path(folder) / "kernels.so"))


def _caller(symbol: str, callee: str, texts: Sequence[str], strides: Sequence[int]) -> Any:
    """A PrimFunc that calls a kernel many times with constant strides, as a package does."""
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        T.func_attr({"global_symbol": symbol})
        buffers = [T.arg(name, T.Buffer((_MEMORY,), "uint8")) for name in ("a", "w", "sums")]
        with T.attr(0, "pragma_import_llvm", "\n".join(texts)), T.serial(0, _CALLS):
            addresses = [T.address_of(buffer[0]) for buffer in buffers]
            T.evaluate(T.call_extern("void", callee, *addresses, *map(T.int64, strides)))
            T.evaluate(T.call_extern("void", "bk_forget", *addresses))
    return builder.get()


def _peak(hardware: Hardware) -> list[str]:
    """An LLVM function that does nothing but and, count and add, in independent chains."""
    from hw.isa import isa_of
    from stages.qnn.llvm import FunctionText

    isa, code = isa_of(hardware), FunctionText()
    counter = isa["count"].result
    word = isa["and"].result

    def step(_index: str, carried: list[str]) -> list[str]:
        *counters, a, w = carried
        results = []
        for total in counters:
            # An unknown operand, or LLVM would move the same work out of the loop.
            a = code.let(f'call {word.llvm} asm sideeffect "", "=v,0"({word.llvm} {a})')
            bits = code.bitcast(code.apply(isa["and"], a, w), word.llvm, counter.llvm)
            counted = code.apply(isa["count"], bits)
            results.append(code.apply(isa[f"add.{counter.bits}"], total, counted))
        return [*results, a, w]

    operands = [code.load(word.llvm, pointer, 1) for pointer in ("%a", "%w")]
    chains = [(counter.llvm, "zeroinitializer")] * _CHAINS
    chains += [(word.llvm, operand) for operand in operands]
    totals = code.loop(str(_STEPS), chains, step)[:_CHAINS]
    for number, total in enumerate(totals):
        code.store(counter.llvm, total, "%sums", 1, number * isa.bytes)
    code.do("ret void")
    text = code.function("bk_peak", ["ptr %a", "ptr %w", "ptr %sums"])
    return [*code.declarations, text]
