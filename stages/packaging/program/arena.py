"""The static arena: where each buffer lives, planned from lifetimes over the call order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stages.kernels.signature import ALIGNMENT
from stages.packaging.program.kernel_program import Program, Slot

SLACK = 64
"""How far past the end of a tensor a kernel may read, bytes."""

Key = tuple[str, str]
"""The kind (input, output or buffer) and the name of what lives in the arena."""


@dataclass(frozen=True)
class Item:
    """Something that lives in the arena from call `first` to call `last`, both included."""

    key: Key
    size: int
    first: int
    last: int

    def meets(self, other: Item) -> bool:
        """Whether both are alive in some call."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Arena:
    """Byte offsets of all items, and how the rest of the arena depends on the thread count."""

    offsets: dict[Key, int]
    buffer_bytes: int
    """Where the buffers end; of several images, where the buffers of one do."""
    scratch_bytes: int
    """Scratch of one thread."""
    images: int = 1
    """Images of a batch that is split; so many threads, at most, have buffers of their own."""
    begin: int = 0
    """Where the buffers of one image begin: behind those that collect all."""
    together_bytes: int = 0
    """Where the buffers of the calls end that are run once for all images."""

    @property
    def own_bytes(self) -> int:
        """Bytes of the buffers of one image."""
        return self.buffer_bytes - self.begin

    def size(self, n_threads: int) -> int:
        """Bytes of the whole arena: buffers, one scratch slice per thread, slack."""
        others = n_threads - 1 if n_threads <= self.images else 0
        buffers = max(self.buffer_bytes + others * self.own_bytes, self.together_bytes)
        return buffers + n_threads * self.scratch_bytes + SLACK


def align(size: int) -> int:
    """Round a size up to the arena's alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def lifetimes(program: Program) -> list[Item]:
    """Return what lives in the arena and when.

    Inputs and outputs are there too, for callers whose tensors kernels cannot use in place: inputs
    from before the first call, outputs until after the last. Lifetimes include both ends, so what
    a call reads never shares memory with what it writes.
    """
    uses: dict[Key, list[int]] = {}
    for index, call in enumerate(program.calls):
        for slot in (*call.reads, *call.writes):
            if slot.kind != "constant":
                uses.setdefault((slot.kind, slot.name), []).append(index)
    items = []
    for spec in program.inputs:
        if at := uses.get(("input", spec.name)):
            items.append(Item(("input", spec.name), program.share(spec), -1, max(at)))
    for spec in program.outputs:
        at = uses["output", spec.name]
        last = len(program.calls)
        size = program.size(Slot("output", spec.name))
        items.append(Item(("output", spec.name), size, min(at), last))
    for name, size in program.buffers.items():
        at = uses["buffer", name]
        items.append(Item(("buffer", name), size, min(at), max(at)))
    return items


def place(items: Iterable[Item]) -> dict[Key, int]:
    """Give each item an aligned offset: largest first, each into the tightest gap that holds it."""
    placed: list[tuple[int, Item]] = []
    for item in sorted(items, key=lambda item: (-item.size, item.first, item.key)):
        taken = sorted(
            (offset, offset + align(other.size)) for offset, other in placed if item.meets(other)
        )
        placed.append((_tightest_gap(taken, align(item.size)), item))
    return {item.key: offset for offset, item in placed}


def plan(program: Program) -> Arena:
    """Plan the arena of a program; equal programs give equal plans.

    What the calls use that are run once for all images lies where buffers of single images lay,
    except for what collects the images.
    """
    collected = {("buffer", name) for name in program.collected}
    first = len(program.calls_per_image)
    own: list[Item] = []
    shared: list[Item] = []
    for item in lifetimes(program):
        (shared if item.key in collected or item.first >= first else own).append(item)
    offsets = place(shared)
    begin = _end((item for item in shared if item.key in collected), offsets)
    together = _end(shared, offsets)
    offsets |= {key: begin + offset for key, offset in place(own).items()}
    end = max(begin, _end(own, offsets))
    scratch = max((align(call.scratch_bytes) for call in program.calls), default=0)
    return Arena(offsets, end, scratch, program.images, begin, together)


def _end(items: Iterable[Item], offsets: dict[Key, int]) -> int:
    return max((offsets[item.key] + align(item.size) for item in items), default=0)


def _tightest_gap(taken: list[tuple[int, int]], size: int) -> int:
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        gap = start - end
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, stop)
    return end if best is None else best[1]
