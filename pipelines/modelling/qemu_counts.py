"""How often each block of a program runs under QEMU, and what its loads and stores meet."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipelines.errors import UserError
from pipelines.modelling.code_blocks import Block, Events, Interval
from pipelines.modelling.memory import NO_MEMORY, Memory
from pipelines.modelling.plugin import plugin
from pipelines.runners.replay import QEMU, qemu_lacks, qemu_prefix

WARM, BEGIN, END = 1000000, 1000001, 1000002
"""Arguments of sched_get_priority_max, a harmless system call, by which a program marks: from WARM
on the caches are filled, from BEGIN to END everything counts."""

CALLS: Mapping[str, int] = {"aarch64": 125, "armv7": 159, "x86_64": 146}
"""The number of that system call by architecture."""


def count(
    command: Sequence[str],
    *,
    architecture: str,
    cpu: str,
    prefix: Path | None = None,
    memory: Memory = NO_MEMORY,
    env: Mapping[str, str] | None = None,
) -> list[Interval]:
    """Run a program under qemu-user and return what ran between each pair of its marks.

    `cpu` is a processor of QEMU's, `prefix` the root of a file system in which the program's
    loader and libraries stand; without one Debian's C library for the architecture is taken.
    `env` is set for the program beside this process's environment. Counts are exact for a program
    of one thread. Raises UserError where QEMU or the library is missing, the program fails, or it
    sets no marks.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "counts"
        options = f"{plugin()},out={out},call={CALLS[architecture]},{memory.options()}"
        given = [*_emulator(architecture, prefix), "-cpu", cpu, "-plugin", options, *command]
        done = subprocess.run(
            given, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-1000:] or "it said nothing"
            raise UserError(
                f"{command[0]} ended with status {done.returncode} under {Path(given[0]).name} "
                f"-cpu {cpu}: {said}"
            )
        if not out.is_file():
            raise UserError(
                f"{command[0]} set no marks: call sched_get_priority_max({BEGIN}) before and "
                f"({END}) after what is to be counted"
            )
        return list(intervals(out.read_text(encoding="ascii")))


def intervals(text: str) -> Iterator[Interval]:
    """Read what the plugin wrote: a line for each interval, and one for each of its blocks."""
    for part in text.split("interval\n")[1:]:
        yield tuple(_block(line.split()) for line in part.splitlines())


def _block(fields: Sequence[str]) -> Block:
    address, instructions, count, *met, code = fields
    events = Events(*map(int, met))
    return Block(int(address, 16), int(instructions), int(count), bytes.fromhex(code), events)


def _emulator(architecture: str, prefix: Path | None) -> tuple[str, ...]:
    """QEMU's program for an architecture and its root; UserError says what is to be installed."""
    if architecture == "x86_64":  # its programs find their libraries here
        if found := shutil.which("qemu-x86_64"):
            return (found,)
        raise UserError(
            "counting instructions of x86_64 needs qemu-x86_64; on Debian: apt install qemu-user"
        )
    qemu = QEMU[architecture]
    # A statically linked QEMU, which would do for running a program, loads no plugin.
    program = shutil.which(qemu.program)
    absent = [package for package in qemu_lacks(architecture) if not prefix or package != qemu.libc]
    if program is None or absent:
        raise UserError(
            f"counting instructions of {architecture} needs {qemu.program} and a C library; on "
            f"Debian: apt install {' '.join(absent or ['qemu-user'])}"
        )
    root = (str(prefix),) if prefix else (qemu_prefix(architecture) or ())[2:]
    return (program, *(("-L", *root) if root else ()))
