"""A program's layers, each with all it needs to be run alone: kernels, tensors, what must come out.

Tensors are those of one inference, as NumPy computes them (`stages.graph.interpret`): a packed
model says of every buffer what its bytes are.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.graph import interpret
from stages.kernels.packed_winograd import tiles_for
from stages.kinds import Model
from stages.packaging.emitting.kernel import TASKS, TASKS_OF_TILES
from stages.packaging.program.kernel_program import Call, Fallback, Program, Slot

Array = np.ndarray[Any, Any]
Place = tuple[str, str]
"""Kind and name of a tensor."""


@dataclass(frozen=True)
class Argument:
    """A tensor of a call, in the runner's words: c and r are read, w and t written, x was written
    by a call before."""

    kind: str
    value: str
    """A key, a number of bytes, or the number of a result."""

    def __str__(self) -> str:
        return f"{self.kind} {self.value}"


@dataclass(frozen=True)
class KernelCall:
    """A kernel on its tensors."""

    call: Call
    arguments: tuple[Argument, ...]

    def kernel(self, tiles: bool) -> Call | Fallback:
        """What runs: another kernel where the board lends no matrix tiles."""
        return self.call if tiles or self.call.fallback is None else self.call.fallback

    def tasks(self, threads: int, tiles: bool) -> int:
        """How many tasks a package splits the call into for threads, as its runtime does."""
        runs = self.kernel(tiles)
        most = runs.max_tasks
        if runs.few is not None and threads <= runs.few.threads:
            most = runs.few.tasks
        if threads == 1 or self.call.is_small:
            return 1
        each = TASKS_OF_TILES if runs is self.call and self.call.fallback else TASKS
        if each * threads < most:
            return each * threads
        return most - most % threads if most > threads else most


@dataclass(frozen=True)
class RunnableLayer:
    """The calls of a layer; with a candidate and with the predicted kernel it is timed in turns."""

    layer: str
    calls: tuple[KernelCall, ...]
    expected: tuple[bytes, ...]
    """What must come out of those tensors that are compared."""
    dtypes: tuple[str, ...]
    blobs: Mapping[str, bytes]
    """The tensors that are read, by key."""
    far_bytes: int
    """Bytes that other layers read between two runs of this one, if its weights do not stay in the
    caches; else 0."""

    @property
    def checksums(self) -> list[int]:
        """CRC-32 of what must come out."""
        return [zlib.crc32(data) for data in self.expected]

    def kernels(self) -> dict[str, int]:
        """The symbols of all kernels that may run, and how many tensors each takes."""
        found: dict[str, int] = {}
        for each in self.calls:
            for tiles in (True, False):
                found[each.kernel(tiles).symbol] = len(each.arguments)
        return found

    def define(self, number: int, threads: int, tiles: bool) -> str:
        """The runner's command that makes it the side of a number."""
        words = [f"side {number} {threads} {len(self.calls)}"]
        for each in self.calls:
            words.append(
                f"{each.kernel(tiles).symbol} {each.call.scratch_bytes} "
                f"{each.tasks(threads, tiles)} {len(each.arguments)}"
            )
            words += map(str, each.arguments)
        return " ".join(words)


def runnable_layers(
    program: Program, model: Model, inputs: Mapping[str, Array], near: int, wanted: Iterable[str]
) -> dict[str, RunnableLayer]:
    """Return layers to run; `model` is the packed one that the program was made of.

    `inputs` are one sample by name. Weights larger than `near` bytes, of the L2 cache, are far.
    """
    values: dict[str, Any] = {}
    interpret.run(model, inputs, observe=values.__setitem__)
    memory = _Memory(program, inputs, values)
    layers = set(wanted)
    starts = {tiles_for(layer): layer for layer in layers}
    found: dict[str, list[tuple[Call, dict[Slot, bytes]]]] = {}
    for call in program.calls:
        layer = starts.get(call.layer, call.layer)
        if layer in layers:
            found.setdefault(layer, []).append((call, memory.read(call)))
        memory.write(call)
    constants = sum(array.nbytes for array in program.constants.values())
    return {
        layer: _runnable_layer(layer, calls, memory, near, constants)
        for layer, calls in found.items()
    }


