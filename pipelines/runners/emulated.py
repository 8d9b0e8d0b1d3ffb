"""Runs an ARM package's shared library in unicorn, without an operating system, on one thread."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.errors import UserError
from pipelines.runners.package import ABI_VERSION, Package

_PAGE = 4096
_LIBRARY = 0x0100_0000
_STOP = 0x0010_0000
_IMPORTS = 0xE000_0000
_STACK_BYTES = 1 << 20

# Relocation types by what they mean here: add the base, or the address of a symbol.
_RELOCATIONS = {
    "aarch64": {1027: "base", 257: "symbol", 1025: "symbol", 1026: "symbol"},
    "armv7": {23: "base", 2: "symbol", 21: "symbol", 22: "symbol"},
}


class EmulatedRunner:
    """One package in one emulated processor; outputs are exact, times mean nothing."""

    how = "emulated"

    def __init__(self, package: Package) -> None:
        if package.architecture not in _RELOCATIONS:
            raise UserError(
                f"{package.name} is for {package.architecture}; the emulator runs "
                f"{' and '.join(_RELOCATIONS)}"
            )
        self.package = package
        self._machine = _Machine(package.architecture)
        self._symbols = self._load()
        version = self._call("abi_version")
        if version != ABI_VERSION:
            raise UserError(
                f"{package.name} has ABI version {version}, this bitkiln runs {ABI_VERSION}; "
                "build it again"
            )
        size = self._call("context_size")
        self._context = self._machine.allocate(size)
        self._machine.write(self._context, b"\0" * size)
        arena = self._machine.allocate(self._call("arena_size", 1))
        self._check(self._call("init", self._context, arena, 1))
        self._in = [self._machine.allocate(item.nbytes) for item in package.inputs]
        self._out = [self._machine.allocate(item.nbytes) for item in package.outputs]
        self._in_array = self._machine.allocate_pointers(self._in)
        self._out_array = self._machine.allocate_pointers(self._out)

    def run(self, inputs: Mapping[str, np.ndarray], threads: int = 1) -> dict[str, np.ndarray]:
        """Run one inference; inputs and outputs by name, in the package's shapes and dtypes."""
        if threads != 1:
            raise UserError(f"the emulator has one thread, not {threads}; use threads=1")
        for address, array in zip(self._in, self.package.check_inputs(inputs), strict=True):
            self._machine.write(address, array.tobytes())
        self._check(self._call("run", self._context, self._in_array, self._out_array))
        return {
            item.name: np.frombuffer(self._machine.read(address, item.nbytes), item.dtype)
            .reshape(item.shape)
            .copy()
            for address, item in zip(self._out, self.package.outputs, strict=True)
        }

    def count_blocks(
        self, inputs: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], Counter[tuple[int, int]]]:
        """Run one inference; also return how often each basic block ran.

        A block is (offset in the library, bytes); the emulator may split a compiler's block.
        """
        with self._machine.counting() as counts:
            outputs = self.run(inputs)
        shifted = {(address - _LIBRARY, size): n for (address, size), n in counts.items()}
        return outputs, Counter(shifted)

    def close(self) -> None:
        """Nothing to end: the emulated processor has no threads."""

    def __enter__(self) -> EmulatedRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self) -> dict[str, int]:
        image = _read_library(self.package)
        self._machine.map(_LIBRARY, len(image.data))
        self._machine.write(_LIBRARY, image.data)
        self._machine.protect(_LIBRARY, len(image.data))
        self._machine.imports = image.imports
        return image.symbols

    def _call(self, function: str, *arguments: int) -> int:
        name = f"{self.package.name}_{function}"
        if name not in self._symbols:
            raise UserError(f"{self.package.library()} does not define {name}; build it again")
        return self._machine.call(self._symbols[name], arguments)

    def _check(self, error: int) -> None:
        if error:
            text = self._machine.read_string(self._call("error", error))
            raise UserError(f"{self.package.name}: {text}")


