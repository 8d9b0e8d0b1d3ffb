"""A package's own program: it replays golden vectors, compares and complains."""

from __future__ import annotations

import platform
import re
import struct
import zlib
from pathlib import Path

import pytest

from tests.stages.packaging.runtime.loaded import run_program
from tests.stages.packaging.support import (
    X86_64,
    package,
    write,
)

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux",
    reason="runs packages for x86-64 Linux natively",
)


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
