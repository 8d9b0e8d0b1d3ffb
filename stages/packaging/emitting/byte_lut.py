"""Look-up tables (LUTs) of one byte: a register of bytes at a time finds its values among 256.

VPERMI2B finds 64 bytes among 128; two of them, and the sign bit says which. VPSHUFB finds bytes
among 16: of sixteen of them, all but one find 0, because saturation sets the sign bit of an index
that is not among their own. TBL finds bytes among 64 (`register_lut.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from hw.isa import Isa, Operation
from stages.codegen import Text
from stages.dialect.calls import BYTES, dtype_of, is_op
from stages.kernels.llvm import FunctionText
from stages.nodes import Call
from stages.numerics import rule_names
from stages.packaging.emitting.register_lut import has_register_lut

PAIR, NIBBLE = Operation.LOOKUP_PAIR, Operation.LOOKUP
"""Parts of an instruction set that look bytes up."""
ENTRIES = 16
"""What a nibble looks up."""
OUTSIDE = 112
"""What makes a byte of 16 and more, and no smaller one, 128 or more."""


def has_byte_lut(isa: Isa) -> bool:
    """Whether an instruction set looks up registers of bytes: x86 from AVX2 on, and AArch64."""
    return PAIR in isa or (NIBBLE in isa and isa.lanes > 4) or has_register_lut(isa)


def lut_name(dtype: str, count: int) -> str:
    """A function `(values, from, to)` of pointers to 256 values, and to so many bytes."""
    return f"bk_looked_up_{dtype}_{count}"


def is_byte_valued(call: Call) -> bool:
    """Whether an expression is a function of one byte whose values are bytes."""
    return is_op(call, rule_names.QNN_TABLE) and dtype_of(call.ty) in BYTES


def lut_text(isa: Isa, dtype: str, count: int) -> Text:
    """The function `lut_name`, of as many bytes as a register has, or less."""
    code, kind = FunctionText(), f"<{count} x i8>"
    indices = code.load(kind, "%from", 1)
    for size in _doubled(count, isa.bytes):
        indices = code.joined(f"<{size} x i8>", indices, indices, size)
    find = _by_pairs if PAIR in isa else _by_nibbles
    found = find(code, isa, dtype, indices)
    if count < isa.bytes:
        found = code.lanes(isa[NIBBLE].result.llvm, found, 0, count)
    code.store(kind, found, "%to", 1)
    code.do("ret void")
    parameters = ["ptr noalias readonly %values", "ptr %from", "ptr %to"]
    return code.function(lut_name(dtype, count), parameters), list(code.declarations)


def _doubled(count: int, most: int) -> Iterator[int]:
    """Numbers of bytes that are doubled until they are as many as a register has."""
    while count < most:
        yield count
        count *= 2


def first_entry(dtype: str) -> int:
    """Where the value of the byte with no bit set is."""
    return 128 if dtype == "int8" else 0


def _by_pairs(code: FunctionText, isa: Isa, dtype: str, indices: str) -> str:
    byte, count = isa[PAIR].result, isa.bytes
    quarters = [code.load(byte.llvm, "%values", 1, n * count) for n in range(4)]
    if first_entry(dtype):
        quarters = [*quarters[2:], *quarters[:2]]
    low, high = (code.apply(isa[PAIR], quarters[n], indices, quarters[n + 1]) for n in (0, 2))
    is_high = code.let(f"icmp slt {byte.llvm} {indices}, zeroinitializer")
    return code.let(f"select <{count} x i1> {is_high}, {byte.llvm} {high}, {byte.llvm} {low}")


def _by_nibbles(code: FunctionText, isa: Isa, dtype: str, indices: str) -> str:
    byte, entries = isa[NIBBLE].result, f"<{ENTRIES} x i8>"
    saturated = f"@llvm.uadd.sat.v{byte.lanes}i8"
    code.declarations[f"declare {byte.llvm} {saturated}({byte.llvm}, {byte.llvm})"] = None
    total = ""
    for upper in range(0, 256, ENTRIES):
        table = code.load(entries, "%values", 1, upper ^ first_entry(dtype))
        moved = code.let(f"xor {byte.llvm} {indices}, {byte.splat(upper)}")
        index = code.let(
            f"call {byte.llvm} {saturated}({byte.llvm} {moved}, {byte.llvm} {byte.splat(OUTSIDE)})"
        )
        found = code.apply(isa[NIBBLE], code.repeated(table, ENTRIES, byte), index)
        total = code.let(f"or {byte.llvm} {total}, {found}") if total else found
    return total
