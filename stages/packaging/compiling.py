"""Compiles the kernels of a program, each by its own problem, into objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hw.profile import Hardware
from stages.codegen import compile_object, tuning_of
from stages.packaging.kernel import Kernel

Memo = Callable[[str, Mapping[str, object], Callable[[], bytes]], bytes]
ITEM, HELPER = "kernel", "sums"


@dataclass(frozen=True)
class Lowered:
    """A kernel that is not compiled yet."""

    symbol: str
    kernel: Kernel
    problem: Mapping[str, Any]
    """All that decides its code, as plain JSON data."""


def compiled(kernels: Iterable[Lowered], hardware: Hardware, memo: Memo) -> dict[str, bytes]:
    """Object files of kernels and of what they call, by file name; `memo` keeps each of them."""
    objects: dict[str, bytes] = {}
    for lowered in kernels:
        symbol, kernel = lowered.symbol, lowered.kernel
        objects[f"{symbol}.o"] = memo(
            ITEM,
            {**lowered.problem, "symbol": symbol},
            partial(compile_object, {symbol: kernel.function}, hardware),
        )
        for helper in kernel.helpers:
            # In an object of its own, or LLVM would put it into the kernel.
            objects[f"{helper.symbol}.o"] = memo(
                HELPER,
                {**helper.problem, "hardware": code_ingredients(hardware)},
                partial(compile_object, {helper.symbol: helper.function}, hardware),
            )
    return objects


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
