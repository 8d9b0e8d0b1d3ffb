"""Small programs for ARM that mark what is to be counted, and caches in plain Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.runners.replay import QEMU

NEEDS_QEMU = pytest.mark.skipif(
    shutil.which("qemu-aarch64") is None or not Path(QEMU["aarch64"].root).is_dir(),
    reason="needs qemu-user and libc6-arm64-cross",
)
TARGETS = {
    "aarch64": ("aarch64-linux-gnu.2.28", "cortex_a53"),
    "armv7": ("arm-linux-gnueabihf.2.28", "cortex_a53"),
}
# Without a C library, whose first link takes minutes: the program makes its own system calls.
_START = """
static long mark(long n) {
  register long r0 asm(R "0") = n, number asm(NUMBER) = CALL;
  asm volatile("svc #0" : "+r"(r0) : "r"(number) : "memory");
  return r0;
}
static void leave(void) {
  register long r0 asm(R "0") = 0, number asm(NUMBER) = EXIT;
  asm volatile("svc #0" : : "r"(r0), "r"(number));
}
"""
_WORDS = {
    "aarch64": ('-DR="x"', '-DNUMBER="x8"', "-DCALL=125", "-DEXIT=93"),
    "armv7": ('-DR="r"', '-DNUMBER="r7"', "-DCALL=159", "-DEXIT=1"),
}


def program(folder: Path, architecture: str, body: str, beside: str = "") -> Path:
    """A program whose start runs the statements of `body`, in which mark(N) marks."""
    source = folder / "program.c"
    source.write_text(f"{_START}\n{beside}\nvoid _start(void) {{\n{body}\nleave();\n}}\n")
    triple, cpu = TARGETS[architecture]
    command = ["cc", "-target", triple, f"-mcpu={cpu}", *_WORDS[architecture], "-O1", "-marm"]
    flags = ["-nostdlib", "-static", "-fno-pie", "-ffreestanding", "-fomit-frame-pointer"]
    flags.append("-fno-stack-protector")
    if architecture == "aarch64":
        command.remove("-marm")
    out = folder / f"program-{architecture}"
    subprocess.run(
        [sys.executable, "-m", "ziglang", *command, *flags, str(source), "-o", str(out)], check=True
    )
    return out