@dataclass(frozen=True)
class _Image:
    """A library as it lies in memory at _LIBRARY, relocated."""

    data: bytes
    symbols: dict[str, int]
    imports: tuple[str, ...]


def _read_library(package: Package) -> _Image:
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
        from elftools.elf.relocation import RelocationSection
    except ImportError as error:
        raise _missing_extra() from error
    path = package.library()
    try:
        elf = ELFFile(io.BytesIO(path.read_bytes()))
        loads = [item for item in elf.iter_segments() if item["p_type"] == "PT_LOAD"]
        data = bytearray(max(item["p_vaddr"] + item["p_memsz"] for item in loads))
        for item in loads:
            data[item["p_vaddr"] : item["p_vaddr"] + item["p_filesz"]] = item.data()
        table = list(elf.get_section_by_name(".dynsym").iter_symbols())
        imports = tuple(item.name for item in table if item["st_shndx"] == "SHN_UNDEF")
        addresses = [
            _IMPORTS + 16 * imports.index(item.name)
            if item["st_shndx"] == "SHN_UNDEF"
            else _LIBRARY + item["st_value"]
            for item in table
        ]
        width = elf.elfclass // 8
        for section in elf.iter_sections():
            if isinstance(section, RelocationSection) and section["sh_flags"] & 2:
                for item in section.iter_relocations():
                    at = item["r_offset"]
                    stored = int.from_bytes(data[at : at + width], "little")
                    addend = item["r_addend"] if item.is_RELA() else stored
                    meaning = _RELOCATIONS[package.architecture].get(item["r_info_type"])
                    if meaning is None:
                        raise UserError(
                            f"{path} needs relocation {item['r_info_type']}, which no package has"
                        )
                    if meaning == "base":
                        value = _LIBRARY + addend
                    else:
                        # A REL jump slot holds the address of its lazy stub, no addend.
                        lazy = not item.is_RELA() and item["r_info_type"] != 2
                        value = addresses[item["r_info_sym"]] + (0 if lazy else addend)
                    data[at : at + width] = value.to_bytes(width, "little")
    except (ELFError, ValueError, AttributeError, KeyError, IndexError) as error:
        raise UserError(f"{path} is damaged ({error}); build it again") from error
    symbols = dict(zip((item.name for item in table), addresses, strict=True))
    return _Image(bytes(data), symbols, imports)


