"""The caches of memory.h once more, in plain Python: ordered dictionaries in place of stamps."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

from pipelines.modelling.memory import Memory

PAGE = 4096


@dataclass
class Line:
    """What a cache knows of a line."""

    way: int
    dirty: bool
    origin: str | None = None


class Level:
    """A set is an ordered dictionary of its lines, the least recently used one first."""

    def __init__(self, kib: int, ways: int, line: int) -> None:
        self.ways = ways
        self.sets: list[OrderedDict[int, Line]] = [
            OrderedDict() for _ in range(kib * 1024 // line // ways)
        ]

    def find(self, line: int) -> Line | None:
        held = self.sets[line % len(self.sets)]
        if line in held:
            held.move_to_end(line)
        return held.get(line)

    def put(self, line: int, entry: Line, victim: int | None) -> tuple[int, Line] | None:
        """Put a line, and return the one that it displaced; `victim` is the way to be taken."""
        held = self.sets[line % len(self.sets)]
        gone = None
        if len(held) == self.ways:
            oldest = next(iter(held))
            key = next((k for k, v in held.items() if v.way == victim), oldest)
            gone = (key, held.pop(key))
        taken = {other.way for other in held.values()}
        entry.way = next(way for way in range(self.ways) if way not in taken)
        held[line] = entry
        return gone


class Caches:
    """Two levels and the streams."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.first = Level(memory.l1_kib, memory.l1_ways, memory.line)
        self.second = Level(memory.l2_kib, memory.l2_ways, memory.line)
        self.events: Counter[str] = Counter()
        self.streams: list[tuple[int, int, int]] = []  # last line, stride, count; oldest first
        self.seed = 1

    def access(self, at: int, size: int, stores: bool) -> None:
        for line in range(at // self.memory.line, (at + size - 1) // self.memory.line + 1):
            held = self.first.find(line)
            if held:
                origin, held.origin = held.origin, None
                held.dirty |= stores
                if origin is None:
                    continue
                self.events[f"ahead_{origin}"] += 1
            else:
                where = self.fetch(line, stores, ahead=False)
                self.events[f"{'stores' if stores else 'loads'}_{where}"] += 1
            if self.memory.streams:
                self.train(line)

    def fetch(self, line: int, dirty: bool, ahead: bool) -> str:
        where = "l2"
        if not self.second.find(line):
            where = "memory"
            self.events["moved_memory"] += 1
            self.fill_second(line, False)
        self.events["moved_l2"] += 1
        victim = self.victim(self.first, line)
        held = self.first.sets[line % len(self.first.sets)]
        if len(held) == self.first.ways:
            key = next((k for k, v in held.items() if v.way == victim), next(iter(held)))
            if held[key].dirty:
                self.events["moved_l2"] += 1
                below = self.second.find(key)
                if below:
                    below.dirty = True
                else:
                    self.fill_second(key, True)
        self.first.put(line, Line(0, dirty, where if ahead else None), victim)
        return where

    def fill_second(self, line: int, dirty: bool) -> None:
        gone = self.second.put(line, Line(0, dirty), self.victim(self.second, line))
        self.events["moved_memory"] += gone is not None and gone[1].dirty

    def victim(self, level: Level, line: int) -> int | None:
        """The way that the pseudo-random sequence picks, where the set is full."""
        if not self.memory.random or len(level.sets[line % len(level.sets)]) < level.ways:
            return None
        for shift in (13, -17, 5):
            moved = self.seed << shift if shift > 0 else self.seed >> -shift
            self.seed = (self.seed ^ moved) & 0xFFFFFFFF
        return self.seed % level.ways

    def train(self, line: int) -> None:
        near = [s for s in self.streams if 0 < abs(line - s[0]) <= self.memory.reach]
        if not near:
            if len(self.streams) == self.memory.streams:
                self.streams.pop(0)
            self.streams.append((line, 0, 0))
            return
        last, stride, count = near[-1]
        self.streams.remove(near[-1])
        step = line - last
        count = count + 1 if step == stride else 1
        self.streams.append((line, step, count))
        if count < self.memory.train:
            return
        for k in range(1, self.memory.distance + 1):
            ahead = line + k * step
            if ahead * self.memory.line // PAGE != line * self.memory.line // PAGE:
                return
            if not self.first.find(ahead):
                self.fetch(ahead, False, ahead=True)
