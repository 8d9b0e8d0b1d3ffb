"""The program a package runs: kernels in call order over named buffers; nothing of TVM is left."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from stages.kernels.signature import ALIGNMENT
from stages.packaging.emitting.kernel import FewThreads

SlotKind = Literal["input", "output", "buffer", "constant"]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_C_TYPES = {
    "bool": "uint8_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "float16": "uint16_t",
    "float32": "float",
    "float64": "double",
}


class ProgramError(ValueError):
    """A program that contradicts itself: a fault of the stage that built it, not of the user."""


@dataclass(frozen=True)
class TensorSpec:
    """A graph input or output as the user sees it; row-major, without padding."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    quantization: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.dtype not in _C_TYPES:
            raise ProgramError(
                f"tensor {self.name!r} has dtype {self.dtype!r}; accepted: {', '.join(_C_TYPES)}"
            )
        if any(extent <= 0 for extent in self.shape):
            raise ProgramError(
                f"tensor {self.name!r} has shape {self.shape}; every extent must be positive"
            )

    @property
    def elements(self) -> int:
        """How many elements the tensor has; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the tensor in bytes."""
        return self.elements * np.dtype(self.dtype).itemsize

    @property
    def c_type(self) -> str:
        """The C type of one element; float16 travels as its 16 bits."""
        return _C_TYPES[self.dtype]


@dataclass(frozen=True)
class Slot:
    """What one pointer argument of a kernel points to, `offset` bytes in.

    Only the base of an input, output, buffer or constant is 64-byte aligned by the package: an
    offset that is no multiple of 64 is the caller's choice.
    """

    kind: SlotKind
    name: str
    offset: int = 0


@dataclass(frozen=True)
class Call:
    """One kernel call: `symbol(reads…, writes…, scratch, task, n_tasks)`.

    `layer` names the layer for people. Each thread has `scratch_bytes` of its own, 64-byte aligned;
    `max_tasks` is the largest `n_tasks` the kernel can use, `few` where fewer are better for few
    threads; what `is_small` is not worth sharing. A kernel with a `fallback` uses tiles (AMX),
    which the operating system may refuse.
    """

    symbol: str
    layer: str
    reads: tuple[Slot, ...]
    writes: tuple[Slot, ...]
    scratch_bytes: int
    max_tasks: int
    fallback: Fallback | None = None
    is_small: bool = False
    few: FewThreads | None = None

    @property
    def is_alone(self) -> bool:
        """Whether one thread makes it."""
        others = self.fallback.max_tasks if self.fallback else 1
        return self.is_small or max(self.max_tasks, others) == 1


@dataclass(frozen=True)
class Fallback:
    """The kernel that a call runs instead, on the same tensors."""

    symbol: str
    max_tasks: int
    few: FewThreads | None = None


