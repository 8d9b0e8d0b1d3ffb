"""Runs a program kernel by kernel, each tensor in memory of its own, on any number of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from hw.profile import Hardware
from stages import scheduling, synthesizing
from stages.graph import interpret
from stages.kernels.signature import ALIGNMENT
from stages.kinds import Model, Table
from stages.options import LegalizeOptions
from stages.packaging.emitting.composite import LoweringInput
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.lowering import lower, row_of
from stages.packaging.program.kernel_program import Call, Fallback, Program
from stages.packaging.program_builder import program_of
from stages.packaging.sums.composed_kernel import ComposedKernel, PartChoices
from tests.compiled import Library, Placed
from tests.kept import kept
from tests.stages.pipeline import stages

Array = np.ndarray[Any, Any]
Key = tuple[str, str]
Memo = Callable[[str, Mapping[str, object], Callable[[], bytes]], bytes]


def pack(model: Model, hardware: Hardware, options: LegalizeOptions | None = None) -> Model:
    """A source model as bit-packing leaves it."""
    return stages(model, hardware, options)["bitpacking"]


def compile_program(
    packed: Model, hardware: Hardware, memo: Memo = kept, as_text: bool = False
) -> Program:
    """The compiled program of a packed model; kernels are kept for later tests."""
    bodies = synthesizing.run(model=packed, hardware=hardware, memo=kept)
    schedules = scheduling.run(model=packed, hardware=hardware, choices={})
    return program_of(packed, bodies, schedules, hardware, memo, as_text)


def uncompiled_program(packed: Model, hardware: Hardware) -> Program:
    """The program with empty objects: its calls, and what they read and write."""
    return compile_program(packed, hardware, lambda *_: b"")


def compile_at_once(
    _kind: str, _problem: Mapping[str, object], build: Callable[[], bytes]
) -> bytes:
    """An item store that stores nothing."""
    return build()


def lowered(packed: Model, hardware: Hardware) -> dict[str, Kernel]:
    """The kernels of a packed model before they are compiled, by composite."""
    bodies = synthesizing.run(model=packed, hardware=hardware, memo=kept)
    schedules = scheduling.run(model=packed, hardware=hardware, choices={})
    return {
        str(name.name_hint): lower(
            function, f"k_{name.name_hint}", schedules[name.name_hint], bodies, hardware
        )
        for name, function in packed.module.functions.items()
        if "composite" in (function.attrs or {})
    }


def compose(function: Any, schedule: Table, hardware: Hardware) -> ComposedKernel:
    """The parts that a composite's kernel is made of."""
    layer = LoweringInput(function, schedule, hardware)
    how = row_of(layer).lowering
    assert isinstance(how, PartChoices)
    return ComposedKernel(layer, "k", how)


