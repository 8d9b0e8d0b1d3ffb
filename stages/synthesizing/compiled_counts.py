"""Recounting: what LLVM makes of a kernel, instruction by instruction.

LLVM rewrites: multiplications by powers of two become shifts and additions, a selector that is used
twice is copied, registers are spilled. So the programs that the search counts are counted once more
in the assembly of the target.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hw.profile import Hardware
from stages.codegen import Text, assembly

_LABEL = re.compile(r"(\.L\w+):")
_JUMP = re.compile(r"\s(\.L\w+)$")
_LOAD = re.compile(r"v?ld|vpop")
_STORE = re.compile(r"v?st|vpush")
_X86_MOVE = re.compile(r"v?mov|vpbroadcast")


@dataclass(frozen=True)
class CompiledCounts:
    """Vector instructions after LLVM, by what they are there for."""

    arithmetic: int
    loads: int
    stores: int
    moves: int
    """Copies between registers, among them those of selectors."""
    constants: int
    """Constants put into registers; a loop around the kernel does it once."""


def count_compiled(functions: Mapping[str, Text], hardware: Hardware) -> dict[str, CompiledCounts]:
    """Count the vector instructions of functions of three pointers, without loops."""
    lines = assembly(functions, 3, hardware)
    return {name: _counted(body, hardware.architecture) for name, body in lines.items()}


def count_compiled_loops(
    functions: Mapping[str, Text], hardware: Hardware
) -> dict[str, CompiledCounts]:
    """Count those of the innermost loops of micro-kernels, each loop once.

    Problems have kernels in common, so what was counted is kept while the process lives.
    """
    texts = {
        name: (hardware, function, "\n".join(declared))
        for name, (function, declared) in functions.items()
    }
    new = {name: functions[name] for name, text in texts.items() if text not in _KNOWN}
    for name, body in (assembly(new, 4, hardware, _STRIDES) if new else {}).items():
        _KNOWN[texts[name]] = _counted(list(_innermost(body)), hardware.architecture)
    return {name: _KNOWN[text] for name, text in texts.items()}


_KNOWN: dict[tuple[Hardware, str, str], CompiledCounts] = {}
_STRIDES = (3, 1000, 1 << 16, 1 << 6, 1 << 20, 8, 1, 0)
"""A window too long to be unrolled."""


def _innermost(lines: Sequence[str]) -> Iterator[str]:
    """The instructions between a label and a jump back to it, with no such loop inside."""
    places: dict[str, int] = {}
    latest = -1
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            places[label.group(1)] = number
        elif (target := _JUMP.search(line)) and (start := places.get(target.group(1), -1)) > latest:
            latest = start
            yield from lines[start:number]


def _counted(lines: Sequence[str], architecture: str) -> CompiledCounts:
    kinds = Counter(_kind(line, architecture) for line in lines if line.startswith("\t"))
    return CompiledCounts(
        kinds["arithmetic"], kinds["load"], kinds["store"], kinds["move"], kinds["constant"]
    )


def _kind(line: str, architecture: str) -> str:
    mnemonic, _, operands = line.strip().partition("\t")
    is_arm = architecture != "x86_64"
    if not re.search(r"\b[vqd]\d" if is_arm else r"%[xyz]mm", operands):
        return "scalar"
    if is_arm:
        if _STORE.match(mnemonic):
            return "store"
        if _LOAD.match(mnemonic):
            return "load"
        if mnemonic == "movi" or (mnemonic.startswith("vmov.i") and "#" in operands):
            return "constant"
        is_copy = mnemonic in ("vmov", "mov", "fmov") or _is_copying_or(mnemonic, operands)
        return "move" if is_copy else "arithmetic"
    if not _X86_MOVE.match(mnemonic):
        return "arithmetic"
    *sources, target = operands.split(",")
    if "(" in target:
        return "store"
    return "load" if "(" in "".join(sources) else "move"


def _is_copying_or(mnemonic: str, operands: str) -> bool:
    """ARM copies a register by an or of it with itself."""
    if mnemonic not in ("vorr", "orr"):
        return False
    _, first, second = (x.strip() for x in operands.split(","))
    return first == second
