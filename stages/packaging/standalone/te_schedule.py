"""Loops of a plain kernel: one pass over its output, with everything before it computed on the way.

Blocks that compute position by position are inlined. Sums are computed tile by tile where they are
used: the last axis in vector lanes, some neighbours beside each other, and their accumulators stay
in registers. What cannot be computed on the way stays whole, in memory that the caller passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any

import numpy as np
from tvm import s_tir, tirx
from tvm.s_tir import ScheduleError

from stages.dialect.let_bindings import nodes, operations

NEIGHBOURS = (4, 5, 6, 7, 3, 2)
"""How many positions along the axis before the last share a vector of weights, best first."""
MANY_NEIGHBOURS = (10, 8, 12, 7, *NEIGHBOURS)
"""The same where registers are left for more."""
MANY_LANES = 32
"""Lanes that stand for registers of 512 bits, of which there are 32."""
CHEAP = 8
"""Operations that may as well be repeated as remembered."""
WIDTHS = (4, 8, 16, 32, 64)
"""Extents of a last axis that become vector instructions as they are."""
LEAST, LEAST_WIDE = 8, 4
"""Lanes of a vector at least, if there are as many; of values of twice the size."""
UNROLLED = 16
"""Positions of a window up to which a sum is instructions in a row."""
STACK_BYTES = 1024
"""Temporaries larger than this are passed in; LLVM would need a call to allocate them."""


class _Schedule:
    """TIR's schedule, that may leave loops as they are where it is told to vectorize them."""

    def __init__(self, schedule: Any, vectors: bool) -> None:
        self._schedule, self._vectors = schedule, vectors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._schedule, name)

    def vectorize(self, loop: Any) -> None:
        """Mark a loop, if vectors are wanted."""
        if self._vectors:
            self._schedule.vectorize(loop)


def scheduled(function: Any, lanes: int, *, whole: bool = False, vectors: bool = True) -> Any:
    """The function in loops; `lanes` is how many values of the last axis are worked on at once.

    With `whole`, every sum is computed whole before it is used; without `vectors`, which of the
    inner loops become vectors is LLVM's choice.
    """
    schedule = _Schedule(s_tir.Schedule(function), vectors)
    _inline(schedule)
    blocks = _blocks(schedule)
    if len(blocks) == 1 and not _is_reduction(schedule, blocks[0]):
        _flatten(schedule, blocks[0], lanes)
    elif len(_outputs(schedule)) == 1 and not whole:
        _along(schedule, blocks, lanes)
    return schedule.mod["main"]


def _blocks(schedule: Any) -> list[Any]:
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def _is_reduction(schedule: Any, block: Any) -> bool:
    kinds = {int(axis.iter_type) for axis in schedule.get(block).iter_vars}
    return kinds != {int(tirx.IterVar.DataPar)} and bool(kinds)


def _outputs(schedule: Any) -> list[Any]:
    """The blocks that nothing else reads."""
    return [block for block in _blocks(schedule) if not schedule.get_consumers(block)]


def _inline(schedule: Any) -> None:
    """Inline whatever computes position by position, unless a sum would repeat costly work."""
    for block in _blocks(schedule):
        consumers = schedule.get_consumers(block)
        if not consumers or _is_reduction(schedule, block) or _repeats(schedule, block, consumers):
            continue
        try:
            schedule.compute_inline(block)
        except ScheduleError:
            continue


def _repeats(schedule: Any, block: Any, consumers: list[Any]) -> bool:
    """Whether inlining a block would compute something costly several times, or one by one."""
    size = prod(_spatial(schedule, block))
    is_larger = any(prod(_spatial(schedule, consumer)) > size for consumer in consumers)
    sums = any(
        _is_reduction(schedule, consumer) and not _takes_once(schedule, consumer, size)
        for consumer in consumers
    )
    return (is_larger or sums or len(consumers) > 1) and _cost(schedule.get(block).body) > CHEAP


def _takes_once(schedule: Any, block: Any, size: int) -> bool:
    """Whether a reduction in vectors takes every one of so many values a single time."""
    extents = [int(axis.dom.extent) for axis in schedule.get(block).iter_vars]
    return prod(extents) == size and _runs_along(schedule, block)


def _cost(statement: Any) -> int:
    """How many operations a block's expression has."""
    value = getattr(statement, "value", None)
    return 0 if value is None else operations(value)


def _loops(schedule: Any, block: Any) -> list[Any]:
    return list(schedule.get_loops(block))


def _extent(schedule: Any, loop: Any) -> int:
    return int(schedule.get(loop).extent)


