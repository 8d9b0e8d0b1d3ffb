"""Runs compiled functions under qemu-user: of processors that have what unicorn lacks (I8MM).

A program without a C library reads commands from its input: it maps, reads and writes memory, and
calls functions by their addresses. What faults ends it, which whoever waits for an answer sees.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from pipelines.runners.replay import QEMU
from tests.pool import PAGE, Pool
from tests.stages.packaging.support import zig

WORDS = 24
"""Arguments of a function at most."""
SOURCE = f"""
typedef unsigned long word;
static word ask(word number, word a, word b, word c, word d, word e, word f) {{
  register word x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b,
    x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
  __asm__ volatile("svc #0" : "+r"(x0)
    : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}}
static void move(word number, word file, word at, word size) {{
  while (size) {{
    word done = ask(number, file, at, size, 0, 0, 0);
    if (done - 1 >= size) ask(94, 1, 0, 0, 0, 0, 0);  /* exit_group, at the end too */
    at += done;
    size -= done;
  }}
}}
typedef void (*entry)({", ".join(["word"] * WORDS)});
void _start(void) {{
  for (;;) {{
    word command[3 + {WORDS}] = {{0}};  /* what to do, where, how much; or a function's arguments */
    move(63, 0, (word)command, sizeof command);
    word *w = command + 3, at = command[1], size = command[2], answer = 0;
    if (command[0] == 'm') {{
      answer = ask(222, 0, size + {PAGE}, 3, 0x22, -1, 0);
      ask(226, answer + size, {PAGE}, 0, 0, 0, 0);
    }}
    if (command[0] == 'w') move(63, 0, at, size);
    if (command[0] == 'c') ((entry)at)({", ".join(f"w[{n}]" for n in range(WORDS))});
    move(64, 1, (word)&answer, sizeof answer);
    if (command[0] == 'r') move(64, 1, at, size);
  }}
}}
"""


def qemu() -> str | None:
    """The program that runs those of 64-bit Arm, if it is there."""
    program = QEMU["aarch64"].program
    return shutil.which(program) or shutil.which(f"{program}-static")


def server(folder: Path, target: tuple[str, ...]) -> None:
    """Compile the program to `server.o`."""
    (folder / "server.c").write_text(SOURCE)
    flags = ("-O2", "-g0", "-ffreestanding", "-fno-sanitize=all", "-fno-stack-protector")
    zig(folder, "cc", "-c", *flags, *target, "server.c", "-o", "server.o")


class UnderQemu(Pool):
    """A processor as an image, linked with the program, sees it."""

    def __init__(self, image: Path) -> None:
        super().__init__()
        from elftools.elf.elffile import ELFFile

        with image.open("rb") as file:
            symbols = ELFFile(file).get_section_by_name(".symtab").iter_symbols()
            self._symbols = {item.name: int(item["st_value"]) for item in symbols}
        self._folder = tempfile.TemporaryDirectory()
        program = Path(self._folder.name) / "program"
        shutil.copyfile(image, program)
        program.chmod(0o755)
        command = [qemu() or "", "-cpu", "max", str(program)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __del__(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, what: str, at: int, size: int, words: list[int], data: bytes = b"") -> int:
        given, taken = self._process.stdin, self._process.stdout
        assert given is not None and taken is not None and len(words) <= WORDS
        every = [ord(what), at, size, *words] + [0] * (WORDS - len(words))
        given.write(struct.pack(f"<{len(every)}Q", *(w & (1 << 64) - 1 for w in every)) + data)
        given.flush()
        answer = taken.read(8)
        assert len(answer) == 8, f"the program ended with status {self._process.wait()}"
        return int.from_bytes(answer, "little")

    def _map(self, size: int) -> int:
        return self._ask("m", 0, size, [])

    def read(self, address: int, size: int) -> bytes:
        """So many bytes."""
        self._ask("r", address, size, [])
        assert self._process.stdout is not None
        return self._process.stdout.read(size)

    def write(self, address: int, data: bytes) -> None:
        """Put bytes somewhere."""
        self._ask("w", address, len(data), [], data)

    def call(self, function: str, words: list[int]) -> None:
        """Call a function with word-sized arguments."""
        self._ask("c", self._symbols[function], 0, words)
