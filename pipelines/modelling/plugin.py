"""The emulator's plugin, compiled from the package's own C when it is first needed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from pipelines.errors import UserError
from pipelines.store import atomic
from pipelines.store.keys import digest, tool_version

_SOURCES = ("plugin.c", "memory.h")
_FLAGS = ("-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-z,undefs")


def plugin() -> Path:
    """The plugin for this machine's QEMU; compiled once for each of its texts and compilers."""
    return compiled(dict(_texts()), "plugin.c")


def compiled(texts: dict[str, bytes], main: str) -> Path:
    """A shared library for this machine from C that stands in files of these names.

    Raises UserError where there is no compiler, or it refuses the text.
    """
    from stages.packaging.compiling.linker import default_cache

    parts = [tool_version("ziglang"), *_FLAGS, main]
    parts += [part for name in sorted(texts) for part in (name, digest(texts[name]))]
    key = digest("\0".join(parts))[:16]
    target = default_cache().parent / "modelling" / f"{Path(main).stem}-{key}.so"
    if target.is_file():
        return target
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_bytes(text)
        command = [sys.executable, "-m", "ziglang", "cc", *_FLAGS, main, "-o", "made.so"]
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(default_cache())}
        default_cache().mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if "No module named ziglang" in done.stderr:
            raise UserError("no C compiler for the emulator's plugin; run: pip install ziglang")
        if done.returncode:
            raise UserError(f"{main} was not compiled: {done.stderr.strip()[-500:]}")
        atomic.replace(target, (Path(folder) / "made.so").read_bytes())
    return target


def _texts() -> list[tuple[str, bytes]]:
    here = files("pipelines.modelling")
    return [(name, here.joinpath(name).read_bytes()) for name in _SOURCES]
