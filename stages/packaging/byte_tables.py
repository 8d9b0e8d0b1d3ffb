"""Functions of one byte: a register of bytes at a time looks its values up among all 256.

VPERMI2B finds 64 bytes among 128; two of them, and the sign bit says which. VPSHUFB finds bytes
among 16: of sixteen of them, all but one find 0, because saturation sets the sign bit of an index
that is not among their own. TBL finds bytes among 64 (`stages.packaging.register_tables`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from hw.isa import Isa, Part, isa_of
from hw.profile import Hardware
from stages.codegen import Text
from stages.dialect.calls import BYTES, dtype_of, is_op, shape_of
from stages.dialect.dtypes import limits
from stages.graph.bindings import outputs_of
from stages.graph.composites import calls_in
from stages.kernels.llvm import FunctionText
from stages.packaging.addressing import call_on
from stages.packaging.kernel import Kernel
from stages.packaging.register_tables import looks_up_fours, name_of, text_of
from stages.packaging.rows import line_kernel

TABLE = "relax.qnn.table"
PAIR, NIBBLE = Part.LOOKUP_PAIR, Part.LOOKUP
"""Parts of an instruction set that look bytes up."""
ENTRIES = 16
"""What a nibble looks up."""
LINE = 512
"""Bytes that are looked up with one load of a table that takes 16 registers."""
OUTSIDE = 112
"""What makes a byte of 16 and more, and no smaller one, 128 or more."""


def looks_up(isa: Isa) -> bool:
    """Whether an instruction set looks up registers of bytes: x86 from AVX2 on, and AArch64."""
    return PAIR in isa or (NIBBLE in isa and isa.lanes > 4) or looks_up_fours(isa)


def looked_up_name(dtype: str, count: int) -> str:
    """A function `(values, from, to)` of pointers to 256 values, and to so many bytes."""
    return f"bk_looked_up_{dtype}_{count}"


def gives_bytes(call: Any) -> bool:
    """Whether an expression is a function of one byte whose values are bytes."""
    return is_op(call, TABLE) and dtype_of(call.ty) in BYTES


def is_table(function: Any, isa: Isa) -> bool:
    """Whether a plain composite gives bytes that are functions of one byte, and nothing else."""
    calls = calls_in(function)
    is_alone = len(calls) == 1 and len(outputs_of(function)) == 1
    return is_alone and gives_bytes(calls[0]) and looks_up(isa)


def lower_table(function: Any, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel: items of work are registers of bytes, the last of them perhaps in part.

    Where a table takes many registers, items are as many bytes as are worth loading it.
    """
    (call,), isa = calls_in(function), isa_of(hardware)
    if looks_up_fours(isa):
        return _lower_lines(call, function.params, symbol, isa)
    dtype, size = dtype_of(call.args[0].ty), prod(shape_of(call.ty))
    definition, declarations = looked_up_text(isa, dtype, isa.bytes)
    text = "\n".join([*declarations, definition])
    piece = partial(_piece, call, size, isa.bytes)
    lines, result = -(-size // isa.bytes), (size, dtype_of(call.ty))
    return line_kernel(symbol, function.params, result, lines, piece, text=text)


def _lower_lines(call: Any, parameters: Any, symbol: str, isa: Isa) -> Kernel:
    """The kernel whose items are lines of bytes; the last one has the rest of them too."""
    dtype, size = dtype_of(call.args[0].ty), prod(shape_of(call.ty))
    lines = max(1, size // LINE)
    begin = (lines - 1) * LINE
    lengths = {LINE, size - begin} if lines > 1 else {size}
    texts = [text_of(isa, dtype, limits(dtype), n) for n in sorted(lengths) if n >= isa.bytes]
    text = "\n".join(dict.fromkeys(line for body, more in texts for line in (*more, body)))

    def line(arguments: Mapping[Any, Any], result: Any, number: Any) -> None:
        data, values = (arguments[argument] for argument in call.args)

        def look_up(length: int) -> None:
            places = values[0], data[number * LINE], result[number * LINE]
            name = name_of(dtype, limits(dtype), length)
            call_on(name, *places)

        if size < isa.bytes:
            with T.serial(0, size) as place:
                entry = tirx.Cast("int32", data[place]) + _first(dtype)
                T.buffer_store(result, values[entry], [place])
        elif len(lengths) == 1:
            look_up(*lengths)
        else:
            with T.If(number < lines - 1):
                with T.Then():
                    look_up(LINE)
                with T.Else():
                    look_up(size - begin)

    return line_kernel(symbol, parameters, (size, dtype_of(call.ty)), lines, line, text=text)


def _piece(
    call: Any, size: int, count: int, arguments: Mapping[Any, Any], result: Any, number: Any
) -> None:
    """One of the registers of bytes."""
    data, values = (arguments[argument] for argument in call.args)
    whole, dtype = size // count, dtype_of(call.args[0].ty)

    def register() -> None:
        places = values[0], data[number * count], result[number * count]
        call_on(looked_up_name(dtype, count), *places)

    def rest() -> None:
        with T.serial(0, size % count) as place:
            at = whole * count + place
            entry = tirx.Cast("int32", data[at]) + _first(dtype)
            T.buffer_store(result, values[entry], [at])

    if size % count == 0:
        register()
    elif not whole:
        rest()
    else:
        with T.If(number < whole):
            with T.Then():
                register()
            with T.Else():
                rest()


def looked_up_text(isa: Isa, dtype: str, count: int) -> Text:
    """The function `looked_up_name`, of as many bytes as a register has, or less."""
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
    return code.function(looked_up_name(dtype, count), parameters), list(code.declarations)


def _doubled(count: int, most: int) -> Iterator[int]:
    """Numbers of bytes that are doubled until they are as many as a register has."""
    while count < most:
        yield count
        count *= 2


def _first(dtype: str) -> int:
    """Where the value of the byte with no bit set is."""
    return 128 if dtype == "int8" else 0


def _by_pairs(code: FunctionText, isa: Isa, dtype: str, indices: str) -> str:
    byte, count = isa[PAIR].result, isa.bytes
    quarters = [code.load(byte.llvm, "%values", 1, n * count) for n in range(4)]
    if _first(dtype):
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
        table = code.load(entries, "%values", 1, upper ^ _first(dtype))
        moved = code.let(f"xor {byte.llvm} {indices}, {byte.splat(upper)}")
        index = code.let(
            f"call {byte.llvm} {saturated}({byte.llvm} {moved}, {byte.llvm} {byte.splat(OUTSIDE)})"
        )
        found = code.apply(isa[NIBBLE], code.repeated(table, ENTRIES, byte), index)
        total = code.let(f"or {byte.llvm} {total}, {found}") if total else found
    return total
