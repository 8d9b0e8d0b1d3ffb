"""The C runtime on this machine: threads, errors, several packages in one process."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hw.profile import Hardware
from stages.kinds import Golden
from stages.options import PackageOptions
from stages.packaging.c_source.features import CHECKS, OPTIONAL
from stages.packaging.c_source.graph_source import graph_source
from stages.packaging.program.arena import plan
from stages.packaging.program.constants import pack_constants
from stages.packaging.program.program import Call, Program, Slot, TensorSpec
from tests.stages.packaging.support import (
    KERNELS,
    X86_64,
    assembled,
    compile_object,
    copy_runtime,
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


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    yield Loaded(write(tmp_path_factory.mktemp("toy"), package(X86_64)), "toy")


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


@pytest.fixture(scope="module", params=["apart", "collected"])
def program_of_batch(request: pytest.FixtureRequest) -> Program:
    """The toy, run for each of three pictures; its last call for each or for all at once."""
    return of_three_pictures() if request.param == "apart" else with_a_last_call_for_all()


@pytest.fixture(scope="module")
def batch(program_of_batch: Program, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Its package; a picture's share of the caller's tensors is nowhere aligned."""
    golden = make_golden()
    files = assembled(
        program=program_of_batch,
        golden=Golden(
            {name: value.swapaxes(0, 1) for name, value in golden.inputs.items()},
            {name: value.swapaxes(0, 1) for name, value in golden.outputs.items()},
        ),
        options=PackageOptions(name="toy"),
        hardware=X86_64,
        provenance={},
    )
    return Loaded(write(tmp_path_factory.mktemp("batch"), files), "toy")


def of_three_pictures() -> Program:
    one = make_program(X86_64)
    return replace(
        one,
        inputs=tuple(replace(spec, shape=(3, *spec.shape[1:])) for spec in one.inputs),
        outputs=tuple(replace(spec, shape=(3, *spec.shape[1:])) for spec in one.outputs),
        pictures=3,
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
    """Pictures are collected at a distance of 1008 numbers."""
    several = of_three_pictures()
    *calls, last = several.calls
    return replace(
        several,
        buffers={"b": 3 * 4 * 1008, "c": 3 * 4 * 1008},
        calls=(*calls, replace(last, symbol="add_all", max_tasks=7)),
        objects=make_program(X86_64, source=KERNELS + ADD_ALL).objects,
        together=1,
    )


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 9])
def test_threads_take_pictures_or_share_the_work_of_each(batch: Loaded, threads: int) -> None:
    image = make_golden().inputs["image"]
    expected = meaning(image)
    context = batch.open(threads)
    for offset in (0, 0, 7):
        source = memory(image.nbytes, offset)
        source[:] = image.ravel()
        outs = [memory(value.nbytes, offset) for value in expected.values()]
        assert batch.run(context, [source], outs) == 0
        for out, value in zip(outs, expected.values(), strict=True):
            assert out.tobytes() == value.tobytes()
    batch.finish(context)


def test_threads_have_arenas_of_their_own_while_there_are_pictures(
    batch: Loaded, program_of_batch: Program
) -> None:
    sizes = [int(batch.entry("arena_size")(threads)) for threads in (1, 2, 3, 4, 5)]
    planned = plan(program_of_batch)
    assert sizes == [planned.size(threads) for threads in (1, 2, 3, 4, 5)]
    several, shared = sizes[2] - sizes[1], sizes[4] - sizes[3]
    assert several >= shared >= 65536  # its scratch
    if not program_of_batch.together:  # else there is room where the last call has its output
        assert sizes[1] - sizes[0] == several > shared
        assert sizes[3] < sizes[2] + several


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


