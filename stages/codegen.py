"""From PrimFuncs to a relocatable object with the plain C ABI, by TVM's LLVM back end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.arm_cores import arm_core
from hw.profile import Hardware
from stages.nodes import IRModule, PrimFunc

PIPELINE = "bitkiln.plain_c"


@tvm.transform.module_pass(opt_level=0, name="PlainCInterface")
def plain_c_interface(module: IRModule, _context: object) -> IRModule:
    """Turn buffer parameters into bare pointers: no packed calls, no runtime symbol.

    `f(A: Buffer((64,), "uint8"))` -> `f(a: pointer to uint8)` with `A` declared over `a`.
    """
    return tvm.IRModule(
        {name: _with_pointers(function) for name, function in module.functions.items()}
    )


def _with_pointers(function: PrimFunc) -> PrimFunc:
    parameters, declarations = [], []
    for parameter in function.params:
        if isinstance(parameter.ty, tirx.BufferType):
            element = PointerType(PrimType(str(parameter.ty.dtype)))
            pointer = tirx.Var(f"{parameter.name}_pointer", element)
            parameters.append(pointer)
            declarations.append(tirx.DeclBuffer(parameter, data=pointer))
        else:
            parameters.append(parameter)
    plain = tirx.PrimFunc(
        parameters, tirx.SeqStmt([*declarations, function.body]), function.ret_type
    )
    for key, value in function.attrs.items():
        plain = plain.with_attr(key, value)
    return plain.with_attr("tirx.noalias", True)


def _pipeline() -> tuple[Any, Any, Any]:
    transform = tirx.transform
    lowering = tvm.ir.transform.Sequential(
        [
            transform.StmtSimplify(),
            transform.FlattenBuffer(),
            transform.VectorizeLoop(True),
            transform.UnrollLoop(),
            transform.StmtSimplify(),
            transform.SplitHostDevice(),
            plain_c_interface,
        ]
    )
    default = tirx.compilation_pipeline
    return lowering, default.finalize_host_passes, default.finalize_device_passes


tirx.register_tir_pipeline(PIPELINE, _pipeline)


def target_of(hardware: Hardware) -> Any:
    """The TVM target of a hardware profile."""
    config: dict[str, Any] = {
        "kind": "llvm",
        "mtriple": hardware.triple,
        "mcpu": hardware.cpu,
        "mattr": [*hardware.features, *tuning_of(hardware)],
    }
    if hardware.float_abi:
        config["mfloat-abi"] = hardware.float_abi
    return tvm.target.Target(config)


def tuning_of(hardware: Hardware) -> tuple[str, ...]:
    """LLVM's features that make code faster on the processor it is compiled for."""
    if hardware.architecture != "aarch64":
        return ()
    core = arm_core(hardware.cpu)
    return () if core is None else core.tuning


def build_library(functions: dict[str, PrimFunc], hardware: Hardware) -> Any:
    """A TVM runtime module with the functions under the plain C ABI."""
    return tirx.build(tvm.IRModule(functions), target=target_of(hardware), pipeline=PIPELINE)


def compile_object(functions: dict[str, PrimFunc], hardware: Hardware) -> bytes:
    """An ELF object for the target that defines every function by its name."""
    library = build_library(functions, hardware)
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        library.write_to_file(file.name, "o")
        return Path(file.name).read_bytes()


def compile_assembly(functions: dict[str, PrimFunc], hardware: Hardware) -> str:
    """The text of the same object, as LLVM's assembler reads it."""
    return str(build_library(functions, hardware).inspect_source("asm"))


Text = tuple[str, list[str]]
"""An LLVM function and the declarations it needs."""


def assembly(
    functions: Mapping[str, Text],
    pointers: int,
    hardware: Hardware,
    numbers: Sequence[int] = (),
) -> dict[str, list[str]]:
    """The lines, labels among them, that LLVM makes of each imported function, by name.

    A function is called with so many pointers and then with constants, as a package calls a kernel.
    """
    callers = {
        f"{name}_caller": caller(f"{name}_caller", name, text, pointers, numbers)
        for name, text in functions.items()
    }
    lines = str(build_library(callers, hardware).inspect_source("asm")).splitlines()
    starts = {line[:-1]: i for i, line in enumerate(lines) if line.endswith("_caller:")}
    return {name: list(_body(lines, starts[f"{name}_caller"])) for name in functions}


def caller(
    symbol: str, name: str, text: Text, pointers: int, numbers: Sequence[int], behind: int = 0
) -> PrimFunc:
    """The PrimFunc `symbol(pointer…)` that an imported function becomes a part of, with constants
    between its pointers and those `behind` them."""
    function, declarations = text
    with IRBuilder() as builder, T.prim_func():
        T.func_name(symbol)
        T.func_attr({"global_symbol": symbol})
        every = range(pointers + behind)
        buffers = [T.arg(f"p{i}", T.Buffer((1,), "uint8")) for i in every]
        with T.attr(0, "pragma_import_llvm", "\n".join([*declarations, function])):
            addresses = [T.address_of(buffer[0]) for buffer in buffers]
            first, last = addresses[:pointers], addresses[pointers:]
            T.evaluate(T.call_extern("void", name, *first, *map(T.int64, numbers), *last))
    return builder.get()


def _body(lines: Sequence[str], start: int) -> Iterator[str]:
    """The instructions and labels of the function whose label stands at `start`."""
    for line in lines[start + 1 :]:
        if ".size" in line or ".fnend" in line:
            return
        if not line.startswith("\t."):
            yield line
