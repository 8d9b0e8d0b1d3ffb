"""Blocks of machine code timed on the processor at hand, in its own cycles."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hw.profile import Hardware
from pipelines.runners.native import aligned

_REGISTER = re.compile(r"%([xyz]mm)\d+")
_MEMORY = re.compile(r"\(%\w+\)")
_CLOCK = "clock"
_ADDITION, _ADDITIONS = "addq $1, %rax", 64  # each waits one cycle for the one before
_SECONDS = 100e-6  # short enough for a run to go undisturbed now and then
_ROUNDS, _VISITS = 20, 6
# Destinations turn through registers 0 to 11, more than latency times throughput asks for;
# 12 to 15 hold operands.
_TURN, _OPERANDS = 12, 12


def independent(lines: Sequence[str], times: int) -> list[str]:
    """A block of `times` copies of some lines, none of which waits for another's result."""
    block, count = [], 0
    for _ in range(times):
        for line in lines:
            block.append(_renamed(line, count % _TURN, None))
            count += 1
    return block


def chained(line: str, source: int | None, times: int) -> list[str]:
    """Copies of a line, each waiting for the one before through operand `source`.

    None is the destination itself, for instructions that read it.
    """
    return [_renamed(line, 0, source)] * times


def operands(line: str) -> int:
    """How many vector registers a line names before its destination."""
    return len(_REGISTER.findall(line)) - 1


def canonical(line: str) -> str:
    """The line with registers of our choice: equal for lines that do the same."""
    return _renamed(line, 0, None)


def _renamed(line: str, destination: int, chain: int | None) -> str:
    """The line with another destination; operand `chain`, if any, reads that too."""
    last = operands(line)
    position = -1

    def register(found: re.Match[str]) -> str:
        nonlocal position
        position += 1
        number = destination if position in (last, chain) else _OPERANDS + position
        return f"%{found.group(1)}{number}"

    return _MEMORY.sub("(%rcx)", _REGISTER.sub(register, line))


class Timer:
    """Compiled loops over blocks, timed beside a chain of additions, one a cycle."""

    def __init__(self, blocks: Mapping[str, Sequence[str]], profile: Hardware) -> None:
        self._symbols = {name: f"b{number}" for number, name in enumerate((_CLOCK, *blocks))}
        texts = {self._symbols[name]: block for name, block in blocks.items()}
        texts[self._symbols[_CLOCK]] = [_ADDITION] * _ADDITIONS
        self._library = _loaded(texts, profile)
        self._memory = aligned(512).view(np.int64)
        self._memory[:] = self._memory.ctypes.data  # for chains of loads

    def all_cycles(self) -> dict[str, float]:
        """Cycles of one pass through each block: the least of several visits to all.

        What else runs on a core often lasts longer than the runs of one visit.
        """
        names = [name for name in self._symbols if name != _CLOCK]
        visits = [{name: self.cycles(name) for name in names} for _ in range(_VISITS)]
        return {name: min(visit[name] for visit in visits) for name in names}

    def cycles(self, name: str) -> float:
        """Cycles of one pass through a block: the least of many short runs.

        Runs of the block and of the clock alternate, so that both see the processor undisturbed.
        """
        runs = {of: max(100, int(_SECONDS / self._seconds(of, 1000))) for of in (_CLOCK, name)}
        least = dict.fromkeys(runs, math.inf)
        for _ in range(_ROUNDS):
            for of, count in runs.items():
                least[of] = min(least[of], self._seconds(of, count))
        return least[name] / (least[_CLOCK] / _ADDITIONS)

    def hertz(self) -> float:
        """Cycles a second: additions of a chain, at the fastest of many short runs."""
        return _ADDITIONS / min(self._seconds(_CLOCK, 1000) for _ in range(_ROUNDS))

    def _seconds(self, name: str, count: int) -> float:
        """Seconds of one of `count` passes."""
        self._memory[0] = count
        entry = self._library[self._symbols[name]]
        start = time.perf_counter_ns()
        entry(ctypes.c_void_p(self._memory.ctypes.data))
        return (time.perf_counter_ns() - start) * 1e-9 / count


def hertz(profile: Hardware) -> float:
    """Cycles a second that this processor runs at now."""
    return Timer({}, profile).hertz()


def _loaded(texts: Mapping[str, Sequence[str]], profile: Hardware) -> Any:
    """Compile and link one function a block, and load them."""
    from pipelines.instruction_costs.row_code import imported
    from stages.codegen import compile_object

    functions = {name: imported(name, [_loop(name, block)]) for name, block in texts.items()}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "blocks.o").write_bytes(compile_object(functions, profile))
        linker = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", "-z", "notext"]
        subprocess.run([*linker, "blocks.o", "-o", "blocks.so"], cwd=folder, check=True)
        return ctypes.CDLL(str(Path(folder) / "blocks.so"))


def _loop(symbol: str, block: Sequence[str]) -> str:
    """An LLVM function that runs a block as often as its buffer's first number says."""
    text = "\\0A".join(["1:", *block, "decq %rdx", "jnz 1b"]).replace("$", "$$")
    clobbers = ",".join(f"~{{xmm{number}}}" for number in range(16))
    return (
        f"define internal void @bk_{symbol}(ptr %memory) alwaysinline {{\n"
        "  %count = load i64, ptr %memory\n"
        f'  %left = call i64 asm sideeffect "{text}", '
        f'"={{rdx}},0,{{rcx}},~{{rax}},~{{memory}},~{{flags}},{clobbers}"'
        "(i64 %count, ptr %memory)\n"
        "  ret void\n}"
    )