FORKED = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "toy.h"
static unsigned char x[1003], levels[1003];
static int scores[1003];
static const void *in[] = {x};
static void *out[] = {scores, levels};
int main(int count, char **arguments)
{
    int threads = atoi(arguments[count - 1]), status;
    void *context = aligned_alloc(64, toy_context_size());
    void *arena = aligned_alloc(64, toy_arena_size(threads));
    memset(context, 0, toy_context_size());
    if (toy_init(context, arena, threads) || toy_run(context, in, out))
        return 1;
    if (fork() == 0) {
        puts(toy_error(toy_run(context, in, out)));
        if (threads > 1)
            puts(toy_error(toy_init(context, arena, threads)));
        toy_finish(context);
        puts(toy_error(toy_init(context, arena, threads)));
        puts(toy_error(toy_run(context, in, out)));
        toy_finish(context);
        free(arena);
        free(context);
        return 0;
    }
    if (wait(&status) < 0 || status || toy_run(context, in, out))
        return 1;
    toy_finish(context);
    free(arena);
    free(context);
    return 0;
}
"""


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write(tmp_path_factory.mktemp("forked"), package(X86_64))
    (folder / "main.c").write_text(FORKED)
    zig(folder, "cc", "main.c", "libtoy.a", "-lpthread", "-o", "main")
    return folder / "main"


FINE = ["no error"] * 2


def test_one_thread_goes_on_in_a_forked_child(forked: Path) -> None:
    done = subprocess.run([forked, "1"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["no error", *FINE]


def test_several_threads_are_refused_in_a_forked_child(forked: Path) -> None:
    """It has none of them; with its own it goes on."""
    done = subprocess.run([forked, "3"], capture_output=True, text=True, check=True, timeout=60)
    refused, running, *rest = done.stdout.splitlines()
    assert refused.startswith("the context's threads are not in this process")
    assert running.startswith("the context is initialised already")
    assert rest == FINE


@pytest.mark.skipif(not shutil.which("valgrind"), reason="needs valgrind")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_memcheck_finds_nothing(forked: Path, threads: str) -> None:
    command = ["valgrind", "-q", "--leak-check=full", "--error-exitcode=9", str(forked), threads]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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


def run_program(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=False)


def test_the_program_replays_compares_and_complains(tmp_path: Path) -> None:
    program = write(tmp_path, package(X86_64)) / "toy"
    done = run_program(program, "--threads", "3", "--repeat", "5")
    assert done.returncode == 0
    assert re.fullmatch(
        r"ok: 3 samples bit for bit, 3 threads, median \d+\.\d{6} ms, fastest \d+\.\d{6} ms "
        r"of 5 runs\n",
        done.stdout,
    )
    golden = bytearray((tmp_path / "golden.bin").read_bytes())
    at = struct.unpack_from("<Q", golden, 32 + 128 + 120)[0]
    golden[at + 2 * 4012 + 7] ^= 1
    (tmp_path / "changed.bin").write_bytes(golden)
    done = run_program(program, str(tmp_path / "changed.bin"))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: the golden vectors are damaged; copy them again: ")
    struct.pack_into("<I", golden, 8, zlib.crc32(golden[12:]))
    (tmp_path / "changed.bin").write_bytes(golden)
    done = run_program(program, str(tmp_path / "changed.bin"))
    assert done.returncode == 1
    assert re.match(r"mismatch: sample 2, output scores \*/, byte 7: 0x", done.stdout)


def _golden(rest: bytes) -> bytes:
    """A file of no tensors, whose checksum and length are right."""
    checked = struct.pack("<3IQ", 1, 0, 0, 32 + len(rest)) + rest
    return b"bkgold\0\2" + struct.pack("<I", zlib.crc32(checked)) + checked


@pytest.mark.parametrize("arguments", [("--threads",), ("--threads", "0"), ("-x",), ("a", "b")])
def test_the_program_explains_its_options(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run_program(write(tmp_path, package(X86_64)) / "toy", *arguments)
    assert done.returncode == 3
    assert "[--threads N] [--repeat N]" in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        (b"", "do not belong to this package"),
        (b"bkgold\0\1" + b"\xff" * 2000, "do not belong to this package"),
        (b"bkgold\0\2" + b"\xff" * 2000, "are damaged; copy them again"),
        (b"bkgold\0\2", "are damaged; copy them again"),
        (_golden(b"x"), "do not belong to this package"),
    ],
)
def test_the_program_refuses_damaged_vectors(
    content: bytes | None, said: str, tmp_path: Path
) -> None:
    program = write(tmp_path, package(X86_64)) / "toy"
    (tmp_path / "golden.bin").unlink()
    if content is not None:
        (tmp_path / "golden.bin").write_bytes(content)
    done = run_program(program)
    assert (done.returncode, done.stdout) == (3, "")
    assert said in done.stderr


def test_cut_vectors_are_refused(tmp_path: Path) -> None:
    program = write(tmp_path, package(X86_64)) / "toy"
    whole = (tmp_path / "golden.bin").read_bytes()
    for size in (10, 24, 32, 200, 32 + 3 * 128, len(whole) - 1):
        (tmp_path / "golden.bin").write_bytes(whole[:size])
        assert run_program(program).returncode == 3
    (tmp_path / "golden.bin").write_bytes(whole + b"\0")
    assert run_program(program).returncode == 3


# What Linux calls the features that LLVM names differently.
_LINUX = {
    **{"pclmul": "pclmulqdq", "lzcnt": "abm", "sahf": "lahf_lm", "bmi": "bmi1", "sse3": "pni"},
    **{"sse4.1": "sse4_1", "sse4.2": "sse4_2", "avxvnni": "avx_vnni"},
    **{"avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16", "avx512vnni": "avx512_vnni"},
    **{"avx512vbmi2": "avx512_vbmi2", "avx512bitalg": "avx512_bitalg"},
    **{"avx512vpopcntdq": "avx512_vpopcntdq", "amx-bf16": "amx_bf16", "amx-tile": "amx_tile"},
    **{"amx-int8": "amx_int8", "avxvnniint8": "avx_vnni_int8"},
}


def test_the_runtime_sees_the_features_that_linux_sees(tmp_path: Path) -> None:
    """CPUID leaves, bits and saved state of every feature, against /proc/cpuinfo."""
    line = next(
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")
    )
    flags = set(line.split())
    rows = "\n".join(
        f'{{"{_LINUX.get(name, name)}", {{{{{", ".join(f"{word}u" for word in check)}}}}}}},'
        for name, check in CHECKS["x86_64"].items()
    )
    (tmp_path / "ask.c").write_text(
        '#include "runtime.h"\n#include <stdio.h>\n'
        "static const struct { const char *name; struct rt_feature feature; } all[] = {\n"
        f"{rows}\n}};\n"
        "int main(void) { for (int i = 0; i < (int)(sizeof all / sizeof *all); i++)\n"
        "    if (rt_has_features(&all[i].feature, 1)) puts(all[i].name); }\n"
    )
    copy_runtime(tmp_path, "runtime.h", "processor.c")
    zig(tmp_path, "cc", "ask.c", "processor.c", "-lpthread", "-o", "ask")
    done = subprocess.run([tmp_path / "ask"], capture_output=True, text=True, check=True)
    known = {_LINUX.get(name, name) for name in CHECKS["x86_64"]}
    assert set(done.stdout.split()) == flags & known


def test_a_processor_that_lacks_a_feature_is_refused(tmp_path: Path) -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split())
    known = CHECKS["x86_64"].keys() - OPTIONAL
    lacking = [name for name in known if _LINUX.get(name, name) not in flags]
    if not lacking:
        pytest.skip("this processor has every feature")
    data = X86_64.model_dump() | {"features": tuple(f"+{name}" for name in lacking)}
    files = package(Hardware.model_validate(data), "picky")
    library = Loaded(write(tmp_path, files), "picky")
    room = memory(1 << 20)
    at = ctypes.c_void_p(room.ctypes.data)
    error = library.entry("init")(at, at, 1)
    assert error == library.entry("supported")() == 4
    sentence = library.text(error)
    assert sentence.startswith(f"this package needs a processor with {sorted(lacking)[0]}")
    done = run_program(tmp_path / "picky")
    assert (done.returncode, done.stderr) == (2, f"error: {sentence}\n")
