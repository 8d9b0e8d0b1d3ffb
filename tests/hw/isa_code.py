"""Every instruction of an instruction set as a compiled function, beside its NumPy meaning."""

from __future__ import annotations

from functools import cache
from typing import Any

from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.isa import Instruction, Isa, isa_of
from hw.profile import Hardware
from stages.codegen import build_library, compile_object
from stages.kernels.llvm import FunctionText
from tests.compiled import Library


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


def function_of(instruction: Instruction, symbol: str, immediate: int | None = None) -> Any:
    """`symbol(operand…, result)`: the instruction once, on memory."""
    code = FunctionText()
    kinds = [*instruction.operands, instruction.result]
    *names, target = [f"%p{number}" for number in range(len(kinds))]
    operands = [
        code.load(kind.llvm, name, 1)
        for kind, name in zip(instruction.operands, names, strict=True)
    ]
    result = code.apply(instruction, *operands, immediate=immediate)
    code.store(instruction.result.llvm, result, target, 1)
    code.do("ret void")
    text = code.function(f"bk_{symbol}", [f"ptr {name}" for name in (*names, target)])
    parameters = [(f"uint{kind.bits}", kind.lanes) for kind in kinds]
    return caller(symbol, [*code.declarations, text], f"bk_{symbol}", parameters)


def cases_of(isa: Isa) -> list[tuple[Instruction, int | None]]:
    """Every row, with each of its immediates."""
    return [(row, k) for row in isa.instructions() for k in row.immediates or (None,)]


def functions_of(hardware: Hardware) -> dict[str, Any]:
    """A function per case of a profile, `i0` the first."""
    cases = cases_of(isa_of(hardware))
    return {f"i{n}": function_of(row, f"i{n}", k) for n, (row, k) in enumerate(cases)}


@cache
def library(hardware: Hardware) -> Library:
    """The compiled instructions of a profile."""
    return Library({"isa.o": compile_object(functions_of(hardware), hardware)}, hardware)


def assembly(function: Any, hardware: Hardware) -> str:
    """What the compiler made of one PrimFunc."""
    symbol = str(function.attrs["global_symbol"])
    return str(build_library({symbol: function}, hardware).inspect_source("asm"))
