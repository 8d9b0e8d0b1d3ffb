"""From a composite that is a function of one byte to one PrimFunc: a look-up table (LUT)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from hw.isa import Isa, isa_of
from hw.profile import Hardware
from stages.dialect.calls import dtype_of, shape_of
from stages.dialect.dtypes import limits
from stages.graph.bindings import outputs_of
from stages.graph.composites import calls_in
from stages.nodes import Buffer, Call, Function, Index, Var
from stages.packaging.emitting.addressing import call_on
from stages.packaging.emitting.byte_lut import (
    first_entry,
    has_byte_lut,
    is_byte_valued,
    lut_name,
    lut_text,
)
from stages.packaging.emitting.item_kernel import Arguments, item_kernel
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.emitting.register_lut import (
    has_register_lut,
    register_lut_name,
    register_lut_text,
)

CHUNK = 512
"""Bytes that are looked up with one load of a LUT that takes 16 registers."""


def is_byte_function(function: Function, isa: Isa) -> bool:
    """Whether a TE composite gives bytes that are functions of one byte, and nothing else."""
    calls = calls_in(function)
    is_alone = len(calls) == 1 and len(outputs_of(function)) == 1
    return is_alone and is_byte_valued(calls[0]) and has_byte_lut(isa)


def lower_byte_function(function: Function, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel: items of work are registers of bytes, the last of them perhaps in part.

    Where a LUT takes many registers, items are as many bytes as are worth loading it.
    """
    (call,), isa = calls_in(function), isa_of(hardware)
    if has_register_lut(isa):
        return _lower_chunks(call, function.params, symbol, isa)
    dtype, size = dtype_of(call.args[0].ty), prod(shape_of(call.ty))
    definition, declarations = lut_text(isa, dtype, isa.bytes)
    text = "\n".join([*declarations, definition])
    piece = partial(_piece, call, size, isa.bytes)
    items, result = -(-size // isa.bytes), (size, dtype_of(call.ty))
    return item_kernel(symbol, function.params, result, items, piece, text=text)


def _lower_chunks(call: Call, parameters: Sequence[Var], symbol: str, isa: Isa) -> Kernel:
    """The kernel whose items are chunks of bytes; the last one has the rest of them too."""
    dtype, size = dtype_of(call.args[0].ty), prod(shape_of(call.ty))
    items = max(1, size // CHUNK)
    begin = (items - 1) * CHUNK
    lengths = {CHUNK, size - begin} if items > 1 else {size}
    texts = [
        register_lut_text(isa, dtype, limits(dtype), n) for n in sorted(lengths) if n >= isa.bytes
    ]
    text = "\n".join(dict.fromkeys(line for body, more in texts for line in (*more, body)))

    def chunk(arguments: Arguments, result: Buffer, number: Index) -> None:
        data, values = (arguments[argument] for argument in call.args)

        def look_up(length: int) -> None:
            places = values[0], data[number * CHUNK], result[number * CHUNK]
            name = register_lut_name(dtype, limits(dtype), length)
            call_on(name, *places)

        if size < isa.bytes:
            with T.serial(0, size) as place:
                entry = tirx.Cast("int32", data[place]) + first_entry(dtype)
                T.buffer_store(result, values[entry], [place])
        elif len(lengths) == 1:
            look_up(*lengths)
        else:
            with T.If(number < items - 1):
                with T.Then():
                    look_up(CHUNK)
                with T.Else():
                    look_up(size - begin)

    return item_kernel(symbol, parameters, (size, dtype_of(call.ty)), items, chunk, text=text)


def _piece(
    call: Call, size: int, count: int, arguments: Arguments, result: Buffer, number: Index
) -> None:
    """One of the registers of bytes."""
    data, values = (arguments[argument] for argument in call.args)
    whole, dtype = size // count, dtype_of(call.args[0].ty)

    def register() -> None:
        places = values[0], data[number * count], result[number * count]
        call_on(lut_name(dtype, count), *places)

    def rest() -> None:
        with T.serial(0, size % count) as place:
            at = whole * count + place
            entry = tirx.Cast("int32", data[at]) + first_entry(dtype)
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
