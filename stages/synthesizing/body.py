"""What a micro-kernel's loops are built around: passes over a window, and flushing counters."""

from __future__ import annotations

from dataclasses import dataclass

from hw.isa import Vector
from stages.synthesizing.vector_program import Program


@dataclass(frozen=True)
class Pass:
    """One pass over the window: what a word adds to the counters, and what becomes of them."""

    coefficient: int
    word: Program
    """One word: from `a{plane}.{m}` (broadcast), `w{plane}.{n}` and `c{m}.{n}` to `c{m}.{n}`."""
    carried: int
    """What the counters of the pass before are multiplied by; 0 if they start from nothing."""
    ends_chain: bool
    """Whether the counters, times the coefficient, are added to the sums afterwards."""


@dataclass(frozen=True)
class Body:
    """Everything a micro-kernel's loops are built around.

    Registers of counters `c{m}.{n}` belong to pixel `m`, or to `pixels` of them from `m * distance`
    on; `registers_per_flush` neighbouring ones are flushed at a time, into `registers` registers of
    sums.
    """

    passes: tuple[Pass, ...]
    flush: Program
    """Counters `c0` … as 32-bit lanes `s0` …: what flushing them computes."""
    pixels: int = 1
    """Neighbouring pixels whose counters share a register, one behind the other."""
    distance: int = 1
    """Pixels from a register to the next; where that is less, two have the same ones in between."""
    carried_bits: int = 0
    """How many of the counters that are flushed at a time, the first ones, are no numbers but bits
    that full adders carry from step to step."""

    @property
    def registers_per_flush(self) -> int:
        """Registers of counters that are flushed at a time."""
        return len(self.flush.inputs)

    def counter(self, n: int) -> Vector:
        """The type of every register of counters `c{m}.{n}`."""
        return self.flush.types[f"c{n % self.registers_per_flush}"]

    def is_bits(self, n: int) -> bool:
        """Whether registers of counters `c{m}.{n}` hold carried bits."""
        return n % self.registers_per_flush < self.carried_bits

    @property
    def registers(self) -> int:
        """Registers of sums that the registers of counters are flushed into."""
        return len(self.flush.outputs)

    def columns(self, channels: int, lanes: int) -> int:
        """How many times counters are flushed for one pixel of a tile of `channels`."""
        return channels // (lanes * self.registers)

    def counters(self, rows: int, channels: int, lanes: int) -> list[tuple[int, int]]:
        """Pixel and number of every register of counters of a tile, in order."""
        count = self.columns(channels, lanes) * self.registers_per_flush
        places = (rows - self.pixels) // self.distance + 1
        return [(m, n) for m in range(places) for n in range(count)]