def _flatten(schedule: Any, block: Any, lanes: int) -> None:
    """One loop over all positions, `lanes` of them at a time where that divides them.

    A last axis that no longer vector divides is a vector of its own, if it is short.
    """
    loops = _loops(schedule, block)
    if not loops:
        return
    last, joints = loops[-1], _joints(schedule, block)
    extent = _extent(schedule, last)
    if extent < LEAST and len(loops) > 1 and not joints and not _stays(schedule, block):
        _beside(schedule, loops, lanes)
        return
    width = gcd(extent, lanes, *joints)
    if width < LEAST <= extent <= lanes and not joints:
        width = extent
    if width > 1:
        outer, inner = schedule.split(last, [None, width])
        schedule.vectorize(inner)
        loops = [*loops[:-1], outer]
    if len(loops) > 1:
        schedule.fuse(*loops)


def _stays(schedule: Any, block: Any) -> bool:
    """Whether all that a block reads is a scalar, or lies as what it writes does."""
    stored = schedule.get(block)
    axes = [axis.var for axis in stored.iter_vars]
    reads = (read for read in stored.reads if prod(map(int, read.source.shape)) > 1)
    return all(
        len(read.region) == len(axes)
        and all(at.min.same_as(axis) for at, axis in zip(read.region, axes, strict=True))
        for read in reads
    )


def _beside(schedule: Any, loops: list[Any], lanes: int) -> None:
    """Vectors along the axis before a last one that is too short for them.

    In a loop over all positions LLVM would find out where each of them lies, one by one.
    """
    *rest, before, last = loops
    extent = _extent(schedule, before)
    width = max(n for n in range(1, lanes + 1) if extent % n == 0)
    outer, inner = schedule.split(before, [None, width])
    if width >= LEAST:
        schedule.reorder(outer, last, inner)
        schedule.vectorize(inner)
    schedule.unroll(last)
    if rest:
        schedule.fuse(*rest, outer)


def _joints(schedule: Any, block: Any) -> list[int]:
    """Where on the last axis other tensors begin: no vector should reach across."""
    stored, axis = schedule.get(block), schedule.get(block).iter_vars[-1].var
    comparisons = (n for n in nodes(stored.body.value) if isinstance(n, tirx.LT))
    places = (n.b for n in comparisons if n.a.same_as(axis))
    return [int(place) for place in places if isinstance(place, tirx.IntImm)]


