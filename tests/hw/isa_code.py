"""Every instruction of an instruction set as a compiled function, beside its NumPy meaning."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.isa import Instruction, isa_of
from hw.profile import Hardware
from stages.packaging.compile import build_library, compile_object
from stages.qnn.llvm import FunctionText
from tests.compiled import Library

Array = np.ndarray[Any, Any]


def lanes_of(kind: str) -> tuple[int, int]:
    """Lanes and bits of an LLVM vector type."""
    count, element = kind.strip("<>").split(" x i")
    return int(count), int(element)


def caller(symbol: str, texts: list[str], callee: str, parameters: list[tuple[str, int]]) -> Any:
    """A PrimFunc that hands its buffers `(dtype, elements)` to a function of imported LLVM IR."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        T.func_attr({"global_symbol": symbol})
        buffers = [
            T.arg(f"b{number}", T.Buffer((elements,), dtype))
            for number, (dtype, elements) in enumerate(parameters)
        ]
        with T.attr(0, "pragma_import_llvm", "\n".join(dict.fromkeys(texts))):
            addresses = [T.address_of(buffer[0]) for buffer in buffers]
            T.evaluate(T.call_extern("void", callee, *addresses))
    return builder.get()


def function_of(instruction: Instruction, symbol: str) -> Any:
    """`symbol(operand…, result)`: the instruction once, on memory."""
    code = FunctionText()
    kinds = [*instruction.operands, instruction.result]
    names = [f"%p{number}" for number in range(len(kinds))]
    operands = [
        code.load(kind, name, 1) for kind, name in zip(instruction.operands, names, strict=False)
    ]
    code.store(instruction.result, code.apply(instruction, *operands), names[-1], 1)
    code.do("ret void")
    text = code.function(f"bk_{symbol}", [f"ptr {name}" for name in names])
    parameters = [(f"uint{bits}", lanes) for lanes, bits in map(lanes_of, kinds)]
    return caller(symbol, [*code.declarations, text], f"bk_{symbol}", parameters)


def functions_of(hardware: Hardware) -> dict[str, Any]:
    """A function per instruction of a profile, `i0` the first."""
    instructions = isa_of(hardware).instructions()
    return {f"i{n}": function_of(row, f"i{n}") for n, row in enumerate(instructions)}


@cache
def library(hardware: Hardware) -> Library:
    """The compiled instructions of a profile."""
    return Library({"isa.o": compile_object(functions_of(hardware), hardware)}, hardware)


def assembly(function: Any, hardware: Hardware) -> str:
    """What the compiler made of one PrimFunc."""
    symbol = str(function.attrs["global_symbol"])
    return str(build_library({symbol: function}, hardware).inspect_source("asm"))
