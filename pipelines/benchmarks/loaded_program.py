"""A package's program in this process: every kernel can be run alone, on its true tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from hw import host
from hw.profile import Hardware
from pipelines.benchmarks.peaks import linked
from pipelines.builds.plan import Plan, Step
from pipelines.runners.native import aligned
from pipelines.store.items import Memo
from stages.packaging.program.kernel_program import Call, Program, Slot
from stages.packaging.program_builder import program_of

Array = np.ndarray[Any, Any]
_SLACK = 64


class Steps(Protocol):
    """Where the artifacts of a plan come from."""

    plan: Plan

    def load(self, step: Step) -> Any:
        """What a step gives."""

    def memo(self, step: Step) -> Memo:
        """The items of a step."""


class LoadedProgram:
    """The kernels of a program, after each ran once, one after the other.

    What is then timed has its operands in the caches if they fit, as they are not quite in a whole
    inference.
    """

    def __init__(self, program: Program, inputs: Mapping[str, Array]) -> None:
        self.program = program
        self._memory = _Memory(program, inputs)
        self._library = linked(program.objects)
        for call in program.calls:
            entry, arguments = self.kernel(call)
            entry(*arguments)

    def kernel(self, call: Call) -> tuple[Any, list[Any]]:
        """Return the function of a call, and what it is given as its only task."""
        symbol = call.symbol
        if call.fallback is not None and not host.may_use_tiles():
            symbol = call.fallback.symbol
        return getattr(self._library, symbol), self._memory.arguments(call)


def loaded(steps: Steps, hardware: Hardware, inputs: Mapping[str, Array]) -> LoadedProgram:
    """Return the program of built steps, compiled, linked and run once."""
    plan = steps.plan
    model = steps.load(plan.step("bitpacking"))
    bodies, schedules = (steps.load(plan.step(name)) for name in ("synthesizing", "scheduling"))
    memo = steps.memo(plan.step("packaging"))
    program = program_of(model, bodies, schedules, hardware, memo)
    return LoadedProgram(program, inputs)


class _Memory:
    """The tensors of a program, where its kernels find them."""

    def __init__(self, program: Program, inputs: Mapping[str, Array]) -> None:
        self._kept: dict[tuple[str, str], Array] = {}
        for name, value in (*inputs.items(), *program.constants.items()):
            kind = "input" if name in inputs else "constant"
            self._place(kind, name, np.ascontiguousarray(value).tobytes())
        for spec in program.outputs:
            self._place("output", spec.name, bytes(spec.nbytes))
        for name, size in program.buffers.items():
            self._place("buffer", name, bytes(size))
        most = max(call.scratch_bytes for call in program.calls)
        self._scratch = aligned(most + _SLACK)

    def _place(self, kind: str, name: str, data: bytes) -> None:
        room = aligned(len(data) + _SLACK)
        room[: len(data)] = np.frombuffer(data, np.uint8)
        self._kept[kind, name] = room

    def arguments(self, call: Call) -> list[Any]:
        """What a call is given, as its only task."""
        pointers = [self._pointer(slot) for slot in (*call.reads, *call.writes)]
        scratch = ctypes.c_void_p(self._scratch.ctypes.data)
        return [*pointers, scratch, ctypes.c_int32(0), ctypes.c_int32(1)]

    def _pointer(self, slot: Slot) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._kept[slot.kind, slot.name].ctypes.data + slot.offset)
