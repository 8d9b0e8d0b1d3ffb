"""Runs a program's kernels one by one, each tensor in memory of its own, for any number of tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hw.profile import Hardware
from stages import bitpacking, canonicalizing, legalizing, quantizing, synthesizing, tuning
from stages.kinds import Model
from stages.options import LegalizeOptions, ScheduleOptions
from stages.packaging.arena import ALIGNMENT
from stages.packaging.graph import program_of
from stages.packaging.program import Program, Slot
from stages.qnn import interpret
from tests.compiled import Library, Placed

Array = np.ndarray[Any, Any]
Key = tuple[str, str]
_objects: dict[str, bytes] = {}


def pack(model: Model, hardware: Hardware, options: LegalizeOptions | None = None) -> Model:
    """A source model as bit-packing leaves it."""
    model = quantizing.run(model=model)
    model = legalizing.run(model=model, options=options or LegalizeOptions(), hardware=hardware)
    return bitpacking.run(model=canonicalizing.run(model=model), hardware=hardware)


def compile_program(packed: Model, hardware: Hardware) -> Program:
    """The compiled program of a packed model; kernels are kept for later tests."""

    def memo(kind: str, problem: Mapping[str, object], build: Callable[[], bytes]) -> bytes:
        key = json.dumps([kind, problem], sort_keys=True)
        if key not in _objects:
            _objects[key] = build()
        return _objects[key]

    bodies = synthesizing.run(model=packed, hardware=hardware)
    schedules = tuning.run(model=packed, options=ScheduleOptions(), hardware=hardware)
    return program_of(packed, bodies, schedules, hardware, memo)


class Executor:
    """A program linked for a processor; `run` follows its calls in order."""

    def __init__(self, program: Program, hardware: Hardware) -> None:
        self.program = program
        self.library = Library(program.objects, hardware)

    def run(self, inputs: Mapping[str, Array], tasks: int = 1) -> dict[str, Array]:
        """Outputs by name; tasks of a call run one after the other, the last one first.

        AssertionError where a kernel writes into an input, a constant or outside its outputs.
        """
        program, library = self.program, self.library
        given: dict[Key, Array] = {("input", s.name): inputs[s.name] for s in program.inputs}
        given |= {("constant", name): value for name, value in program.constants.items()}
        placed = {key: library.place(value) for key, value in given.items()}
        for name, size in program.buffers.items():
            placed["buffer", name] = library.place(np.full(size, 0x5C, np.uint8))
        for spec in program.outputs:
            placed["output", spec.name] = library.place(np.full(spec.shape, 7, spec.dtype))
        for call in program.calls:
            count = max(1, min(tasks, call.max_tasks))
            pointers = [_address(placed, slot) for slot in (*call.reads, *call.writes)]
            room = max(ALIGNMENT, call.scratch_bytes)
            for task in reversed(range(count)):
                scratch = library.place(np.full(room, 0x5C, np.uint8))
                words = [*pointers, scratch.address, task, count]
                library.memory.call(call.symbol, words)
                scratch.fetch()
                library.memory.release(scratch.start, scratch.room)
        found = {key: item.fetch() for key, item in placed.items()}
        for item in placed.values():
            library.memory.release(item.start, item.room)
        for key, value in given.items():
            assert found[key].tobytes() == np.ascontiguousarray(value).tobytes(), key
        return {spec.name: found["output", spec.name] for spec in program.outputs}


def _address(placed: Mapping[Key, Placed], slot: Slot) -> int:
    return placed[slot.kind, slot.name].address + slot.offset


def assert_exact(
    source: Model,
    inputs: Mapping[str, Array],
    hardware: Hardware,
    options: LegalizeOptions | None = None,
    tasks: tuple[int, ...] = (1, 2, 3),
) -> Model:
    """Fail unless compiled kernels give the source's and the packed model's very bits."""
    packed = pack(source, hardware, options)
    expected = interpret.run(packed, inputs)
    executor = Executor(compile_program(packed, hardware), hardware)
    for name, value in interpret.run(source, inputs).items():
        np.testing.assert_array_equal(expected[name], value, f"packed model, {name}")
    for count in tasks:
        for name, value in executor.run(inputs, count).items():
            assert value.shape == expected[name].shape and value.dtype == expected[name].dtype
            different = np.flatnonzero(value.reshape(-1) != expected[name].reshape(-1))
            assert not different.size, (
                f"{name} on {count} tasks: {different.size} of {value.size} values differ, the "
                f"first at {different[0]}: {value.reshape(-1)[different[0]]} instead of "
                f"{expected[name].reshape(-1)[different[0]]}"
            )
    return packed
