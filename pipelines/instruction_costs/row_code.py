"""The machine code of every row of a core's instruction sets, as a kernel's inner loop has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hw.arm_cores import ARM_CORES
from hw.isa import VNNI_256, Instruction, Operation, Vector, isa_of, tile_registers
from hw.isa.gfni import GFNI
from hw.isa.instruction_set import IsaName
from hw.profile import ISA_NAMES, NEEDED, Core, Hardware

# What each core has: its widest instruction sets and the features with rows of their own.
_VNNI, _BITALG, _BF16 = "+avx512vnni", "+avx512bitalg", "+avx512bf16"
_VBMI = "+avx512vbmi"
_AMX = (GFNI, *tile_registers.FEATURES)
_X86_SETS: dict[Core, tuple[int, tuple[str, ...]]] = {
    "haswell": (2, ()),
    # llvm-mca's models do not know AVX-VNNI itself.
    "alderlake": (2, VNNI_256),
    "cascadelake": (3, (_VNNI,)),
    "icelake": (4, (_VNNI, _BITALG, _VBMI)),
    "sapphirerapids": (4, (_VNNI, _BITALG, _BF16, _VBMI, *_AMX)),
    "zen4": (4, (_VNNI, _BITALG, _BF16, _VBMI)),
    "zen5": (4, (_VNNI, _BITALG, _BF16, _VBMI)),
    "generic-x86-64": (4, (_VNNI, _BITALG, _BF16, _VBMI, *_AMX)),
}
ENTRIES = 16
"""Bytes of a table that is looked up."""
_VECTOR_REGISTER = re.compile(r"%[xyz]mm\d|\b[vqd]\d")
_BEGIN, _END = "bitkiln begins", "bitkiln ends"
# The compiler takes the shorter float form of a bitwise operation or a broadcast where nothing says
# that its operands are integers. In a kernel their neighbours say so, and some cores run the two
# elsewhere.
_FLOAT_FORMS = (
    (re.compile(r"^(v?)(and|andn|or|xor)ps\b"), r"\1p\2"),
    (re.compile(r"^vbroadcastss\b"), "vpbroadcastd"),
)


@dataclass(frozen=True)
class Row:
    """One entry of a core's table: each of `codes` is its machine code for one immediate."""

    name: str
    codes: tuple[tuple[str, ...], ...]
    profile: Hardware


