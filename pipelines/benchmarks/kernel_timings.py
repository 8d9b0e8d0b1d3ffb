"""Micro-kernels timed on the processor at hand, beside the peak of their instructions."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hw.profile import Hardware
from pipelines.benchmarks.peaks import (
    CALLS,
    CHAINS,
    STEPS,
    caller,
    least_seconds,
    linked,
    popcounts_text,
)
from pipelines.runners.native import aligned

if TYPE_CHECKING:
    from stages.kernels.signature import KernelSignature

PEAK = "peak"
_WINDOW, _CHANNELS = 3, 128
_RUNS = 5
_MEMORY = 1 << 16  # of each operand; what a kernel touches stays in the L1 cache


@dataclass(frozen=True)
class KernelTime:
    """Nanoseconds per 1,000 multiply-accumulates: the median of rounds, and the middle half."""

    low: float
    median: float
    high: float


def timings(
    signatures: Sequence[KernelSignature], hardware: Hardware, rounds: int
) -> dict[str, KernelTime]:
    """Every kernel by name, and as `peak` the instructions of one popcount, on registers alone.

    A kernel runs over a window of 3x3 pixels of 128 channels, as in a package. All run in turn,
    round by round, so that what disturbs one disturbs all.
    """
    from hw.isa import isa_of

    library = _library(signatures, hardware)
    memory = [aligned(_MEMORY) for _ in range(3)]
    for array in memory:
        array[:] = 0
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in memory]
    macs = {s.name: s.rows * s.channels * _WINDOW**2 * _CHANNELS * CALLS for s in signatures}
    macs[PEAK] = CHAINS * STEPS * CALLS * isa_of(hardware).lanes * 32
    samples: dict[str, list[float]] = {name: [] for name in macs}
    for _ in range(rounds):
        for name in macs:
            seconds = least_seconds(library[f"time_{name}"], pointers, _RUNS)
            samples[name].append(seconds / macs[name])
    return {
        name: KernelTime(*(1e12 * x for x in statistics.quantiles(values, n=4)))
        for name, values in samples.items()
    }


def _library(signatures: Sequence[KernelSignature], hardware: Hardware) -> Any:
    """A function `time_NAME(data, weights, sums)` a kernel, and `time_peak`, loaded."""
    from hw.isa import isa_of
    from stages.codegen import compile_object
    from stages.kernels.signature import TILES_BEGIN, TILES_END
    from stages.synthesizing import synthesized

    functions = {}
    for signature in signatures:
        body = synthesized(signature, hardware)
        words = _CHANNELS // signature.channels_per_word
        per_pixel = words * signature.word_bytes
        row = per_pixel * (_WINDOW + signature.rows)
        strides = (_WINDOW, _WINDOW * words, row, per_pixel, row * _WINDOW, 0, 1, 0)
        name = f"time_{signature.name}"
        texts, around = [*body["declarations"], body["text"]], None
        if "shaping" in body:
            shaping, declarations = body["shaping"]
            texts, around = [*declarations, shaping, *texts], (TILES_BEGIN, TILES_END)
        functions[name] = caller(name, signature.name, texts, strides, around)
    peak = f"time_{PEAK}"
    functions[peak] = caller(peak, "bk_popcount", popcounts_text(isa_of(hardware)))
    return linked({"kernels.o": compile_object(functions, hardware)})
