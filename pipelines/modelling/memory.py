"""The caches that a counted run is simulated with: see memory.h for what they do."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Memory:
    """Two levels of data cache and a prefetcher of streams; a size of 0 simulates nothing."""

    l1_kib: int
    l1_ways: int
    l2_kib: int
    l2_ways: int
    line: int = 64
    random: bool = False
    """Whether victims are picked at random, by a fixed sequence, instead of the least recent."""
    streams: int = 0
    """Streams that the prefetcher tracks; 0 for none."""
    train: int = 2
    """Equal strides after which it fetches ahead."""
    distance: int = 4
    """Lines that it fetches ahead."""
    reach: int = 4
    """The longest stride, in lines, up or down."""

    def options(self) -> str:
        """The plugin's options."""
        return ",".join(f"{name}={int(value)}" for name, value in asdict(self).items())


NO_MEMORY = Memory(0, 0, 0, 0)
"""Counts blocks alone, some five times faster."""