@dataclass(frozen=True)
class Program:
    """A whole graph: tensors, buffers (bytes), constants, calls in order, and kernel objects.

    `objects` maps file names to relocatable ELF objects for the target; every kernel in them has
    the plain C ABI `void f(const void *r0, …, void *w0, …, void *scratch, int32_t, int32_t)`.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    buffers: Mapping[str, int]
    constants: Mapping[str, np.ndarray]
    calls: tuple[Call, ...]
    objects: Mapping[str, bytes]
    images: int = 1
    """Times that calls are run, each for its share of every input and output: they are of one
    image of a batch."""
    batch_call_count: int = 0
    """So many calls, the last ones, are run once for the whole batch. They read none of the inputs,
    and the buffers that others hand over to them hold all images, one behind the other."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Kernels as assembly, by symbol: those of which there are no objects yet."""

    def __post_init__(self) -> None:
        faults = [
            *self._name_faults(),
            *self._call_faults(),
            *self._flow_faults(),
            *self._batch_faults(),
        ]
        if faults:
            raise ProgramError("the program contradicts itself: " + "; ".join(faults))

    @property
    def uses_tiles(self) -> bool:
        """Whether a kernel uses tiles (AMX)."""
        return any(call.fallback is not None for call in self.calls)

    @property
    def calls_per_image(self) -> tuple[Call, ...]:
        """The calls that are run for each image."""
        return self.calls[: len(self.calls) - self.batch_call_count]

    @property
    def calls_per_batch(self) -> tuple[Call, ...]:
        """The calls that are run once, after all the others."""
        return self.calls[len(self.calls) - self.batch_call_count :]

    @property
    def collected(self) -> dict[str, int]:
        """The buffers in which images are handed over to the calls that are run once → bytes of
        one image."""
        written = {slot for call in self.calls_per_image for slot in call.writes}
        read = (slot for call in self.calls_per_batch for slot in call.reads)
        names = dict.fromkeys(s.name for s in read if s.kind == "buffer" and s in written)
        return {name: self.buffers[name] // self.images for name in names}

    @property
    def outputs_per_batch(self) -> frozenset[str]:
        """The outputs that are written for the whole batch at once."""
        slots = (slot for call in self.calls_per_batch for slot in call.writes)
        return frozenset(slot.name for slot in slots if slot.kind == "output")

    def share(self, spec: TensorSpec) -> int:
        """Bytes of an input or output that belong to one image."""
        return spec.nbytes // self.images

    def size(self, slot: Slot) -> int:
        """Size in bytes of the whole tensor, buffer or constant that a slot points into."""
        return self._sizes()[slot.kind, slot.name]

    def _sizes(self) -> dict[tuple[SlotKind, str], int]:
        sizes: dict[tuple[SlotKind, str], int] = {}
        sizes |= {("input", spec.name): self.share(spec) for spec in self.inputs}
        whole = self.outputs_per_batch
        for spec in self.outputs:
            size = spec.nbytes if spec.name in whole else self.share(spec)
            sizes["output", spec.name] = size
        sizes |= {("buffer", name): size for name, size in self.buffers.items()}
        sizes |= {("constant", name): data.nbytes for name, data in self.constants.items()}
        return sizes

    def _name_faults(self) -> Iterator[str]:
        for what, specs in (("input", self.inputs), ("output", self.outputs)):
            names = [spec.name for spec in specs]
            for name in sorted({name for name in names if names.count(name) > 1}):
                yield f"two {what}s are named {name!r}"
        if not self.outputs:
            yield "it has no output"
        for name, size in self.buffers.items():
            if size <= 0:
                yield f"buffer {name!r} has {size} bytes"
        for name, data in self.constants.items():
            if data.nbytes == 0:
                yield f"constant {name!r} is empty"
        for name in self.objects:
            if "/" in name or not name.endswith(".o"):
                yield f"object {name!r} is not a plain file name ending in .o"

    def _call_faults(self) -> Iterator[str]:
        sizes = self._sizes()
        arity: dict[str, tuple[int, int]] = {}
        for call in self.calls:
            where = f"call of {call.symbol} ({call.layer})"
            if not _IDENTIFIER.match(call.symbol):
                yield f"{where}: the symbol is no C identifier"
            shape = (len(call.reads), len(call.writes))
            if arity.setdefault(call.symbol, shape) != shape:
                yield f"{where}: takes {shape} reads and writes, earlier {arity[call.symbol]}"
            if not call.writes:
                yield f"{where}: writes nothing"
            if call.max_tasks < 1 or call.scratch_bytes < 0:
                yield f"{where}: max_tasks={call.max_tasks}, scratch_bytes={call.scratch_bytes}"
            for slot in (*call.reads, *call.writes):
                size = sizes.get((slot.kind, slot.name))
                if size is None:
                    yield f"{where}: no {slot.kind} is named {slot.name!r}"
                elif not 0 <= slot.offset < size:
                    yield f"{where}: offset {slot.offset} into {slot.name!r} of {size} bytes"
            for slot in call.writes:
                if slot.kind in ("input", "constant"):
                    yield f"{where}: writes {slot.kind} {slot.name!r}"
            read = {(slot.kind, slot.name) for slot in call.reads}
            for kind, name in sorted(read & {(slot.kind, slot.name) for slot in call.writes}):
                yield f"{where}: reads and writes {kind} {name!r}"

    def _batch_faults(self) -> Iterator[str]:
        if self.images == 1:
            if self.batch_call_count:
                yield "calls are to be run once for a batch that is none"
            return
        whole = self.outputs_per_batch
        per_image = [("output", spec) for spec in self.outputs if spec.name not in whole]
        for what, spec in [*(("input", spec) for spec in self.inputs), *per_image]:
            if spec.shape[:1] != (self.images,):
                yield f"{what} {spec.name!r} is not of {self.images} images"
        for name in self.collected:
            if self.buffers[name] % (self.images * ALIGNMENT):
                yield f"buffer {name!r} of {self.images} images has {self.buffers[name]} bytes"
        for call in self.calls_per_batch:
            where = f"call of {call.symbol} ({call.layer})"
            for slot in call.reads:
                if slot.kind == "input" or (slot.kind == "output" and slot.name not in whole):
                    yield f"{where}: reads {slot.kind} {slot.name!r} of all images at once"
        for call in self.calls_per_image:
            if any(slot.kind == "output" and slot.name in whole for slot in call.writes):
                yield f"call of {call.symbol} ({call.layer}): writes an output of all images"

    def _flow_faults(self) -> Iterator[str]:
        written: set[tuple[SlotKind, str]] = set()
        for call in self.calls:
            for slot in call.reads:
                if slot.kind in ("buffer", "output") and (slot.kind, slot.name) not in written:
                    yield (
                        f"call of {call.symbol} ({call.layer}): reads {slot.kind} {slot.name!r}, "
                        "which nothing has written yet"
                    )
            written |= {(slot.kind, slot.name) for slot in call.writes}
        for name in self.buffers:
            if ("buffer", name) not in written:
                yield f"buffer {name!r} is never written"
        for spec in self.outputs:
            if ("output", spec.name) not in written:
                yield f"output {spec.name!r} is never written"
