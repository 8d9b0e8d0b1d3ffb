"""Compiles the kernels of a program, each by its own problem, into objects or assembly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hw.profile import Hardware
from stages.codegen import compile_assembly, compile_object, tuning_of
from stages.nodes import PrimFunc
from stages.packaging.compiling.assembly import assembler_architecture, tidied
from stages.packaging.emitting.kernel import Kernel

Memo = Callable[[str, Mapping[str, object], Callable[[], bytes]], bytes]
ITEM, HELPER = "kernel", "sums"
TEXTS = {ITEM: "kernel_text", HELPER: "sums_text"}
"""What the same as assembly is kept as."""


@dataclass(frozen=True)
class Lowered:
    """A kernel that is not compiled yet."""

    symbol: str
    kernel: Kernel
    problem: Mapping[str, Any]
    """All that decides its code, as plain JSON data."""


@dataclass(frozen=True)
class _Unit:
    """What is compiled on its own."""

    kind: str
    symbol: str
    function: PrimFunc
    problem: Mapping[str, Any]


def _units(kernels: Iterable[Lowered], hardware: Hardware) -> Iterator[_Unit]:
    for lowered in kernels:
        symbol, kernel = lowered.symbol, lowered.kernel
        yield _Unit(ITEM, symbol, kernel.function, {**lowered.problem, "symbol": symbol})
        for helper in kernel.helpers:
            # In an object of its own, or LLVM would put it into the kernel.
            problem = {**helper.problem, "hardware": code_ingredients(hardware)}
            yield _Unit(HELPER, helper.symbol, helper.function, problem)


def compiled_objects(
    kernels: Iterable[Lowered], hardware: Hardware, memo: Memo
) -> dict[str, bytes]:
    """Object files of kernels and of what they call, by file name; `memo` keeps each of them."""
    return {
        f"{unit.symbol}.o": memo(
            unit.kind,
            unit.problem,
            partial(compile_object, {unit.symbol: unit.function}, hardware),
        )
        for unit in _units(kernels, hardware)
    }


def compiled_assembly(kernels: Iterable[Lowered], hardware: Hardware, memo: Memo) -> dict[str, str]:
    """Assembly of kernels and of what they call, by symbol; `memo` keeps each of them."""
    return {
        unit.symbol: memo(
            TEXTS[unit.kind],
            unit.problem,
            partial(_assembly, unit.symbol, unit.function, hardware),
        ).decode()
        for unit in _units(kernels, hardware)
    }


def _assembly(symbol: str, function: PrimFunc, hardware: Hardware) -> bytes:
    text = tidied(compile_assembly({symbol: function}, hardware))
    architecture = assembler_architecture(hardware)
    return (f"\t.arch\t{architecture}\n{text}" if architecture else text).encode()


def code_ingredients(hardware: Hardware) -> dict[str, Any]:
    """What of a hardware profile decides the code of a kernel whose schedule is fixed."""
    tuning = tuning_of(hardware)
    return {
        "triple": hardware.triple,
        "cpu": hardware.cpu,
        "features": list(hardware.features),
        "float_abi": hardware.float_abi,
        "isa": hardware.isa,
        **({"tuning": list(tuning)} if tuning else {}),
    }
