"""An emulated ARM processor without an operating system: flat memory, calls, counted blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pipelines.errors import UserError

_PAGE = 4096
LIBRARY = 0x0100_0000
_STOP = 0x0010_0000
IMPORTS = 0xE000_0000
_STACK_BYTES = 1 << 20


class EmulatedProcessor:
    """An emulated processor: flat memory, plain calls of up to four word-sized arguments."""

    def __init__(self, architecture: str) -> None:
        try:
            import unicorn
            from unicorn import arm64_const, arm_const
        except ImportError as error:
            raise missing_extra() from error
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
        if self._next >= IMPORTS:
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

    def counting(self) -> _CountedBlocks:
        """Return a context in which executed blocks are counted."""
        return _CountedBlocks(self._cpu, self._unicorn.UC_HOOK_BLOCK)

    def _diagnose(self, error: Exception) -> str:
        at = int(self._cpu.reg_read(self._pc))
        index = (at - IMPORTS) // 16
        if 0 <= index < len(self.imports):
            return f"it called {self.imports[index]}, which no one-thread run may"
        return f"{error} at {at:#x} ({at - LIBRARY:#x} in the library)"


class _CountedBlocks:
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


def missing_extra() -> UserError:
    """Return the error of a machine on which the emulator is not installed."""
    return UserError(
        "running ARM packages on this machine needs an emulator; install the extra 'emulator': "
        "pip install -e '.[emulator]'"
    )
