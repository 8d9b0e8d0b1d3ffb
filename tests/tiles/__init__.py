"""Tiles (AMX) wherever the rest of a kernel runs: by the processor, or else emulated."""

from __future__ import annotations

import ctypes
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hw import host
from hw.isa.tile_registers import FEATURES
from hw.profile import Hardware
from tests.stages.packaging.support import zig

SOURCE = Path(__file__).with_name("emulator.c")


def needs_tiles(hardware: Hardware) -> bool:
    """Whether kernels for a profile may use tiles."""
    return set(FEATURES) <= set(hardware.features)


def provide() -> None:
    """Let this process use tiles: where the processor has none, they are carried out one by one.

    That stays so until it ends; other undefined instructions end it as ever.
    """
    if not host.may_use_tiles():
        emulator()


@cache
def emulator() -> Any:
    """The emulator, loaded and at work."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flags = ("-shared", "-fPIC", "-Wall", "-Werror")
        zig(folder, "cc", *flags, str(SOURCE), "-o", "tiles.so")
        library = ctypes.CDLL(str(folder / "tiles.so"))
    assert library.tiles_install() == 0
    return library