def _runnable_layer(
    layer: str,
    calls: list[tuple[Call, dict[Slot, bytes]]],
    memory: _Memory,
    near: int,
    constants: int,
) -> RunnableLayer:
    blobs: dict[str, bytes] = {}
    expected: list[bytes] = []
    dtypes: list[str] = []
    made: list[KernelCall] = []
    written: dict[Place, int] = {}
    weights = results = 0
    for call, read in calls:
        arguments = []
        for slot in call.reads:
            if (slot.kind, slot.name) in written:
                arguments.append(Argument("x", str(written[slot.kind, slot.name])))
                continue
            data = read[slot]
            key = hashlib.sha256(data).hexdigest()[:32]
            blobs[key] = data
            is_constant = slot.kind == "constant"
            weights += len(data) if is_constant else 0
            arguments.append(Argument("c" if is_constant else "r", key))
        values = memory.results(call)
        for place, slot in enumerate(call.writes):
            # What a layer's own transform leaves behind its tiles is nobody's business.
            is_compared = call is calls[-1][0] and place < len(values)
            size = len(values[place][0]) if is_compared else memory.size(slot)
            arguments.append(Argument("w" if is_compared else "t", str(size)))
            if is_compared:
                expected.append(values[place][0])
                dtypes.append(values[place][1])
            written[slot.kind, slot.name] = results
            results += 1
        made.append(KernelCall(call, tuple(arguments)))
    far = constants if weights > near else 0
    return RunnableLayer(layer, tuple(made), tuple(expected), tuple(dtypes), blobs, far)


class _Memory:
    """The bytes of all tensors while a program runs, of one image where it is of several."""

    def __init__(
        self, program: Program, inputs: Mapping[str, Array], values: Mapping[str, Any]
    ) -> None:
        self.program, self.values = program, values
        self.first_together = len(program.calls_per_image)
        self.kept: dict[Place, bytearray] = {}
        for name, array in program.constants.items():
            self._keep(("constant", name), array)
        for name, array in inputs.items():
            self._keep(("input", name), np.asarray(array))

    def _keep(self, place: Place, array: Array) -> None:
        self.kept[place] = bytearray(np.ascontiguousarray(array).tobytes())

    def read(self, call: Call) -> dict[Slot, bytes]:
        """What a call reads, from where each slot begins."""
        return {slot: bytes(self.kept[slot.kind, slot.name][slot.offset :]) for slot in call.reads}

    def size(self, slot: Slot) -> int:
        """Bytes of a tensor from where a slot begins."""
        return self.program.size(slot) - slot.offset

    def results(self, call: Call) -> list[tuple[bytes, str]]:
        """What a call writes but its temporaries: bytes and dtype."""
        return [(np.ascontiguousarray(a).tobytes(), a.dtype.name) for a in self._fields(call, True)]

    def write(self, call: Call) -> None:
        """Put what a call writes where later calls read it; collected tensors hold all images."""
        for slot, own, whole in zip(
            call.writes, self._fields(call, True), self._fields(call, False), strict=False
        ):
            is_collected = slot.name in self.program.collected
            data = np.ascontiguousarray(whole if is_collected else own).tobytes()
            room = self.kept.setdefault(
                (slot.kind, slot.name), bytearray(max(self.program.size(slot), len(data)))
            )
            room[slot.offset : slot.offset + len(data)] = data

    def _fields(self, call: Call, is_one_image: bool) -> Iterator[Array]:
        value = self.values[call.layer]
        is_per_image = call in self.program.calls_per_image
        for field in value if isinstance(value, tuple) else (value,):
            array = np.asarray(field)
            if is_one_image and is_per_image and self.program.images > 1:
                array = array[: len(array) // self.program.images]
            yield array