class Executor:
    """A program linked for a processor; `run` follows its calls in order."""

    def __init__(self, program: Program, hardware: Hardware) -> None:
        self.program = program
        self.library = Library(program.objects, hardware)

    def run(self, inputs: Mapping[str, Array], tasks: int = 1) -> dict[str, Array]:
        """Outputs by name; tasks of a call run one after the other, the last one first.

        AssertionError where a kernel writes into an input, a constant or outside its outputs.
        """
        program = self.program
        runs = [self._run(program.calls_per_image, s, tasks) for s in self._images(inputs)]
        found = runs[0]
        if program.images > 1:
            found = {key: np.concatenate([run[key] for run in runs]) for key in found}
        if program.batch_call_count:
            collected = {key: value for key, value in found.items() if key[1] in program.collected}
            found |= self._run(program.calls_per_batch, collected, tasks)
        return {spec.name: found["output", spec.name] for spec in program.outputs}

    def _images(self, inputs: Mapping[str, Array]) -> list[dict[Key, Array]]:
        """The inputs of every image of a batch that was taken apart."""
        given: dict[Key, Array] = {("input", s.name): inputs[s.name] for s in self.program.inputs}
        images = self.program.images
        if images == 1:
            return [given]
        return [{key: x[at : at + 1] for key, x in given.items()} for at in range(images)]

    def _run(
        self, calls: Sequence[Call], given: Mapping[Key, Array], tasks: int
    ) -> dict[Key, Array]:
        """What the calls write, from inputs or from what images are collected in."""
        placed = self._place(calls, given, 0x5C)
        for call in calls:
            count = max(1, min(tasks, call.max_tasks))
            for task in reversed(range(count)):
                self._call(call, placed, task, count)
        found = self._fetch(placed)
        for key, value in {**given, **self._constants}.items():
            assert found[key].tobytes() == np.ascontiguousarray(value).tobytes(), key
        return {key: value for key, value in found.items() if key[0] in ("output", "buffer")}

    def written(self, inputs: Mapping[str, Array], tasks: int) -> list[list[Array]]:
        """Per call and task, which bytes of all its outputs (bool, joined) the task writes."""
        calls = self.program.calls_per_image
        one = self._images(inputs)[0]
        fills = [self._place(calls, one, fill) for fill in (0x5C, 0xA3)]
        result = []
        for call in calls:
            count = min(tasks, call.max_tasks)
            by_task = []
            for task in range(count):
                changed = []
                for placed in fills:
                    before = self._bytes(call, placed)
                    self._call(call, placed, task, count)
                    changed.append(before != self._bytes(call, placed))
                # A byte may be written with what it was filled with, but not with both fills.
                by_task.append(changed[0] | changed[1])
            result.append(by_task)
        for placed in fills:
            self._fetch(placed)
        return result

    @property
    def _constants(self) -> dict[Key, Array]:
        return {("constant", name): value for name, value in self.program.constants.items()}

    def _place(
        self, calls: Sequence[Call], given: Mapping[Key, Array], fill: int
    ) -> dict[Key, Placed]:
        """Everything in memory, what calls write filled with a byte."""
        program = self.program
        specs = {spec.name: spec for spec in program.outputs}
        values = {**given, **self._constants}
        for slot in (slot for call in calls for slot in call.writes):
            size = program.size(slot)
            if slot.kind == "buffer":
                size = program.collected.get(slot.name, size)
            garbage = np.full(size, fill, np.uint8)
            if slot.kind == "output":
                spec = specs[slot.name]
                is_share = program.images > 1 and slot.name not in program.outputs_per_batch
                shape = (1, *spec.shape[1:]) if is_share else spec.shape
                garbage = garbage.view(spec.dtype).reshape(shape)
            values[slot.kind, slot.name] = garbage
        return {key: self.library.place(value) for key, value in values.items()}

    def _call(self, call: Call, placed: Mapping[Key, Placed], task: int, count: int) -> None:
        slots = (*call.reads, *call.writes)
        pointers = [placed[slot.kind, slot.name].address + slot.offset for slot in slots]
        room = np.full(max(ALIGNMENT, call.scratch_bytes), 0x5C, np.uint8)
        scratch = self.library.place(room)
        self.library.memory.call(call.symbol, [*pointers, scratch.address, task, count])
        self._fetch({("scratch", ""): scratch})

    def _bytes(self, call: Call, placed: Mapping[Key, Placed]) -> Array:
        arrays = [placed[slot.kind, slot.name].fetch() for slot in call.writes]
        return np.concatenate([array.reshape(-1).view(np.uint8) for array in arrays])

    def _fetch(self, placed: Mapping[Key, Placed]) -> dict[Key, Array]:
        """The values now; their memory is given back."""
        found = {key: item.fetch() for key, item in placed.items()}
        for item in placed.values():
            self.library.memory.release(item.start, item.room)
        return found


def assert_exact(
    source: Model,
    inputs: Mapping[str, Array],
    hardware: Hardware,
    options: LegalizeOptions | None = None,
    tasks: tuple[int, ...] = (1, 2, 3),
    others: Sequence[Mapping[str, Array]] = (),
) -> tuple[Model, Program]:
    """Fail unless compiled kernels give the source's and the packed model's very bits.

    `others` are more inputs of the same model. Returns the packed model and its program.
    """
    packed = pack(source, hardware, options)
    program = compile_program(packed, hardware)
    executors = _executors(program, hardware)
    for each in (inputs, *others):
        expected = interpret.run(packed, each)
        for name, value in interpret.run(source, each).items():
            np.testing.assert_array_equal(expected[name], value, f"packed model, {name}")
        _assert_computed(executors, each, expected, tasks)
    return packed, program


def _assert_computed(
    executors: Sequence[Executor],
    inputs: Mapping[str, Array],
    expected: Mapping[str, Array],
    tasks: tuple[int, ...],
) -> None:
    for executor, count in product(executors, tasks):
        for name, value in executor.run(inputs, count).items():
            assert value.shape == expected[name].shape and value.dtype == expected[name].dtype
            different = np.flatnonzero(value.reshape(-1) != expected[name].reshape(-1))
            assert not different.size, (
                f"{name} on {count} tasks: {different.size} of {value.size} values differ, the "
                f"first at {different[0]}: {value.reshape(-1)[different[0]]} instead of "
                f"{expected[name].reshape(-1)[different[0]]}"
            )


def _executors(program: Program, hardware: Hardware) -> list[Executor]:
    """The program, and what it is where tiles are refused."""
    calls = [
        replace(call, symbol=other.symbol, max_tasks=other.max_tasks, fallback=None)
        for call in program.calls
        if (other := call.fallback or Fallback(call.symbol, call.max_tasks))
    ]
    programs = [program]
    if any(call.fallback for call in program.calls):
        programs.append(replace(program, calls=tuple(calls)))
    return [Executor(one, hardware) for one in programs]
