"""Runs single compiled functions: natively through ctypes, or emulated without a system.

Every array lies between a filled page and an unmapped one, so a function that reads further behind
an array than kernels may (SLACK) faults, and one that writes outside it is found out.
"""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hw.profile import Hardware
from stages.kernels.signature import ALIGNMENT
from stages.packaging.program.arena import SLACK
from tests import tiles
from tests.kept import kept
from tests.pool import PAGE, Pool
from tests.stages.packaging.support import zig
from tests.targets import is_native, needs_qemu
from tests.tiles import needs_tiles
from tests.under_qemu import UnderQemu, server

Array = np.ndarray[Any, Any]
FILL = 0xA5


class Memory(Protocol):
    """A processor with its memory and one linked image."""

    def allocate(self, size: int) -> int:
        """Address of `size` bytes (whole pages) with an unmapped page behind them."""

    def release(self, address: int, size: int) -> None:
        """Give `allocate`d memory back for the next of its size."""

    def read(self, address: int, size: int) -> bytes: ...

    def write(self, address: int, data: bytes) -> None: ...

    def call(self, function: str, words: list[int]) -> None:
        """Call a function with word-sized arguments."""


@dataclass(frozen=True)
class Placed:
    """An array in a processor's memory."""

    memory: Memory
    address: int
    start: int
    room: int
    dtype: Any
    shape: tuple[int, ...]

    def fetch(self) -> Array:
        """Its value now; AssertionError if anything around it was written."""
        data = self.memory.read(self.start, self.room)
        begin = self.address - self.start
        end = begin + int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize
        filled = _filled(begin), _filled(self.room - end)
        assert (data[:begin], data[end:]) == filled, "a kernel wrote outside its array"
        return np.frombuffer(data[begin:end], self.dtype).reshape(self.shape).copy()


@lru_cache(maxsize=256)
def _filled(size: int) -> bytes:
    """What lies around an array."""
    return bytes([FILL]) * size


