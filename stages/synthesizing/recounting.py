"""Recounting: what LLVM makes of a kernel, instruction by instruction.

LLVM rewrites: multiplications by powers of two become shifts and additions, a selector that is used
twice is copied, registers are spilled. So the programs that the search counts are counted once more
in the assembly of the target.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from hw.profile import Hardware
from stages.codegen import assembly

_LOAD = re.compile(r"v?ld|vpop")
_STORE = re.compile(r"v?st|vpush")
_X86_MOVE = re.compile(r"v?mov|vpbroadcast")


@dataclass(frozen=True)
class Recount:
    """Instructions of a straight-line kernel after LLVM, by what they are there for."""

    arithmetic: int
    loads: int
    stores: int
    moves: int
    """Copies between registers, among them those of selectors."""
    constants: int
    """Constants put into registers; a loop around the kernel does it once."""


def recount(text: str, declarations: list[str], name: str, hardware: Hardware) -> Recount:
    """Count the vector instructions of a function of pointers without loops."""
    kinds: Counter[str] = Counter()
    for line in assembly(text, declarations, name, text.count("ptr "), hardware):
        kinds[_kind(line, hardware.architecture)] += 1
    return Recount(
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
