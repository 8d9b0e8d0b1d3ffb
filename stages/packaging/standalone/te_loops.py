"""The loops of a function of tensor expressions (TE), and what blocks compute in them."""

from __future__ import annotations

from math import gcd, prod
from typing import Any

import numpy as np
from tvm import s_tir, tirx

from stages.nodes import Buffer, LoopRV, PrimFunc, SBlockRV

LEAST, LEAST_WIDE = 8, 4
"""Lanes of a vector at least, if there are as many; of values of twice the size."""


class LoopSchedule:
    """TIR's schedule, that may leave loops as they are where it is told to vectorize them."""

    def __init__(self, function: PrimFunc, vectors: bool) -> None:
        self._schedule, self._vectors = s_tir.Schedule(function), vectors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._schedule, name)

    def vectorize(self, loop: LoopRV) -> None:
        """Mark a loop, if vectors are wanted."""
        if self._vectors:
            self._schedule.vectorize(loop)


def blocks_of(schedule: LoopSchedule) -> list[SBlockRV]:
    """All blocks of a function, in order."""
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def is_reduction(schedule: LoopSchedule, block: SBlockRV) -> bool:
    """Whether a block sums something up, or compares it, along an axis."""
    kinds = {int(axis.iter_type) for axis in schedule.get(block).iter_vars}
    return kinds != {int(tirx.IterVar.DataPar)} and bool(kinds)


def outputs_of(schedule: LoopSchedule) -> list[SBlockRV]:
    """The blocks that nothing else reads."""
    return [block for block in blocks_of(schedule) if not schedule.get_consumers(block)]


def loops_of(schedule: LoopSchedule, block: SBlockRV) -> list[LoopRV]:
    """The loops around a block, from the outermost in."""
    return list(schedule.get_loops(block))


def extent_of(schedule: LoopSchedule, loop: LoopRV) -> int:
    """Iterations of a loop."""
    return int(schedule.get(loop).extent)


def is_along_last_axis(schedule: LoopSchedule, block: SBlockRV) -> bool:
    """Whether integers are summed up, or compared, along the last axis of all that is read.

    LLVM makes vectors of such a loop, as their order does not matter.
    """
    stored = schedule.get(block)
    last = stored.iter_vars[-1].var
    if not all(str(written.source.dtype).startswith("int") for written in stored.writes):
        return False
    return all(read.region[-1].min.same_as(last) for read in stored.reads)


def spatial_extents(schedule: LoopSchedule, block: SBlockRV) -> tuple[int, ...]:
    """Extents of a block's axes that are not summed over."""
    return tuple(
        int(axis.dom.extent)
        for axis in schedule.get(block).iter_vars
        if int(axis.iter_type) == int(tirx.IterVar.DataPar)
    )


def width_of(extent: int, lanes: int, least: int = LEAST) -> int:
    """How many values of the last axis form a tile: all lanes, or the largest part that divides."""
    width = gcd(extent, lanes)
    if width >= min(least, extent):
        return width
    return max(part for part in range(1, min(extent, 4 * lanes) + 1) if extent % part == 0)


def size_of(buffer: Buffer) -> int:
    """Bytes of a buffer."""
    elements = prod(int(extent) for extent in buffer.shape)
    return elements * np.dtype(str(buffer.dtype)).itemsize