class Library:
    """Relocatable objects for one target, linked and callable."""

    def __init__(self, objects: Mapping[str, bytes], hardware: Hardware) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            inputs = {**objects, "runtime.o": _runtime(hardware)}
            for file, data in inputs.items():
                (folder / file).write_bytes(data)
            self.memory: Memory
            if is_native(hardware):
                if needs_tiles(hardware):
                    tiles.provide()
                _link(folder, list(inputs), "-shared", "-Bsymbolic")
                self.memory = _Native(folder / "image")
            elif needs_qemu(hardware):
                (folder / "server.o").write_bytes(_server(hardware))
                _link(folder, [*inputs, "server.o"], "-static", "-e", "_start")
                self.memory = UnderQemu(folder / "image")
            else:
                _link(folder, list(inputs), "-static", f"--image-base={_Emulated.BASE}")
                self.memory = _Emulated(folder / "image", hardware)

    def place(self, array: Array) -> Placed:
        """Copy an array into memory, its end as close to the unmapped page as alignment lets it."""
        room = PAGE + -(-(array.nbytes + SLACK) // PAGE) * PAGE
        start = self.memory.allocate(room)
        address = (start + room - SLACK - array.nbytes) // ALIGNMENT * ALIGNMENT
        self.memory.write(start, _filled(room))
        self.memory.write(address, np.ascontiguousarray(array).tobytes())
        return Placed(self.memory, address, start, room, array.dtype, array.shape)

    def call(self, function: str, *arguments: Array | int) -> None:
        """Call a function; arrays are copied in and, changed, out again."""
        placed = [self.place(a) if isinstance(a, np.ndarray) else a for a in arguments]
        self.memory.call(function, [p.address if isinstance(p, Placed) else p for p in placed])
        for argument, place in zip(arguments, placed, strict=True):
            if isinstance(argument, np.ndarray) and isinstance(place, Placed):
                argument[...] = place.fetch()
                self.memory.release(place.start, place.room)


def _link(folder: Path, inputs: list[str], *flags: str) -> None:
    command = ["ld.lld", "-e", "0", *flags, "-z", "notext", *inputs, "-o", "image"]
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@cache
def _runtime(hardware: Hardware) -> bytes:
    """The memory and rounding functions that packages give their kernels."""
    target = _target(hardware)
    return kept("runtime of tests", {"target": target}, partial(_compiled_runtime, target))


@cache
def _server(hardware: Hardware) -> bytes:
    """What answers under qemu."""
    target = _target(hardware)
    return kept("server of tests", {"target": target}, partial(_compiled_server, target))


def _target(hardware: Hardware) -> tuple[str, ...]:
    return ("-target", hardware.zig_target, f"-mcpu={hardware.zig_cpu}")


def _compiled_server(target: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        server(Path(folder), target)
        return (Path(folder) / "server.o").read_bytes()


def _compiled_runtime(target: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("memory.c", "rounding.c", "runtime.h", "package.h"):
            data = files("stages.packaging").joinpath("runtime", name).read_bytes()
            (Path(folder) / name).write_bytes(data)
        flags = ("-O2", "-g0", "-fPIC", "-fno-builtin", "-fno-sanitize=all")
        (Path(folder) / "all.c").write_text('#include "memory.c"\n#include "rounding.c"\n')
        zig(Path(folder), "cc", "-c", *flags, *target, "all.c", "-o", "runtime.o")
        return (Path(folder) / "runtime.o").read_bytes()


class _Native(Pool):
    def __init__(self, image: Path) -> None:
        super().__init__()
        self._library = ctypes.CDLL(str(image))
        self._protect = ctypes.CDLL(None).mprotect
        self._maps: list[mmap.mmap] = []

    def _map(self, size: int) -> int:
        room = mmap.mmap(-1, size + PAGE)
        self._maps.append(room)
        address = ctypes.addressof(ctypes.c_char.from_buffer(room))
        assert self._protect(ctypes.c_void_p(address + size), PAGE, 0) == 0
        return address

    def read(self, address: int, size: int) -> bytes:
        return ctypes.string_at(address, size)

    def write(self, address: int, data: bytes) -> None:
        ctypes.memmove(address, data, len(data))

    def call(self, function: str, words: list[int]) -> None:
        entry = self._library[function]
        entry.restype = None
        entry(*(ctypes.c_int64(word) for word in words))


class _Emulated(Pool):
    BASE = 0x0100_0000
    STOP = 0x0010_0000

    def __init__(self, image: Path, hardware: Hardware) -> None:
        super().__init__()
        import unicorn
        from elftools.elf.elffile import ELFFile
        from unicorn import arm64_const, arm_const

        wide = hardware.architecture == "aarch64"
        self._word = 8 if wide else 4
        if wide:
            self._cpu = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
            if "+dotprod" in hardware.features:  # otherwise what a board lacks is a fault here too
                self._cpu.ctl_set_cpu_model(arm64_const.UC_CPU_ARM64_MAX)
            self._cpu.reg_write(arm64_const.UC_ARM64_REG_CPACR_EL1, 3 << 20)
        else:
            self._cpu = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_ARM)
            self._cpu.ctl_set_cpu_model(arm_const.UC_CPU_ARM_MAX)
            access = self._cpu.reg_read(arm_const.UC_ARM_REG_C1_C0_2)
            self._cpu.reg_write(arm_const.UC_ARM_REG_C1_C0_2, access | 0xF << 20)
            self._cpu.reg_write(arm_const.UC_ARM_REG_FPEXC, 1 << 30)
        constants, prefix = (arm64_const, "UC_ARM64_REG_") if wide else (arm_const, "UC_ARM_REG_")
        names = [f"X{i}" for i in range(8)] if wide else [f"R{i}" for i in range(4)]
        self._registers = [getattr(constants, prefix + name) for name in names]
        self._link = getattr(constants, f"{prefix}LR")
        self._stack_pointer = getattr(constants, f"{prefix}SP")
        self._next = 0x1000_0000
        self._cpu.mem_map(self.STOP, PAGE)
        self._stack = self.allocate(1 << 16) + (1 << 15)
        with image.open("rb") as file:
            elf = ELFFile(file)
            loads = [item for item in elf.iter_segments() if item["p_type"] == "PT_LOAD"]
            end = max(item["p_vaddr"] + item["p_memsz"] for item in loads)
            self._cpu.mem_map(self.BASE, -(-(end - self.BASE) // PAGE) * PAGE)
            for item in loads:
                self._cpu.mem_write(item["p_vaddr"], item.data())
            symbols = elf.get_section_by_name(".symtab").iter_symbols()
            self._symbols = {item.name: int(item["st_value"]) for item in symbols}

    def _map(self, size: int) -> int:
        address = self._next
        self._next += size + PAGE
        self._cpu.mem_map(address, size)
        return address

    def read(self, address: int, size: int) -> bytes:
        return bytes(self._cpu.mem_read(address, size))

    def write(self, address: int, data: bytes) -> None:
        self._cpu.mem_write(address, data)

    def call(self, function: str, words: list[int]) -> None:
        in_registers, on_stack = words[: len(self._registers)], words[len(self._registers) :]
        for register, word in zip(self._registers, in_registers, strict=False):
            self._cpu.reg_write(register, word)
        slots = b"".join(word.to_bytes(self._word, "little") for word in on_stack)
        self._cpu.mem_write(self._stack, slots)
        self._cpu.reg_write(self._link, self.STOP)
        self._cpu.reg_write(self._stack_pointer, self._stack)
        self._cpu.emu_start(self._symbols[function], self.STOP)
