"""What a counted run consists of: blocks of machine code, and what their loads and stores met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Events:
    """Lines of cache that a block's loads and stores met, over all of its executions.

    The order of the fields is that of `enum event` in memory.h.
    """

    loads_l2: int = 0
    """Loads of a line that the L2 cache had."""
    loads_memory: int = 0
    """Loads of a line that no cache had."""
    stores_l2: int = 0
    stores_memory: int = 0
    ahead_l2: int = 0
    """First uses of a line that had been prefetched from the L2 cache."""
    ahead_memory: int = 0
    """First uses of a line that had been prefetched from memory."""
    moved_l2: int = 0
    """Lines moved between the two caches: fetched, prefetched or written back."""
    moved_memory: int = 0
    """Lines moved between the L2 cache and memory, likewise."""

    def __add__(self, other: Events) -> Events:
        return Events(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Block:
    """A block of machine code as the emulator translated it, and how often it ran."""

    address: int
    instructions: int
    count: int
    code: bytes
    events: Events = Events()

    @property
    def executed(self) -> int:
        """Instructions executed in it."""
        return self.instructions * self.count

    @property
    def l1_misses(self) -> int:
        """Lines that its loads and stores did not find in the L1 cache, prefetches aside."""
        found = self.events
        return found.loads_l2 + found.stores_l2 + self.l2_misses

    @property
    def l2_misses(self) -> int:
        """Lines, of these, that the L2 cache did not have either."""
        return self.events.loads_memory + self.events.stores_memory


Interval = tuple[Block, ...]
"""What ran between two marks."""


def executed(blocks: Iterable[Block]) -> int:
    """Instructions executed in some blocks."""
    return sum(block.executed for block in blocks)


def events(blocks: Iterable[Block]) -> Events:
    """What the loads and stores of some blocks met, together."""
    return sum((block.events for block in blocks), Events())


def joined(blocks: Iterable[Block]) -> list[Block]:
    """Blocks of A64, with what the emulator took apart where there is no branch in one.

    It does so at the end of a page, and where its own code becomes too long; a core does neither.
    What ran as often as the parts in front of it together ran after one of these each time.
    """
    ordered = sorted(blocks, key=lambda block: block.address)
    starts = Counter(block.address for block in ordered)
    found: list[Block] = []
    ends: dict[int, list[int]] = {}
    for block in ordered:
        fronts = ends.pop(block.address, [])
        is_rest = sum(found[number].count for number in fronts) == block.count
        if is_rest and starts[block.address] == 1:
            most = max(fronts, key=lambda number: found[number].count)
            for number in fronts:
                found[number] = _whole(found[number], block, number == most)
        else:
            fronts = [len(found)]
            found.append(block)
        if not _branches(block.code):
            ends.setdefault(block.address + len(block.code), []).extend(fronts)
    return found


def _branches(code: bytes) -> bool:
    """Whether A64 code ends in a branch, or calls the system: 101 in bits 28 to 26."""
    return code[-1] >> 2 & 7 == 0b101


def _whole(front: Block, rest: Block, has_events: bool) -> Block:
    """A block that ends in the rest of it, with all that this met or nothing of it."""
    events = front.events + rest.events if has_events else front.events
    code, count = front.code + rest.code, front.instructions + rest.instructions
    return Block(front.address, count, front.count, code, events)
