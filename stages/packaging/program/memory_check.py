"""Whether a program fits into the memory of its board, before anything of it is compiled."""

from __future__ import annotations

from dataclasses import dataclass

from hw.profile import Hardware
from stages.errors import StageError
from stages.packaging.program.arena import plan
from stages.packaging.program.kernel_program import Program
from stages.packaging.program.packed_constants import pack_constants

SYSTEM_MIB = 224
"""What the operating system keeps for itself of a board's memory, MiB.

Raspberry Pi OS Lite (Bookworm, 64 bits) leaves 291.6 of 512 MiB to programs on a Raspberry Pi
Zero 2 W some minutes after its start: the firmware and the kernel take 95 MiB, services 125
(docs.printercow.com/guide/32bit-vs-64bit.html, May 2025). That is 220.4 MiB; the rest is an
assumption. A smaller system leaves more, but swapping to an SD card would be worse than a refusal.
"""
_TENTHS = 10
"""Figures are rounded up to so many parts of a MiB, and then added: so their sum is as printed."""


@dataclass(frozen=True)
class Need:
    """The memory that a program takes on some threads, in tenths of MiB, each rounded up."""

    weights: int
    """All constants: weights, thresholds, LUTs."""
    buffers: int
    """The arena but for scratch."""
    scratch: int
    """Scratch of all threads."""
    tensors: int
    """The user's inputs and outputs."""

    @property
    def total(self) -> int:
        """All memory that the program takes, in tenths of MiB."""
        return self.weights + self.buffers + self.scratch + self.tensors


def need_of(program: Program, threads: int) -> Need:
    """What a program takes on so many threads; its objects count for nothing yet."""
    arena = plan(program)
    scratch = threads * arena.scratch_bytes
    return Need(
        weights=_tenths(pack_constants(program).size),
        buffers=_tenths(arena.size(threads) - scratch),
        scratch=_tenths(scratch),
        tensors=_tenths(sum(spec.nbytes for spec in (*program.inputs, *program.outputs))),
    )


def check_fits(program: Program, hardware: Hardware) -> None:
    """Raise StageError if a program does not fit into its board's memory, where that is known."""
    if hardware.memory_mib is None:
        return
    threads = hardware.threads
    need = need_of(program, threads)
    left = max(0, hardware.memory_mib - SYSTEM_MIB)
    if need.total <= left * _TENTHS:
        return
    raise StageError(
        f"the network takes {_mib(need.total)} MiB on {threads} thread{'s' * (threads > 1)} "
        f"(weights {_mib(need.weights)}, buffers {_mib(need.buffers)}, "
        f"scratch {_mib(need.scratch)}, inputs and outputs {_mib(need.tensors)}), and "
        f"{hardware.name} has {left}.0 MiB for it (memory_mib {hardware.memory_mib}, of which the "
        f"operating system keeps {SYSTEM_MIB})",
        hint="take a smaller input or network, or a board with more memory",
    )


def _tenths(size: int) -> int:
    """Bytes in tenths of MiB, rounded up."""
    return -(-size * _TENTHS // 2**20)


def _mib(tenths: int) -> str:
    return f"{tenths // _TENTHS}.{tenths % _TENTHS}"
