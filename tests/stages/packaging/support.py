"""A small program with hand-written kernels, for every target, and its NumPy meaning."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from hw.profile import Hardware
from stages.kinds import Files, Golden, in_memory
from stages.options import PackageOptions
from stages.packaging.compiling.linker import default_cache
from stages.packaging.files.package_files import assemble
from stages.packaging.program.kernel_program import Call, Program, Slot, TensorSpec

X86_64 = Hardware(
    name="x86_64",
    architecture="x86_64",
    triple="x86_64-linux-gnu",
    cpu="x86-64",
    zig_target="x86_64-linux-gnu.2.28",
    isa="sse2",
    core="generic-x86-64",
    threads=1,
    l1d_kib=32,
    l2_kib=256,
)
AARCH64 = Hardware(
    name="rpi3",
    architecture="aarch64",
    triple="aarch64-linux-gnu",
    cpu="cortex-a53",
    features=("+neon",),
    zig_target="aarch64-linux-gnu.2.28",
    isa="neon_aarch64",
    core="cortex-a53",
    threads=4,
    l1d_kib=32,
    l2_kib=512,
)
ARMV7 = Hardware(
    name="rpi3_armv7",
    architecture="armv7",
    triple="armv7a-linux-gnueabihf",
    cpu="cortex-a53",
    features=("+neon", "+vfp4"),
    float_abi="hard",
    zig_target="arm-linux-gnueabihf.2.28",
    zig_cpu="cortex_a53",
    isa="neon_armv7",
    core="cortex-a53",
    threads=4,
    l1d_kib=32,
    l2_kib=512,
)
TARGETS = (X86_64, AARCH64, ARMV7)

N = 1003
SCRATCH = 65536

# Each kernel takes its own share of the work. They call memset and memcpy, divide 64-bit integers
# (a library call on 32-bit ARM) and read past the end of their input, as real ones do.
KERNELS = r"""
#include <stdint.h>
#include <string.h>
enum { N = 1003, SCRATCH = 65536 };
static void share(int32_t task, int32_t n, int32_t *first, int32_t *last)
{
    *first = N * task / n;
    *last = N * (task + 1) / n;
}
void look_up(const void *x, const void *table, void *a, void *scratch, int32_t task, int32_t n)
{
    int32_t first, last;
    (void)scratch;
    share(task, n, &first, &last);
    for (int32_t i = first; i < last; i++)
        ((uint8_t *)a)[i] = ((const uint8_t *)table)[((const uint8_t *)x)[i]];
}
void window(const void *a, void *b, void *scratch, int32_t task, int32_t n)
{
    int32_t first, last;
    volatile uint8_t beyond = ((const uint8_t *)a)[N + 63];
    (void)beyond;
    share(task, n, &first, &last);
    memset(scratch, 0, SCRATCH);
    memcpy(scratch, (const uint8_t *)a + first, (size_t)(last - first));
    if (last < N)
        ((uint8_t *)scratch)[last - first] = ((const uint8_t *)a)[last];
    for (int32_t i = first; i < last; i++)
        ((int32_t *)b)[i] = ((uint8_t *)scratch)[i - first] + ((uint8_t *)scratch)[i - first + 1];
}
void divide(const void *a, void *c, void *scratch, int32_t task, int32_t n)
{
    int32_t first, last;
    (void)scratch;
    share(task, n, &first, &last);
    for (int32_t i = first; i < last; i++) {
        int64_t v = ((const uint8_t *)a)[i] + 1;
        ((int32_t *)c)[i] = (int32_t)(123456789012345LL / v % 1000003);
    }
}
void add(const void *b, const void *c, const void *bias, void *y, void *scratch, int32_t task,
         int32_t n)
{
    int32_t first, last;
    (void)scratch;
    share(task, n, &first, &last);
    for (int32_t i = first; i < last; i++)
        ((int32_t *)y)[i] = ((const int32_t *)b)[i] + ((const int32_t *)c)[i]
                            + ((const int32_t *)bias)[i % 5];
}
"""


def copy_runtime(folder: Path, *names: str) -> None:
    """Copy files of the runtime's C source to a folder."""
    for name in names:
        source = files("stages.packaging").joinpath("runtime").joinpath(name)
        (folder / name).write_bytes(source.read_bytes())


