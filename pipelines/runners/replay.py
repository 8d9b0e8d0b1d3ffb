"""Runs a package's own program, which replays its golden vectors: directly or under qemu."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import UserError
from pipelines.runners.package import Package

_OK = re.compile(r"ok: (\d+) samples .* median ([\d.]+) ms, fastest ([\d.]+) ms")
_QEMU = {
    "aarch64": ("qemu-aarch64", "/usr/aarch64-linux-gnu", "libc6-arm64-cross"),
    "armv7": ("qemu-arm", "/usr/arm-linux-gnueabihf", "libc6-armhf-cross"),
}


@dataclass(frozen=True)
class Replay:
    """What the program said; times mean nothing under qemu."""

    is_equal: bool
    text: str
    samples: int = 0
    median_ms: float = 0.0
    fastest_ms: float = 0.0


def replay(package: Package, threads: int, repeat: int = 1, prefix: tuple[str, ...] = ()) -> Replay:
    """Run the program with some threads, `prefix` before its command line.

    Raises UserError where the processor is refused or the program cannot run.
    """
    program = package.file(package.name)
    golden = package.file("golden.bin")
    with tempfile.TemporaryDirectory() as folder:
        # Stored artifacts need not be executable.
        copy = Path(folder) / package.name
        shutil.copyfile(program, copy)
        copy.chmod(0o755)
        command = [*prefix, str(copy), "--threads", str(threads), "--repeat", str(repeat)]
        try:
            done = subprocess.run(
                [*command, str(golden)], capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise UserError(f"{package.name} cannot be run here: {error.strerror}") from error
    if done.returncode == 1:
        return Replay(False, done.stdout.strip())
    found = _OK.match(done.stdout)
    if done.returncode != 0 or found is None:
        said = (done.stderr or done.stdout).strip().removeprefix("error: ")
        raise UserError(f"{package.name}: {said or f'ended with status {done.returncode}'}")
    samples, median, fastest = found.groups()
    return Replay(True, done.stdout.strip(), int(samples), float(median), float(fastest))


def qemu_prefix(architecture: str) -> tuple[str, ...] | None:
    """Return how to run programs of an architecture under qemu, or None without qemu-user."""
    if architecture not in _QEMU:
        return None
    program, root, _ = _QEMU[architecture]
    found = shutil.which(program) or shutil.which(f"{program}-static")
    if found is None:
        return None
    return (found, "-L", root) if Path(root).is_dir() else (found,)


def qemu_replay(package: Package, threads: int, repeat: int = 1) -> Replay:
    """Run the program of an ARM package, with its threads, under qemu-user."""
    prefix = qemu_prefix(package.architecture)
    if prefix is None:
        program, _, libc = _QEMU.get(package.architecture, ("qemu-user", "", "its C library"))
        raise UserError(
            f"running the program of an {package.architecture} package with threads needs "
            f"{program}; on Debian: apt install qemu-user {libc}"
        )
    return replay(package, threads, repeat, prefix)