def _along(schedule: Any, blocks: list[Any], lanes: int) -> None:
    """Compute every sum inside the loops of the one output."""
    (output,) = _outputs(schedule)
    if _is_reduction(schedule, output):
        _reduce(schedule, output, lanes)
        return
    loops = _loops(schedule, output)
    if not loops:
        return
    sums = [block for block in blocks if not schedule.get(block).same_as(schedule.get(output))]
    same_shape = all(_spatial(schedule, block) == _spatial(schedule, output) for block in sums)
    if len(sums) == 1 and same_shape:
        if _runs_along(schedule, sums[0]):
            schedule.compute_at(sums[0], loops[-1], preserve_unit_loops=True)
            if len(loops) > 2:
                schedule.fuse(*loops[:-1])
            _order(schedule, sums[0])
            _join(schedule, sums[0])
            return
        size = size_of(schedule.get(sums[0]).writes[0].source)
        itemsize = size // prod(_spatial(schedule, sums[0]))
        is_wide, most = itemsize > 4, (STACK_BYTES - 1) // itemsize
        # Sums of twice the size get half the lanes.
        part, least = (lanes // 2, LEAST_WIDE) if is_wide else (lanes, LEAST)
        width = _width(_extent(schedule, loops[-1]), part, least)
        has_more = is_wide and (lanes >= MANY_LANES or width == LEAST_WIDE)
        neighbours = MANY_NEIGHBOURS if has_more else NEIGHBOURS
        place, inner = _tile(schedule, loops, width, most, neighbours)
        schedule.compute_at(sums[0], place, preserve_unit_loops=True)
        _order(schedule, sums[0])
        for loop in inner[-1:]:
            if _extent(schedule, loop) in WIDTHS:
                schedule.vectorize(loop)
        return
    rows = [loop for loop in loops[:-1] if _extent(schedule, loop) > 1]
    if not rows:
        return
    row = schedule.fuse(*loops[:-1]) if len(loops) > 2 else loops[0]
    for block in reversed(sums):
        try:
            schedule.compute_at(block, row)
        except ScheduleError:
            return


def _runs_along(schedule: Any, block: Any) -> bool:
    """Whether integers are summed up, or compared, along the last axis of all that is read.

    LLVM makes vectors of such a loop, as their order does not matter.
    """
    stored = schedule.get(block)
    last = stored.iter_vars[-1].var
    if not all(str(written.source.dtype).startswith("int") for written in stored.writes):
        return False
    return all(read.region[-1].min.same_as(last) for read in stored.reads)


def _join(schedule: Any, block: Any) -> None:
    """Make one loop of those that sum up, if what they read lies side by side."""
    stored = schedule.get(block)
    axes = [axis for axis in stored.iter_vars if int(axis.iter_type) != int(tirx.IterVar.DataPar)]
    (written,) = stored.writes
    for read in stored.reads:
        if read.source.same_as(written.source):
            continue
        region, shape = read.region[-len(axes) :], read.source.shape[-len(axes) :]
        for axis, place, extent in zip(axes, region, shape, strict=True):
            if not place.min.same_as(axis.var) or int(axis.dom.extent) != int(extent):
                return
    schedule.fuse(*_loops(schedule, block)[-len(axes) :])


def _spatial(schedule: Any, block: Any) -> tuple[int, ...]:
    """Extents of a block's axes that are not summed over."""
    return tuple(
        int(axis.dom.extent)
        for axis in schedule.get(block).iter_vars
        if int(axis.iter_type) == int(tirx.IterVar.DataPar)
    )


def _width(extent: int, lanes: int, least: int = LEAST) -> int:
    """How many values of the last axis form a tile: all lanes, or the largest part that divides."""
    width = gcd(extent, lanes)
    if width >= min(least, extent):
        return width
    return max(part for part in range(1, min(extent, 4 * lanes) + 1) if extent % part == 0)


def _tile(
    schedule: Any, loops: list[Any], width: int, most: int, neighbours: Sequence[int]
) -> tuple[Any, list[Any]]:
    """Tile the last two axes, `width` of the last; at most so many sums, best `neighbours` first.

    Returns the loop to compute sums at, and the loops inside it.
    """
    outer, inside = schedule.split(loops[-1], [None, width])
    rest, before = loops[:-1], []
    if rest:
        extent = _extent(schedule, rest[-1])
        fitting = [n for n in neighbours if extent % n == 0 and n * width <= most]
        count = fitting[0] if fitting else 1
        tile, beside = schedule.split(rest[-1], [None, count])
        schedule.reorder(*rest[:-1], outer, tile, beside, inside)
        before = [beside]
        items = [*rest[:-1], outer]
        place = tile
    else:
        items, place = [], outer
    if len(items) > 1:
        schedule.fuse(*items)
    return place, [*before, inside]


def _order(schedule: Any, block: Any) -> None:
    """Sum in the outer loops, over accumulators in the inner ones."""
    loops = _loops(schedule, block)
    kinds = _kinds(schedule, block, loops)
    sums = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "sum"]
    own = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "own"]
    if not sums:
        return
    schedule.reorder(*sums, *own)
    # Once the zeroing is split off, the loops no longer hold a complete sum to vectorize.
    if own and _extent(schedule, own[-1]) in WIDTHS:
        schedule.vectorize(own[-1])
    for loop in own[:-1]:
        if 1 < _extent(schedule, loop) <= max(MANY_NEIGHBOURS):
            schedule.unroll(loop)
    schedule.decompose_reduction(block, sums[0])


def _kinds(schedule: Any, block: Any, loops: list[Any]) -> list[str]:
    """Per loop around a block: `sum`, `own` (inside its tile) or `outer`."""
    axes = len(schedule.get(block).iter_vars)
    spatial = len(_spatial(schedule, block))
    count, own = axes - spatial, min(2, spatial)
    kinds = ["outer"] * len(loops)
    for index in range(count):
        kinds[len(loops) - 1 - index] = "sum"
    for index in range(own):
        kinds[len(loops) - 1 - count - index] = "own"
    return kinds


def _reduce(schedule: Any, block: Any, lanes: int) -> None:
    """A sum that is the output itself."""
    loops = _loops(schedule, block)
    count = len(loops) - len(_spatial(schedule, block))
    spatial, sums = loops[: len(loops) - count], loops[len(loops) - count :]
    if not sums:
        return
    if not spatial:
        # Apart from its start the sum is no loop on its own, which tasks would share.
        schedule.decompose_reduction(block, sums[0])
        return
    outer, inside = schedule.split(
        spatial[-1], [None, _width(_extent(schedule, spatial[-1]), lanes)]
    )
    schedule.reorder(*spatial[:-1], outer, *sums, inside)
    is_short = prod(_extent(schedule, loop) for loop in sums) <= UNROLLED
    if _extent(schedule, inside) in WIDTHS or (is_short and _extent(schedule, inside) > LEAST):
        schedule.vectorize(inside)
    items = [*spatial[:-1], outer]
    if len(items) > 1:
        schedule.fuse(*items)
    if is_short:
        # As instructions in a row, what is summed up stays in registers.
        for loop in sums:
            schedule.unroll(loop)
    schedule.decompose_reduction(block, sums[0])


def size_of(buffer: Any) -> int:
    """Bytes of a buffer."""
    elements = prod(int(extent) for extent in buffer.shape)
    return elements * np.dtype(str(buffer.dtype)).itemsize
