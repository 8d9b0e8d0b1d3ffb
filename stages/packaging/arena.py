"""The static arena: where each buffer lives, planned from lifetimes over the call order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stages.packaging.program import Program

ALIGNMENT = 64
"""Alignment of every buffer and constant, bytes."""
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
    scratch_bytes: int
    """Scratch of one thread."""
    pictures: int = 1
    """Of a batch that was taken apart; so many threads, at most, have buffers of their own."""

    def size(self, n_threads: int) -> int:
        """Bytes of the whole arena: buffers, one scratch slice per thread, slack."""
        copies = n_threads if n_threads <= self.pictures else 1
        return copies * self.buffer_bytes + n_threads * self.scratch_bytes + SLACK


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
        items.append(Item(("output", spec.name), program.share(spec), min(at), last))
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
    """Plan the arena of a program; equal programs give equal plans."""
    items = lifetimes(program)
    offsets = place(items)
    end = max((offsets[item.key] + align(item.size) for item in items), default=0)
    scratch = max((align(call.scratch_bytes) for call in program.calls), default=0)
    return Arena(offsets, end, scratch, program.pictures)


def _tightest_gap(taken: list[tuple[int, int]], size: int) -> int:
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        gap = start - end
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, stop)
    return end if best is None else best[1]
