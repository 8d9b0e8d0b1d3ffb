"""The C runtime on this machine: threads, errors, several packages in one process."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stages.kinds import Golden
from stages.options import PackageOptions
from stages.packaging.c_source.graph_source import graph_source
from stages.packaging.program.arena import plan
from stages.packaging.program.kernel_program import Call, Program, Slot, TensorSpec
from stages.packaging.program.packed_constants import pack_constants
from tests.stages.packaging.runtime.loaded import Loaded, infer, memory, pointers, run_program
from tests.stages.packaging.support import (
    X86_64,
    assembled,
    compile_object,
    make_golden,
    make_program,
    meaning,
    package,
    write,
    zig,
)

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux",
    reason="runs packages for x86-64 Linux natively",
)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    yield Loaded(write(tmp_path_factory.mktemp("toy"), package(X86_64)), "toy")


@pytest.mark.parametrize("threads", [1, 2, 3, 9])
def test_every_thread_count_gives_the_same_bits(toy: Loaded, threads: int) -> None:
    context = toy.open(threads)
    for index in range(60):
        infer(toy, context, index % 3)
    toy.finish(context)


@pytest.mark.parametrize(
    ("small", "waits"),
    [({0}, 3), ({1, 2}, 1), ({0, 1}, 2), ({2, 3}, 2), ({0, 1, 2, 3}, 0)],
    ids=str,
)
def test_one_thread_may_make_calls_for_all(small: set[int], waits: int, tmp_path: Path) -> None:
    """Between two that are shared, the last of which is one; if none is, nobody is woken."""
    toy = make_program(X86_64)
    calls = tuple(replace(call, is_small=n in small) for n, call in enumerate(toy.calls))
    program = replace(toy, calls=calls)
    text = graph_source(program, plan(program), pack_constants(program), X86_64)
    assert text.count("rt_sync(") == waits
    assert ("rt_run(" in text) == bool(waits)
    files = assembled(
        program=program,
        golden=make_golden(),
        options=PackageOptions(name="toy"),
        hardware=X86_64,
        provenance={},
    )
    package = Loaded(write(tmp_path, files), "toy")
    for threads in (1, 2, 3):
        context = package.open(threads)
        for index in range(60):
            infer(package, context, index % 3)
        package.finish(context)


@pytest.mark.parametrize("offsets", [(1, 0, 0), (0, 4, 0), (0, 0, 63), (3, 12, 1), (64, 64, 64)])
def test_tensors_may_be_misaligned(toy: Loaded, offsets: tuple[int, ...]) -> None:
    for threads in (1, 2):
        context = toy.open(threads)
        infer(toy, context, 1, offsets=offsets)
        toy.finish(context)


def test_contexts_are_independent(toy: Loaded) -> None:
    first, second = toy.open(2), toy.open(1)
    for index in range(6):
        infer(toy, first if index % 2 else second, index % 3)
    toy.finish(first)
    infer(toy, second, 0)
    toy.finish(second)


def test_threads_start_and_end_many_times(toy: Loaded) -> None:
    def tasks() -> int:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208

    before = tasks()
    for index in range(100):
        context = toy.open(3)
        if index % 2:
            infer(toy, context, index % 3)
        toy.finish(context)
    # A thread that was joined may be listed for a moment longer.
    deadline = time.monotonic() + 5
    while tasks() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert tasks() == before


def test_each_mistake_has_its_sentence(toy: Loaded) -> None:
    init, run = toy.entry("init"), toy.entry("run")
    at = ctypes.c_void_p(memory(1 << 20).ctypes.data)
    odd = ctypes.c_void_p((at.value or 0) + 8)
    assert "pointer is NULL" in toy.text(init(None, at, 1))
    assert "pointer is NULL" in toy.text(init(at, None, 1))
    assert "not 64-byte aligned" in toy.text(init(odd, at, 1))
    assert "not 64-byte aligned" in toy.text(init(at, odd, 1))
    for threads in (0, -1, 257):
        assert "not in 1..256" in toy.text(init(at, at, threads))
        assert toy.entry("arena_size")(threads) == 0
    fresh = memory(1 << 20)
    fresh[:] = 0
    tensors = [memory(5000)] * 2
    assert "call init first" in toy.text(toy.run(fresh, tensors, tensors))
    context = toy.open(1)
    assert "pointer is NULL" in toy.text(run(None, pointers(tensors), pointers(tensors)))
    nothing = (ctypes.c_void_p * 2)(None, None)
    here = ctypes.c_void_p(context.ctypes.data)
    assert "pointer is NULL" in toy.text(run(here, nothing, pointers(tensors)))
    assert "pointer is NULL" in toy.text(run(here, pointers(tensors), nothing))
    toy.finish(context)
    toy.finish(context)
    assert "call init first" in toy.text(toy.run(context, tensors, tensors))
    assert toy.text(99) == "unknown error code"


@pytest.mark.parametrize("threads", [1, 3])
def test_a_running_context_is_not_begun_anew(toy: Loaded, threads: int) -> None:
    context = toy.open(threads)
    here = ctypes.c_void_p(context.ctypes.data)
    arena = ctypes.c_void_p(context.ctypes.data + int(toy.entry("context_size")()))
    for other in (1, threads, 2):
        assert "initialised already; call finish" in toy.text(toy.entry("init")(here, arena, other))
    infer(toy, context, 1)
    toy.finish(context)
    assert toy.entry("init")(here, arena, threads) == 0
    infer(toy, context, 2)
    toy.finish(context)


def test_a_copy_of_a_running_context_is_none(toy: Loaded) -> None:
    """Memory that held one elsewhere is neither run nor in the way of init."""
    context = toy.open(1)
    copy = memory(context.nbytes)
    copy[:] = context
    tensors = [memory(5000)] * 2
    assert "call init first" in toy.text(toy.run(copy, tensors, tensors))
    here = ctypes.c_void_p(copy.ctypes.data)
    arena = ctypes.c_void_p(copy.ctypes.data + int(toy.entry("context_size")()))
    assert toy.entry("init")(here, arena, 1) == 0
    toy.finish(copy)
    infer(toy, context, 0)
    toy.finish(context)


def test_two_packages_with_the_same_kernels_share_a_process(toy: Loaded, tmp_path: Path) -> None:
    other = Loaded(write(tmp_path, package(X86_64, "other", 5)), "other")
    here, there = toy.open(2), other.open(2)
    for index in range(6):
        infer(toy, here, index % 3)
        infer(other, there, index % 3, seed=5)
    toy.finish(here)
    other.finish(there)


MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "toy.h"
#include "other.h"
int main(void)
{
    unsigned char x[1003] = {0}, levels[2][1003];
    int scores[2][1003];
    const void *in[] = {x};
    for (int i = 0; i < 2; i++) {
        void *out[] = {scores[i], levels[i]};
        size_t size = i ? other_context_size() : toy_context_size();
        void *context = memset(aligned_alloc(64, size), 0, size);
        void *arena = aligned_alloc(64, i ? other_arena_size(2) : toy_arena_size(2));
        if ((i ? other_init : toy_init)(context, arena, 2)
            || (i ? other_run : toy_run)(context, in, out))
            return 1;
        (i ? other_finish : toy_finish)(context);
    }
    printf("%d %d\n", levels[0][0], levels[1][0]);
}
"""


