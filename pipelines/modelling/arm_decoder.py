"""Machine code of ARM as an in-order pipeline sees it: registers, pipes, latencies.

Capstone says which registers an instruction reads and writes; `hw/timing` says what vector
instructions take; what is general, such as loads by their bytes, stands here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hw.core_models import InOrder
from pipelines.errors import UserError

Slot = Literal["any", "first", "both"]
"""Which issue slot of a cycle: either, only the first, or both at once."""

_LOADS = re.compile(r"ld(?!rex)|vld|vldr|vldm|pop|ldm|ldr")
_STORES = re.compile(r"st|vst|push|stm|str")
_PREFETCHES = re.compile(r"prfm|prfum|pld")
_MULTIPLIES = re.compile(
    r"(mul|mla|mls|madd|msub|mneg|smull|umull|smlal|umlal|smaddl|umaddl|smulh|umulh)"
)
_BRANCHES = re.compile(r"(b|bl|br|blr|bx|blx|ret|cbz|cbnz|tbz|tbnz)(\.?[a-z]{2})?$")
_VECTOR = re.compile(r"[vqdshb]\d+$")
_NUMBER = re.compile(r"([a-z]+)(\d+)")
_WIDE = re.compile(r"\.(16b|8h|4s|2d|1q)\b|\bq\d")
_LIST = re.compile(r"\{([^}]*)\}(\[\d+\])?")
_FLOATS = {"vmla": "fmla", "vmls": "fmls", "vadd": "fadd", "vsub": "fsub", "vmul": "fmul"}
_BYTES = {"b": 1, "h": 2, "s": 4, "d": 8, "q": 16, "w": 4, "x": 8, "r": 4}


@dataclass(frozen=True)
class DecodedInstruction:
    """One instruction. Registers are numbered words: general `x5`, vector `v5`, flags `nzcv`."""

    text: str
    slot: Slot
    unit: str
    """`alu` and `mul` are the vector pipes of two halves, `div` theirs too; `load`, `store`,
    `imul` and `branch` are single; `none` is any of the two integer pipes."""
    halves: int
    cycles: int
    """How long it keeps its unit; a load or store of more than that blocks the first slot too."""
    latency: int
    kind: str
    """`alu`, `load`, `imul`, `vector` or `fma`: what decides on forwarding to others."""
    reads: tuple[str, ...]
    addresses: tuple[str, ...]
    """Of what it reads, what an address is made of."""
    sums: tuple[str, ...]
    """Of what it reads, what it accumulates onto."""
    forwards: int
    """Latency of a sum to the next one that accumulates onto it."""
    adds: bool
    writes: tuple[str, ...]
    bases: tuple[str, ...]
    """Of what it writes, the addresses that it moves on."""


class Decoder:
    """Takes machine code of one architecture apart for one core."""

    def __init__(self, architecture: str, core: InOrder) -> None:
        capstone = _capstone()
        modes = {
            "aarch64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
            "armv7": (capstone.CS_ARCH_ARM, capstone.CS_MODE_ARM),
        }
        self._machine = capstone.Cs(*modes[architecture])
        self._machine.detail = True
        self._machine.skipdata = True
        self._is_arm32 = architecture == "armv7"
        self._core = core

    def instructions(self, code: bytes) -> list[DecodedInstruction]:
        """The instructions of a block; an unknown one is a vector operation of both halves."""
        return [self._instruction(found) for found in self._machine.disasm(code, 0)]

    def _instruction(self, found: Any) -> DecodedInstruction:
        name = str(found.mnemonic)
        text = f"{name} {found.op_str}".strip()
        if not found.id or name.startswith("."):
            return _unknown(text)
        read, written = found.regs_access()
        reads = self._registers(found, read)
        writes = self._registers(found, written)
        operands = str(found.op_str)
        if _PREFETCHES.match(name):
            return _memory(text, "load", 8, reads, reads, (), ())
        if (is_store := bool(_STORES.match(name))) or _LOADS.match(name):
            return self._access(text, name, operands, is_store, reads, writes)
        head = name.partition(".")[0]
        is_vector = any(register[0] == "v" for register in (*reads, *writes))
        if is_vector:
            return self._vector(text, head, operands, reads, writes)
        if _BRANCHES.match(name):
            return DecodedInstruction(
                text, "any", "branch", 1, 1, 0, "alu", reads, (), (), 0, False, writes, ()
            )
        if _MULTIPLIES.match(head):
            sums = reads[2:] if head in {"madd", "msub", "mla", "mls"} else ()
            return DecodedInstruction(
                text, "any", "imul", 1, 1, 4, "imul", reads, (), sums, 1, False, writes, ()
            )
        if head in {"sdiv", "udiv"}:
            return DecodedInstruction(
                text, "both", "imul", 1, 4, 8, "imul", reads, (), (), 0, False, writes, ()
            )
        return DecodedInstruction(
            text, "any", "none", 1, 1, 1, "alu", reads, (), (), 0, False, writes, ()
        )

    def _vector(
        self, text: str, head: str, operands: str, reads: tuple[str, ...], writes: tuple[str, ...]
    ) -> DecodedInstruction:
        if ".f" in text.partition(" ")[0]:  # vadd.f32 and the like in 32 bits
            head = _FLOATS.get(head, head)
        row = self._core.by_name.get(head)
        to_core = any(register[0] != "v" and register != "nzcv" for register in writes)
        from_core = any(register[0] == "x" for register in reads)
        wide = bool(_WIDE.search(operands))
        halves = 2 if wide and not to_core else 1
        slot: Slot = "first" if halves == 2 else "any"
        if row is None:
            return DecodedInstruction(
                text, slot, "alu", halves, 1, 4, "vector", reads, (), (), 0, False, writes, ()
            )
        sums = tuple(r for r in writes if r in reads) if row.forwards is not None else ()
        unit = "alu" if row.unit == "move" else row.unit
        cycles = row.latency if unit == "div" else 1
        kind = "fma" if row.adds else "vector"
        latency = 5 if to_core else max(row.latency, 2 * from_core)
        return DecodedInstruction(
            *(text, slot, unit, halves, cycles, latency, kind, reads, (), sums),
            *(row.forwards or 0, row.adds, writes, ()),
        )

    def _access(
        self,
        text: str,
        name: str,
        operands: str,
        is_store: bool,
        reads: tuple[str, ...],
        writes: tuple[str, ...],
    ) -> DecodedInstruction:
        """A load or store; its address stands in brackets, and may be stepped."""
        inside = re.search(r"\[([^\]]*)\]", operands[operands.find("}") + 1 :])
        words = re.findall(r"\b(?:sp|[xwr]\d+|ip|lr|fp)\b", inside.group(1) if inside else "")
        address = tuple(r for r in reads if r in {_name(word) for word in words})
        bases = tuple(r for r in writes if r in address)
        if is_store:
            writes = bases
        elif not re.search(r"\}\[\d", operands):  # what is loaded whole is not read before
            reads = address
        unit = "store" if is_store else "load"
        return _memory(text, unit, _size(name, operands), reads, address, writes, bases)

    def _registers(self, found: Any, numbers: Sequence[int]) -> tuple[str, ...]:
        """Registers by one name for all their widths; in 32 bits a q is two of its d."""
        names: list[str] = []
        for number in numbers:
            name = str(found.reg_name(number))
            if self._is_arm32 and (match := re.fullmatch(r"([qsd])(\d+)", name)):
                kind, k = match.group(1), int(match.group(2))
                units = {"q": (2 * k, 2 * k + 1), "d": (k,), "s": (k // 2,)}[kind]
                names += [f"v{unit}" for unit in units]
            else:
                names.append(_name(name))
        return tuple(name for name in dict.fromkeys(names) if name not in {"xzr", "wzr", "pc"})


def _memory(
    text: str,
    unit: str,
    size: int,
    reads: tuple[str, ...],
    address: tuple[str, ...],
    writes: tuple[str, ...],
    bases: tuple[str, ...],
) -> DecodedInstruction:
    """64 bits are loaded a cycle, 128 are stored; more than 64 bits take both slots to begin."""
    width = 8 if unit == "load" else 16
    cycles = max(1, -(-size // width))
    is_vector = any(register[0] == "v" for register in (*reads, *writes))
    latency = (3 if size <= 8 else 2 + cycles) if is_vector else 3 + (size > 8)
    slot: Slot = "both" if unit == "load" and size > 8 else "any"
    kind = "vector" if is_vector else "load"
    return DecodedInstruction(
        text, slot, unit, 1, cycles, latency, kind, reads, address, (), 0, False, writes, bases
    )


def _size(name: str, operands: str) -> int:
    """Bytes that a load or store moves."""
    if found := _LIST.search(operands):
        registers = _registers_of(operands)
        if found.group(2) or (name.endswith("r") and name[:2] == "ld"):  # a lane, or one for all
            return 8 if registers <= 2 else 16
        wide = bool(_WIDE.search(found.group(1)))
        kinds = {word[0] for word in re.findall(r"[vqdsxr]\d+", found.group(1))}
        each = 16 if wide else 4 if kinds <= {"r", "s"} else 8
        return registers * each
    words = re.findall(r"\b([bhsdqwxr])\d+\b|\b([wx]zr)\b", operands.partition("[")[0])
    sizes = [_BYTES[(kind or other)[0]] for kind, other in words]
    return sum(sizes[:2] if name.startswith(("ldp", "stp", "ldnp", "stnp")) else sizes[:1]) or 4


def _registers_of(operands: str) -> int:
    """Registers that a load or store fills or empties."""
    found = _LIST.search(operands)
    return len(re.findall(r"[a-z]+\d+", re.sub(r"\.\d*[a-z]", "", found.group(1)))) if found else 1


def _name(name: str) -> str:
    """One name for all widths of a register: `w5` and `x5` are x5, `q5` and `d5` are v5."""
    if name in {"sp", "wsp"}:
        return "sp"
    found = _NUMBER.fullmatch(name)
    if not found:
        return {"fp": "x29", "lr": "x30", "ip": "x12", "cpsr": "nzcv"}.get(name, name)
    return ("v" if _VECTOR.match(name) else "x") + found.group(2)


def _unknown(text: str) -> DecodedInstruction:
    return DecodedInstruction(text, "first", "alu", 2, 1, 4, "vector", (), (), (), 0, False, (), ())


def _capstone() -> Any:
    try:
        import capstone
    except ImportError as error:
        raise UserError(
            "modelling an in-order core needs capstone; run: pip install -e '.[modelling]'"
        ) from error
    return capstone