def rows_of(core: Core) -> list[Row]:
    """Every row that a core's instruction sets have, loads and broadcasts included.

    The rows of 32-bit Arm sets are left out: their table entries are copies of the 64-bit ones'.
    """
    rows: dict[str, Row] = {}
    for profile in _profiles(core):
        isa = isa_of(profile)
        for size in (isa.bytes, isa.bytes // 2) if isa.half_registers else (isa.bytes,):
            rows.setdefault(f"load_{size}", _memory_row("load", size, profile))
            rows.setdefault(f"broadcast_{size}", _memory_row("broadcast", size, profile))
        if Operation.LOOKUP in isa and isa.bytes > ENTRIES:
            name = f"broadcast_half_{isa.bytes}"
            rows.setdefault(name, _memory_row("broadcast_half", isa.bytes, profile))
        for instruction in isa.instructions():
            if instruction.name not in rows:
                rows[instruction.name] = _row(instruction, profile)
    return list(rows.values())


def _profiles(core: Core) -> list[Hardware]:
    """A profile per instruction set of a core, with its features alone and with all it has."""
    if core in ARM_CORES:
        cpu = "generic" if core.startswith("generic") else core
        return [profile_of(core, "aarch64", "neon_aarch64", cpu, ARM_CORES[core].features)]
    count, extra = _X86_SETS[core]
    names = ISA_NAMES["x86_64"][:count]
    plain = [profile_of(core, "x86_64", name, "x86-64", NEEDED[name]) for name in names]
    more = {"avx2": VNNI_256, "avx512bw": extra} if extra else {}
    return plain + [
        profile_of(core, "x86_64", name, "x86-64", (*NEEDED[name], *more[name]))
        for name in names
        if name in more
    ]


def profile_of(
    core: Core, architecture: str, isa: IsaName, cpu: str, features: Sequence[str]
) -> Hardware:
    """A profile to compile rows with."""
    # Not validated: a profile asks for the very table that is to be made.
    return Hardware.model_construct(
        name="measuring",
        architecture=architecture,
        triple=f"{architecture}-linux-gnu",
        cpu=cpu,
        features=tuple(features),
        float_abi=None,
        zig_target=f"{architecture}-linux-gnu.2.28",
        isa=isa,
        core=core,
    )


def _row(instruction: Instruction, profile: Hardware) -> Row:
    kinds = [kind.llvm for kind in instruction.operands]
    codes = []
    for immediate in instruction.immediates or (None,):

        def apply(code: Any, operands: list[str], immediate: int | None = immediate) -> Any:
            return code.apply(instruction, *operands, immediate=immediate)

        codes.append(_machine_code(kinds, instruction.result.llvm, apply, profile))
    return Row(instruction.name, tuple(dict.fromkeys(codes)), profile)


def _memory_row(name: str, size: int, profile: Hardware) -> Row:
    """`load`: a register of `size` bytes; `broadcast`: 32 bits into each of its lanes.

    `broadcast_half`: half of its bytes, twice.
    """
    kind = f"<{size // 4} x i32>"

    def load(code: Any, operands: list[str]) -> Any:
        return code.load(kind, operands[0], 4)

    def broadcast(code: Any, operands: list[str]) -> Any:
        return code.splat(code.load("i32", operands[0], 4), "i32", size // 4)

    def broadcast_half(code: Any, operands: list[str]) -> Any:
        half = f"<{size // 2} x i8>"
        whole = code.repeated(code.load(half, operands[0], 1), size // 2, Vector(size, 8))
        return code.bitcast(whole, f"<{size} x i8>", kind)

    emit = {"load": load, "broadcast": broadcast, "broadcast_half": broadcast_half}[name]
    return Row(f"{name}_{size}", (_machine_code(["ptr"], kind, emit, profile),), profile)


def _machine_code(
    kinds: Sequence[str], result: str, emit: Callable[[Any, list[str]], Any], profile: Hardware
) -> tuple[str, ...]:
    """What the compiler makes of an operation in a loop, operands and constants in registers.

    The operands come out of one mark of inline assembly and the result goes into the other, so
    that nothing is known about them and the whole operation stands in between.
    """
    from stages.codegen import build_library
    from stages.kernels.llvm import FunctionText

    comment, register = ("#", "v") if profile.architecture == "x86_64" else ("//", "w")
    code = FunctionText()

    def body(_index: str, _carried: list[str]) -> list[str]:
        outputs = ",".join("=r" if kind == "ptr" else f"={register}" for kind in kinds)
        every = f"{{{', '.join(kinds)}}}" if len(kinds) > 1 else kinds[0]
        given = code.let(f'call {every} asm sideeffect "{comment} {_BEGIN}", "{outputs}"()')
        operands = [
            code.let(f"extractvalue {every} {given}, {number}") if len(kinds) > 1 else given
            for number in range(len(kinds))
        ]
        value = emit(code, operands)
        code.do(f'call void asm sideeffect "{comment} {_END}", "{register}"({result} {value})')
        return []

    code.loop("1000", [], body)
    code.do("ret void")
    function = imported("row", [*code.declarations, code.function("bk_row", ["ptr %memory"])])
    text = build_library({"row": function}, profile).inspect_source("asm")
    inside = str(text).split(_BEGIN, 1)[1].split(_END, 1)[0].splitlines()
    lines = [" ".join(line.split(comment, 1)[0].split()) for line in inside]
    return tuple(_of_integers(line) for line in lines if _VECTOR_REGISTER.search(line))


def _of_integers(line: str) -> str:
    for float_form, integer_form in _FLOAT_FORMS:
        line = float_form.sub(integer_form, line)
    return line


def imported(symbol: str, texts: Sequence[str]) -> Any:
    """A PrimFunc that hands a buffer of 64-bit integers to the LLVM function `bk_<symbol>`."""
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        T.func_attr({"global_symbol": symbol})
        memory = T.arg("memory", T.Buffer((64,), "int64"))
        with T.attr(0, "pragma_import_llvm", "\n".join(texts)):
            T.evaluate(T.call_extern("void", f"bk_{symbol}", T.address_of(memory[0])))
    return builder.get()