def test_two_static_packages_link_into_one_program(tmp_path: Path) -> None:
    write(tmp_path, package(X86_64))
    write(tmp_path, package(X86_64, "other", 5))
    (tmp_path / "main.c").write_text(MAIN)
    zig(tmp_path, "cc", "main.c", "libtoy.a", "libother.a", "-lpthread", "-o", "main")
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    zero = np.zeros((1, 1, 17, 59), np.uint8)
    expected = [meaning(zero, seed)["levels"][0, 0, 0, 0] for seed in (0, 5)]
    assert done.stdout.split() == [str(value) for value in expected]


RELAY = r"""
#include <stdint.h>
void relay(const void *x, void *y, void *scratch, int32_t task, int32_t n)
{
    enum { N = 64 };
    (void)scratch;
    /* Every task reads what another wrote before: a missing barrier shows. */
    for (int32_t i = task; i < N; i += n)
        ((uint32_t *)y)[i] = ((const uint32_t *)x)[(i * 7 + 13) % N] * 5 + (uint32_t)i;
}
"""


def test_a_hundred_short_calls_keep_their_order(tmp_path: Path) -> None:
    slots = [
        Slot("input", "x"),
        *(Slot("buffer", f"b{index}") for index in range(99)),
        Slot("output", "y"),
    ]
    values = np.arange(64, dtype=np.uint32)[None]
    expected = values[0]
    for _ in range(100):
        order = (np.arange(64) * 7 + 13) % 64
        expected = expected[order] * np.uint32(5) + np.arange(64, dtype=np.uint32)
    program = Program(
        inputs=(TensorSpec("x", "uint32", (64,)),),
        outputs=(TensorSpec("y", "uint32", (64,)),),
        buffers={slot.name: 256 for slot in slots[1:-1]},
        constants={},
        calls=tuple(
            Call("relay", f"call {i}", (slots[i],), (slots[i + 1],), 0, 64) for i in range(100)
        ),
        objects={"relay.o": compile_object(RELAY, X86_64)},
    )
    built = assembled(
        program=program,
        golden=Golden({"x": values}, {"y": expected[None]}),
        options=PackageOptions(name="relay", formats=("executable",)),
        hardware=X86_64,
        provenance={},
    )
    write(tmp_path, built)
    for threads in (1, 2, 3):
        done = run_program(tmp_path / "relay", "--threads", str(threads), "--repeat", "40")
        assert done.returncode == 0, done.stdout
