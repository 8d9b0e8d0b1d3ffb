"""Runs a package's own program, which replays its golden vectors: directly or under qemu."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import CheckError, UserError
from pipelines.runners.package import Package

_OK = re.compile(r"ok: (\d+) samples .* median ([\d.]+) ms, fastest ([\d.]+) ms")


@dataclass(frozen=True)
class Qemu:
    """What runs programs of one architecture: qemu, and a C library whose loader starts them."""

    program: str
    loader: str
    """Below the root of a file system, as it stands in a program."""
    root: str
    """Where Debian's package puts a C library for another architecture."""
    libc: str
    """That package."""


QEMU = {
    "aarch64": Qemu(
        "qemu-aarch64", "lib/ld-linux-aarch64.so.1", "/usr/aarch64-linux-gnu", "libc6-arm64-cross"
    ),
    "armv7": Qemu(
        "qemu-arm", "lib/ld-linux-armhf.so.3", "/usr/arm-linux-gnueabihf", "libc6-armhf-cross"
    ),
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
    golden = package.file("golden.bin")
    with _copied(package) as program:
        return _run(package, [*prefix, *words(str(program), threads, repeat), str(golden)])


def trace(package: Package, golden: bytes, threads: int, repeat: int) -> bytes:
    """Run the program on golden vectors of the caller's, and return the trace of its layers.

    Raises UserError where the processor is refused or the program cannot run, or tells no times.
    """
    with _copied(package) as program:
        vectors, found = program.with_name("golden"), program.with_name("trace")
        vectors.write_bytes(golden)
        said = _run(package, [*words(str(program), threads, repeat, str(found)), str(vectors)])
        check_equal(package.name, said)
        return found.read_bytes()


def words(program: str, threads: int, repeat: int, trace: str | None = None) -> list[str]:
    """Return a command line without the golden vectors; `trace` is the file to write one to."""
    wanted = ["--trace", trace] if trace else []
    return [program, "--threads", str(threads), "--repeat", str(repeat), *wanted]


def check_equal(name: str, said: Replay) -> None:
    """Raise CheckError if a program gave other outputs than its library did."""
    if not said.is_equal:
        raise CheckError(f"{name}: the program and the library differ: {said.text}")


@contextlib.contextmanager
def _copied(package: Package) -> Iterator[Path]:
    """Give a copy of the program that may be run: stored artifacts need not be executable."""
    program = package.file(package.name)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / package.name
        shutil.copyfile(program, copy)
        copy.chmod(0o755)
        yield copy


def _run(package: Package, command: Sequence[str]) -> Replay:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(f"{package.name} cannot be run here: {error.strerror}") from error
    return read_replay(package.name, done.returncode, done.stdout, done.stderr)


def read_replay(name: str, status: int, output: str, errors: str) -> Replay:
    """Return what a package's program said; UserError if it could not compare anything."""
    if status == 1:
        return Replay(False, output.strip())
    found = _OK.match(output)
    if status != 0 or found is None:
        said = (errors or output).strip().removeprefix("error: ")
        raise UserError(f"{name}: {said or f'ended with status {status}'}")
    samples, median, fastest = found.groups()
    return Replay(True, output.strip(), int(samples), float(median), float(fastest))


def qemu_prefix(architecture: str) -> tuple[str, ...] | None:
    """Return how to run programs of an architecture under qemu, or None where something lacks."""
    if architecture not in QEMU or qemu_lacks(architecture):
        return None
    qemu = QEMU[architecture]
    root = _root(qemu)
    return (_found(qemu) or "", *(("-L", root) if root != "/" else ()))


def qemu_lacks(architecture: str) -> list[str]:
    """Return the Debian packages without which programs of an architecture do not run here."""
    qemu = QEMU[architecture]
    absent = {"qemu-user": _found(qemu) is None, qemu.libc: _root(qemu) is None}
    return [package for package, is_absent in absent.items() if is_absent]


def _found(qemu: Qemu) -> str | None:
    return shutil.which(qemu.program) or shutil.which(f"{qemu.program}-static")


def _root(qemu: Qemu) -> str | None:
    """The file system with the loader: Debian's for another architecture, or this machine's."""
    roots = (root for root in (qemu.root, "/") if (Path(root) / qemu.loader).exists())
    return next(roots, None)


def qemu_replay(package: Package, threads: int, repeat: int = 1) -> Replay:
    """Run the program of an ARM package, with its threads, under qemu-user."""
    if package.architecture not in QEMU:
        raise UserError(f"qemu runs programs of {', '.join(QEMU)}, not of {package.architecture}")
    prefix = qemu_prefix(package.architecture)
    if prefix is None:
        program = QEMU[package.architecture].program
        raise UserError(
            f"running the program of an {package.architecture} package with threads needs "
            f"{program} and a C library; on Debian: "
            f"apt install {' '.join(qemu_lacks(package.architecture))}"
        )
    return replay(package, threads, repeat, prefix)