class _Machine:
    """An emulated processor: flat memory, plain calls of up to four word-sized arguments."""

    def __init__(self, architecture: str) -> None:
        try:
            import unicorn
            from unicorn import arm64_const, arm_const
        except ImportError as error:
            raise _missing_extra() from error
        self._unicorn = unicorn
        self._word = 8 if architecture == "aarch64" else 4
        if architecture == "aarch64":
            self._cpu = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
            # MAX has every extension that unicorn knows, so newer cores' packages run as well.
            self._cpu.ctl_set_cpu_model(arm64_const.UC_CPU_ARM64_MAX)
            self._cpu.reg_write(arm64_const.UC_ARM64_REG_CPACR_EL1, 3 << 20)
            registers, prefix = arm64_const, "UC_ARM64_REG_"
            names = ("X0", "X1", "X2", "X3")
            self._pc = arm64_const.UC_ARM64_REG_PC
        else:
            self._cpu = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_ARM)
            # The A53 is newer than any model here; MAX has its ARMv8 instructions in 32 bits.
            self._cpu.ctl_set_cpu_model(arm_const.UC_CPU_ARM_MAX)
            access = self._cpu.reg_read(arm_const.UC_ARM_REG_C1_C0_2)
            self._cpu.reg_write(arm_const.UC_ARM_REG_C1_C0_2, access | 0xF << 20)
            self._cpu.reg_write(arm_const.UC_ARM_REG_FPEXC, 1 << 30)
            registers, prefix = arm_const, "UC_ARM_REG_"
            names = ("R0", "R1", "R2", "R3")
            self._pc = arm_const.UC_ARM_REG_PC
        self._arguments = [getattr(registers, prefix + name) for name in names]
        self._link = getattr(registers, prefix + "LR")
        self._stack_pointer = getattr(registers, prefix + "SP")
        self._next = 0x1000_0000
        self.imports: tuple[str, ...] = ()
        self.map(_STOP, _PAGE)
        self._stack = self.allocate(_STACK_BYTES) + _STACK_BYTES

    def map(self, address: int, size: int) -> None:
        """Map zeroed memory."""
        self._cpu.mem_map(address, -(-size // _PAGE) * _PAGE)

    def protect(self, address: int, size: int) -> None:
        """Make mapped memory read-only and executable: a package has no writable globals."""
        unicorn = self._unicorn
        access = unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC
        self._cpu.mem_protect(address, -(-size // _PAGE) * _PAGE, access)

    def allocate(self, size: int) -> int:
        """Map memory between unmapped pages, filled with 0xa5; return its address.

        The 64 bytes behind it are readable too, as kernels expect.
        """
        address = self._next
        room = -(-(size + 64) // _PAGE) * _PAGE
        self._next += room + _PAGE
        if self._next >= _IMPORTS:
            raise UserError("the package needs more memory than the emulator's 3 GiB")
        self.map(address, room)
        self.write(address, b"\xa5" * room)
        return address

    def allocate_pointers(self, addresses: Sequence[int]) -> int:
        """Return the address of an array of pointers."""
        array = self.allocate(max(1, len(addresses)) * self._word)
        self.write(array, b"".join(item.to_bytes(self._word, "little") for item in addresses))
        return array

    def write(self, address: int, data: bytes) -> None:
        """Write bytes to mapped memory."""
        self._cpu.mem_write(address, data)

    def read(self, address: int, size: int) -> bytes:
        """Read bytes from mapped memory."""
        return bytes(self._cpu.mem_read(address, size))

    def read_string(self, address: int) -> str:
        """Read a C string."""
        text = bytearray()
        while (byte := self.read(address + len(text), 1)) != b"\0":
            text += byte
        return text.decode()

    def call(self, address: int, arguments: Sequence[int]) -> int:
        """Call a function and return its result as an unsigned word's low 32 bits."""
        for register, value in zip(self._arguments, arguments, strict=False):
            self._cpu.reg_write(register, value)
        self._cpu.reg_write(self._link, _STOP)
        self._cpu.reg_write(self._stack_pointer, self._stack)
        try:
            self._cpu.emu_start(address, _STOP)
        except self._unicorn.UcError as error:
            raise UserError(f"the emulated program failed: {self._diagnose(error)}") from error
        return int(self._cpu.reg_read(self._arguments[0])) & 0xFFFF_FFFF

    def counting(self) -> _Counting:
        """Return a context in which executed blocks are counted."""
        return _Counting(self._cpu, self._unicorn.UC_HOOK_BLOCK)

    def _diagnose(self, error: Exception) -> str:
        at = int(self._cpu.reg_read(self._pc))
        index = (at - _IMPORTS) // 16
        if 0 <= index < len(self.imports):
            return f"it called {self.imports[index]}, which no one-thread run may"
        return f"{error} at {at:#x} ({at - _LIBRARY:#x} in the library)"


class _Counting:
    """Counts executed blocks by (address, bytes) while it is entered."""

    def __init__(self, cpu: Any, kind: int) -> None:
        self._cpu = cpu
        self._kind = kind

    def __enter__(self) -> Counter[tuple[int, int]]:
        counts: Counter[tuple[int, int]] = Counter()

        def count(_cpu: Any, address: int, size: int, _data: Any) -> None:
            counts[address, size] += 1

        # Blocks translated earlier would never be reported.
        self._cpu.ctl_flush_tb()
        self._hook = self._cpu.hook_add(self._kind, count)
        return counts

    def __exit__(self, *_: object) -> None:
        self._cpu.hook_del(self._hook)


def _missing_extra() -> UserError:
    return UserError(
        "running ARM packages on this machine needs an emulator; install the extra 'emulator': "
        "pip install -e '.[emulator]'"
    )
