"""The constants of a program, as they lie in one read-only place of a package."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hw.profile import Hardware
from stages.packaging.program.arena import SLACK, align
from stages.packaging.program.kernel_program import Program

CONSTANTS = "graph_constants"
"""What graph.c calls the constants."""


@dataclass(frozen=True)
class Constants:
    """All constants, as they lie in one read-only place, and where each begins there."""

    stored: tuple[tuple[int, np.ndarray], ...]
    """Where each begins, in order; equal ones are stored once."""
    offsets: dict[str, int]
    size: int
    """Bytes of all, slack included."""

    def chunks(self) -> Iterator[bytes]:
        """Yield all bytes, a constant at a time: together they are as large as the model."""
        place = 0
        for offset, value in self.stored:
            yield b"\0" * (offset - place) + _little_endian(value).tobytes()
            place = offset + value.nbytes
        yield b"\0" * (self.size - place)


def pack_constants(program: Program) -> Constants:
    """Lay out the constants 64-byte aligned in their given order, slack at the end."""
    stored, offsets, end = [], dict[str, int](), 0
    seen: dict[tuple[int, bytes], int] = {}
    for name, value in program.constants.items():
        digest = hashlib.sha256(_little_endian(value).tobytes()).digest()
        key = (value.nbytes, digest)
        if key not in seen:
            seen[key] = align(end)
            stored.append((seen[key], value))
            end = seen[key] + value.nbytes
        offsets[name] = seen[key]
    return Constants(tuple(stored), offsets, end + SLACK)


def _little_endian(value: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False)


def constants_source(hardware: Hardware, symbol: str) -> str:
    """Return the assembler file that turns constants.bin into an aligned read-only symbol."""
    mark = "%" if hardware.architecture == "armv7" else "@"
    return "\n".join(
        (
            f'.section .rodata.constants,"a",{mark}progbits',
            ".balign 64",
            f".globl {symbol}",
            f".hidden {symbol}",
            f".type {symbol},{mark}object",
            f"{symbol}:",
            '    .incbin "constants.bin"',
            f".size {symbol}, . - {symbol}",
            f'.section .note.GNU-stack,"",{mark}progbits',
            "",
        )
    )
