"""Programs for boards, compiled here: the runner, and libraries of the kernels that it is to time.

Both are linked against glibc 2.28. Where a board has none that is as new, runner and kernels are
one program that needs no library at all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from hw.profile import Hardware
from pipelines.errors import UserError
from pipelines.store import atomic, keys

SOURCES = ("main.c", "store.c", "board.c", "threads.c", "kernels.c", "package.c")
HEADER = "runner.h"
GLIBC = (2, 28)
"""What the runner needs at least where it is not static."""
_TARGETS = {
    "aarch64": ("aarch64-linux-gnu.2.28", "aarch64-linux-musl"),
    "armv7": ("arm-linux-gnueabihf.2.28", "arm-linux-musleabihf"),
    "x86_64": ("x86_64-linux-gnu.2.28", "x86_64-linux-musl"),
}
ARCHITECTURES = tuple(_TARGETS)
_FLAGS = ("-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-fno-sanitize=all")
_LINK = ("-s", "-Wl,--gc-sections", "-Wl,--build-id=none")
_STATIC = ("-static", "-DSTATIC", "-lpthread", "-lm")
_RUNTIME = ("rounding.c", "conversions.c")
"""Functions of the packages' runtime that compiled kernels may call."""


def runner(architecture: str, is_static: bool = False) -> Path:
    """Return the runner for an architecture, compiled once for a user.

    A static one loads no libraries; kernels have to be linked into it (`static`).
    """
    sources = {name: _text("pipelines.remote", "runner", name) for name in (*SOURCES, HEADER)}
    target = _TARGETS[architecture][int(is_static)]
    made = [target, sources, _FLAGS, _LINK, keys.tool_version("ziglang")]
    path = _cache().parent / "runner" / keys.digest(keys.canonical(made))[:16]
    if not path.is_file():
        flags: tuple[str, ...] = ("-lpthread", "-ldl", "-lm")
        compiled = list(SOURCES)
        if is_static:
            sources["none.c"] = table({})
            compiled.append("none.c")
            flags = _STATIC
        with tempfile.TemporaryDirectory(prefix="bitkiln-runner-") as folder:
            atomic.replace(path, _compiled(Path(folder), target, sources, compiled, flags))
    return path


def library(objects: Mapping[str, bytes], kernels: Mapping[str, int], hardware: Hardware) -> bytes:
    """Return a shared library of kernels.

    `objects` are relocatable ones by file name, `kernels` the number of tensors that each takes.
    """
    with tempfile.TemporaryDirectory(prefix="bitkiln-library-") as folder:
        flags = ("-shared", "-fPIC", "-Wl,-z,notext", *_as(hardware))
        target = _TARGETS[hardware.architecture][0]
        sources, compiled = _of_kernels(Path(folder), objects, kernels)
        return _compiled(Path(folder), target, sources, compiled, flags)


def static(objects: Mapping[str, bytes], kernels: Mapping[str, int], hardware: Hardware) -> bytes:
    """Return a runner that has kernels in it and needs no library."""
    with tempfile.TemporaryDirectory(prefix="bitkiln-static-") as folder:
        target = _TARGETS[hardware.architecture][1]
        own = {name: _text("pipelines.remote", "runner", name) for name in SOURCES}
        sources, compiled = _of_kernels(Path(folder), objects, kernels)
        flags = (*_STATIC, *_as(hardware))
        return _compiled(Path(folder), target, own | sources, [*own, *compiled], flags)


def _as(hardware: Hardware) -> tuple[str, ...]:
    return (f"-mcpu={hardware.zig_cpu}",)


def _of_kernels(
    folder: Path, objects: Mapping[str, bytes], kernels: Mapping[str, int]
) -> tuple[dict[str, str], list[str]]:
    """Write objects; return what is to be compiled beside them, and all there is to be linked."""
    for name, data in objects.items():
        (folder / name).write_bytes(data)
    sources = {name: _text("stages.packaging", "runtime", name) for name in _RUNTIME}
    sources |= {
        "kernels_of_library.c": table(kernels),
        HEADER: _text(__package__, "runner", HEADER),
    }
    return sources, [*_RUNTIME, "kernels_of_library.c", *objects]


def table(kernels: Mapping[str, int]) -> str:
    """Return C that lists kernels by name, each behind a function that takes an array of tensors.

    A kernel takes its tensors, its scratch, a task and the number of tasks.
    """
    lines = ['#include "runner.h"']
    for symbol, count in kernels.items():
        declared = ", ".join(["void *"] * (count + 1) + ["int32_t", "int32_t"])
        passed = ", ".join([f"a[{place}]" for place in range(count + 1)] + ["task", "tasks"])
        lines += [
            f"void {symbol}({declared});",
            f"static void call_{symbol}(void *const *a, int32_t task, int32_t tasks)",
            f"{{ {symbol}({passed}); }}",
        ]
    entries = [f'    {{"{symbol}", call_{symbol}}},' for symbol in kernels]
    lines += ["const struct entry bitkiln_kernels[] = {", *entries, "    {NULL, NULL},", "};"]
    return "\n".join([*lines, ""])


def _cache() -> Path:
    """Where the C compiler keeps its libraries; asking for it loads TVM."""
    from stages.packaging.compiling.linker import default_cache

    return default_cache()


def _text(package: str, folder: str, name: str) -> str:
    return files(package).joinpath(folder).joinpath(name).read_text()


def _compiled(
    folder: Path,
    target: str,
    sources: Mapping[str, str],
    compiled: Sequence[str],
    flags: Sequence[str],
) -> bytes:
    for name, text in sources.items():
        (folder / name).write_text(text)
    (folder / HEADER).write_text(_text("pipelines.remote", "runner", HEADER))
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *_FLAGS, *compiled]
    cache = {
        "ZIG_GLOBAL_CACHE_DIR": str(_cache()),
        "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
    }
    done = subprocess.run(
        [*command, *_LINK, *flags, "-o", "program"],
        cwd=folder,
        env={**os.environ, **cache},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UserError(f"a program for boards was not linked: {done.stderr.strip()[-500:]}")
    return (folder / "program").read_bytes()
