"""Every kernel of a package alone, on its own tensors, beside the processor's measured peak."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hw.profile import Hardware
from pipelines.execute import Workshop
from pipelines.measuring.peaks import least_seconds, linked
from pipelines.runners.native import aligned
from stages.packaging.graph import program_of
from stages.packaging.program import Call, Program, Slot
from stages.qnn.builder import bindings_of
from stages.qnn.packed import parse_signature
from stages.qnn.registry import attributes, is_op, shape_of

Array = np.ndarray[Any, Any]
RUNS = 15
_SLACK = 64
_PACKED = "relax.qnn.packed_conv2d"
_OUTPUT_AXIS = {
    "relax.qnn.direct_conv2d": -1,
    "relax.qnn.direct_dense": -1,
    "relax.matmul": -1,
    "relax.nn.conv2d": 0,
    "relax.qnn.conv2d": 0,
}
"""Products in plain kernels → where the output channels are in their weights."""


@dataclass(frozen=True)
class Work:
    """What a kernel multiplies."""

    how: str
    """`mac8`, `popcount` or `lookup`; `plain` for loops of tensor expressions."""
    macs: int
    popcounts: int
    """Popcounts a pair of operands, for `popcount`."""


def times(
    workshop: Workshop, hardware: Hardware, inputs: Mapping[str, Array]
) -> list[dict[str, Any]]:
    """Return layer, work and seconds of one thread for every call of a package, in order.

    The kernels run once one after the other, so that each has its true tensors, and are then timed
    alone: operands that fit are in the caches, as they are not quite in a whole inference.
    """
    plan = workshop.plan
    model = workshop.load(plan.step("bitpacking"))
    bodies, schedules = (workshop.load(plan.step(name)) for name in ("synthesizing", "tuning"))
    memo = workshop.memo(plan.step("packaging"))
    program = program_of(model, bodies, schedules, hardware, memo)
    library = linked(program.objects)
    memory = _Memory(program, inputs)
    work = works(model)
    rows = []
    for call in program.calls:
        arguments = memory.arguments(call)
        entry = getattr(library, call.symbol)
        entry(*arguments)
        found = work.get(call.layer, Work("plain", 0, 0))
        rows.append(
            {"layer": call.layer, "how": found.how, "macs": found.macs,
             "popcounts": found.popcounts, "seconds": least_seconds(entry, arguments, RUNS)}
        )  # fmt: skip
    return rows


def works(model: Any) -> dict[str, Work]:
    """Return what each call of a bit-packed model multiplies, by its name."""
    found = {}
    for binding in bindings_of(model.module["main"]):
        function = model.module.functions.get(getattr(binding.value, "op", None))
        for inner in bindings_of(function) if function is not None else ():
            work = _work(inner.value)
            if work is not None:
                found[str(binding.var.name)] = work
    return found


def _work(call: Any) -> Work | None:
    if is_op(call, _PACKED):
        attrs = attributes(call)
        signature = parse_signature(attrs["signature"])
        channels, outputs = attrs["channels"]
        macs = prod(attrs["window"]) * channels * outputs * prod(attrs["output"])
        terms = len(signature.plan.terms) if signature.plan else 0
        return Work(signature.family, macs, terms)
    axis = next((axis for name, axis in _OUTPUT_AXIS.items() if is_op(call, name)), None)
    if axis is None:
        return None
    weight = shape_of(call.args[1].ty)
    if is_op(call, "relax.matmul"):
        weight = weight[-2:]  # what stands before are batches
    return Work("plain", prod(shape_of(call.ty)) * prod(weight) // weight[axis], 0)


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
