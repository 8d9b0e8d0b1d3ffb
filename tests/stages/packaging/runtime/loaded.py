"""What tests of the runtime share: libraries as C would call them, programs of batches."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.packaging.program.kernel_program import Program
from tests.stages.packaging.support import (
    KERNELS,
    X86_64,
    make_golden,
    make_program,
    meaning,
)

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux",
    reason="runs packages for x86-64 Linux natively",
)


SPAN = np.dtype(
    [(name, "u8") for name in ("begin", "end")]
    + [(name, "i4") for name in ("layer", "picture", "thread", "reserved")]
)
"""`struct NAME_span` of a header."""


class Loaded:
    """A shared library of package `name`, called as C would."""

    def __init__(self, folder: Path, name: str) -> None:
        self.library = ctypes.CDLL(str(folder / f"lib{name}.so"))
        self.name = name
        for function in ("arena_size", "context_size"):
            self.entry(function).restype = ctypes.c_size_t
        self.entry("error").restype = ctypes.c_char_p

    def entry(self, function: str) -> Any:
        return getattr(self.library, f"{self.name}_{function}")

    def text(self, error: int) -> str:
        return str(self.entry("error")(error).decode())

    def open(self, threads: int) -> np.ndarray:
        """Return a zeroed context whose arena, poisoned, follows it in the same array."""
        size = int(self.entry("context_size")())
        both = memory(size + int(self.entry("arena_size")(threads)))
        both[:size] = 0
        at = both.ctypes.data
        error = self.entry("init")(ctypes.c_void_p(at), ctypes.c_void_p(at + size), threads)
        assert error == 0, self.text(error)
        return both

    def run(self, context: np.ndarray, ins: list[np.ndarray], outs: list[np.ndarray]) -> int:
        return int(
            self.entry("run")(ctypes.c_void_p(context.ctypes.data), pointers(ins), pointers(outs))
        )

    def finish(self, context: np.ndarray) -> None:
        self.entry("finish")(ctypes.c_void_p(context.ctypes.data))


def memory(size: int, offset: int = 0) -> np.ndarray:
    """Return poisoned memory `offset` bytes behind a 64-byte boundary."""
    room = np.full(size + 192, 0xA5, np.uint8)
    start = -room.ctypes.data % 64 + offset
    return room[start : start + size]


def pointers(arrays: list[np.ndarray]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def infer(
    toy: Loaded,
    context: np.ndarray,
    sample: int,
    seed: int = 0,
    offsets: tuple[int, ...] = (0,) * 3,
) -> None:
    """Run one golden sample with tensors `offsets` bytes off alignment and compare."""
    image = make_golden().inputs["image"]
    expected = meaning(image, seed)
    source = memory(1003, offsets[0])
    source[:] = image[sample].ravel()
    outs = [memory(4012, offsets[1]), memory(1003, offsets[2])]
    assert toy.run(context, [source], outs) == 0
    for out, name in zip(outs, expected, strict=True):
        assert out.tobytes() == expected[name][sample].tobytes(), name


def of_three_images() -> Program:
    one = make_program(X86_64)
    return replace(
        one,
        inputs=tuple(replace(spec, shape=(3, *spec.shape[1:])) for spec in one.inputs),
        outputs=tuple(replace(spec, shape=(3, *spec.shape[1:])) for spec in one.outputs),
        images=3,
    )


ADD_ALL = r"""
void add_all(const void *b, const void *c, const void *bias, void *y, void *scratch, int32_t task,
             int32_t n)
{
    (void)scratch;
    for (int32_t i = 3 * N * task / n; i < 3 * N * (task + 1) / n; i++)
        ((int32_t *)y)[i] = ((const int32_t *)b)[i / N * 1008 + i % N]
                            + ((const int32_t *)c)[i / N * 1008 + i % N]
                            + ((const int32_t *)bias)[i % N % 5];
}
"""


def with_a_last_call_for_all() -> Program:
    """Images are collected at a distance of 1008 numbers."""
    several = of_three_images()
    *calls, last = several.calls
    return replace(
        several,
        buffers={"b": 3 * 4 * 1008, "c": 3 * 4 * 1008},
        calls=(*calls, replace(last, symbol="add_all", max_tasks=7)),
        objects=make_program(X86_64, source=KERNELS + ADD_ALL).objects,
        batch_call_count=1,
    )


def run_program(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