def zig(folder: Path, *arguments: str) -> None:
    """Run the C compiler in a folder, for x86-64 if no target is named."""
    # As packages are linked: the C compiler builds its support libraries once per such choice.
    here = ("-target", X86_64.zig_target, "-mcpu=baseline", "-O2", "-fno-sanitize=all", "-s")
    target = () if "-target" in arguments else here
    caches = {
        "ZIG_GLOBAL_CACHE_DIR": str(default_cache()),
        "ZIG_LOCAL_CACHE_DIR": str(folder / "zig-cache"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *arguments, *target],
        cwd=folder,
        env={**os.environ, **caches},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@lru_cache
def compile_object(source: str, hardware: Hardware) -> bytes:
    """Compile kernels to one relocatable object for the target."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "k.c").write_text(source)
        flags = ("-O2", "-g0", "-fPIC", "-ffreestanding", "-fno-sanitize=all")
        cpu = "cortex_a53" if hardware.architecture != "x86_64" else "baseline"
        target = ("-target", hardware.zig_target, f"-mcpu={cpu}")
        zig(Path(folder), "cc", *target, "-c", *flags, "k.c", "-o", "k.o")
        return (Path(folder) / "k.o").read_bytes()


def table(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, 256, np.uint8)


BIAS = np.arange(5, dtype=np.int32) * 1000


def make_program(hardware: Hardware, seed: int = 0, source: str = KERNELS) -> Program:
    """x → a; a is read twice; its two readers are added; `a` itself is an output too."""
    a = Slot("output", "levels")
    return Program(
        inputs=(TensorSpec("image", "uint8", (1, 17, 59), {"scale": 0.5, "zero_point": 3}),),
        outputs=(
            TensorSpec("scores */", "int32", (1, N)),
            TensorSpec("levels", "uint8", (1, 17, 59)),
        ),
        buffers={"b": 4 * N, "c": 4 * N},
        constants={"table": table(seed), "bias": BIAS, "bias again": BIAS},
        calls=(
            Call(
                "look_up", "stem", (Slot("input", "image"), Slot("constant", "table")), (a,), 0, 8
            ),
            Call("window", "left", (a,), (Slot("buffer", "b"),), SCRATCH, 8),
            Call("divide", "right", (a,), (Slot("buffer", "c"),), 0, 2),
            Call(
                "add",
                "sum",
                (Slot("buffer", "b"), Slot("buffer", "c"), Slot("constant", "bias again")),
                (Slot("output", "scores */"),),
                0,
                1,
            ),
        ),
        objects={"kernels.o": compile_object(source, hardware)},
    )


def meaning(image: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """What the program computes, for any number of samples."""
    flat = table(seed)[image.reshape(len(image), N)]
    wide = flat.astype(np.int64)
    window = wide + np.concatenate([wide[:, 1:], np.zeros((len(image), 1), np.int64)], axis=1)
    divided = 123456789012345 // (wide + 1) % 1000003
    scores = window + divided + BIAS[np.arange(N) % 5]
    return {
        "scores */": scores.astype(np.int32).reshape(len(image), 1, N),
        "levels": flat.reshape(len(image), 1, 17, 59),
    }


def make_golden(samples: int = 3, seed: int = 0) -> Golden:
    image = np.random.default_rng(9).integers(0, 256, (samples, 1, 17, 59), np.uint8)
    return Golden({"image": image}, meaning(image, seed))


def assembled(**given: Any) -> Files:
    """A package's files, in memory."""
    return in_memory(assemble(**given))


@lru_cache
def package(hardware: Hardware, name: str = "toy", seed: int = 0) -> Files:
    return assembled(
        program=make_program(hardware, seed),
        golden=make_golden(seed=seed),
        options=PackageOptions(name=name),
        hardware=hardware,
        provenance={"recipe": "toy"},
    )


def write(folder: Path, files: Files) -> Path:
    """Write a package to a folder, its program executable."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
        if "." not in name:
            (folder / name).chmod(0o755)
    return folder
