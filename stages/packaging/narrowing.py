"""Bytes from integers of 32 bits by instructions that saturate, a block of channels at a time.

AVX-512 narrows a register by VPMOVUSDB or VPMOVSDB, of two micro-operations; packing two registers
into one takes one for each halving, and one more puts in order what packing does within 128 bits.
"""

from __future__ import annotations

from hw.isa import Isa
from stages.codegen import Text
from stages.qnn.llvm import FunctionText
from stages.qnn.signature import BLOCK

HALF = BLOCK // 2
PACKS = {"uint8": "packuswb", "int8": "packsswb"}
"""Type of bytes → the instruction that saturates words of 16 bits to it."""
SATURATED = "bk_saturated_"
"""Functions `(from, to)` of pointers to int32 [32] and to bytes [32], by the type of these."""


def packs(isa: Isa) -> bool:
    """Whether a block of channels fills two registers that are packed."""
    return isa.lanes == HALF


def saturating_text(dtype: str) -> Text:
    """The function `SATURATED + dtype` as LLVM IR."""
    code = FunctionText()
    ints = f"<{HALF} x i32>"
    whole = f"<{BLOCK} x i32>"
    loaded = code.load(whole, "%from", 4)
    halves = [f"{ints} {code.lanes(whole, loaded, n * HALF, HALF)}" for n in (0, 1)]
    words = code.let(
        f"call <32 x i16> {_declared(code, 'packssdw', 'i16', ints)}({', '.join(halves)})"
    )
    pair = ", ".join([f"<32 x i16> {words}"] * 2)
    name = _declared(code, PACKS[dtype], "i8", "<32 x i16>")
    packed = code.bitcast(code.let(f"call <64 x i8> {name}({pair})"), "<64 x i8>", ints)
    # Each 128 bits hold four lanes of the first register, four of the second, and both again.
    order = ", ".join(f"i32 {4 * part + half}" for half in (0, 1) for part in range(4))
    kind = "<8 x i32>"
    found = code.let(f"shufflevector {ints} {packed}, {ints} poison, {kind} <{order}>")
    code.store(kind, found, "%to", 1)
    code.do("ret void")
    return code.function(SATURATED + dtype, ["ptr %from", "ptr %to"]), list(code.declarations)


def _declared(code: FunctionText, instruction: str, element: str, source: str) -> str:
    """The name of a packing instruction of whole registers, declared."""
    name = f"@llvm.x86.avx512.{instruction}.512"
    kind = f"<{512 // int(element[1:])} x {element}>"
    code.declarations[f"declare {kind} {name}({source}, {source})"] = None
    return name
