"""Sums of tensor expressions (TE): tile by tile where they are used, accumulators in registers.

The last axis of a tile is in vector lanes; some neighbours share a vector of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tvm import tirx
from tvm.s_tir import ScheduleError

from stages.nodes import LoopRV, SBlockRV
from stages.packaging.standalone.te_loops import (
    LEAST,
    LEAST_WIDE,
    LoopSchedule,
    extent_of,
    is_along_last_axis,
    is_reduction,
    loops_of,
    outputs_of,
    size_of,
    spatial_extents,
    width_of,
)

NEIGHBOURS = (4, 5, 6, 7, 3, 2)
"""How many positions along the axis before the last share a vector of weights, best first."""
MANY_NEIGHBOURS = (10, 8, 12, 7, *NEIGHBOURS)
"""How many positions share a vector of weights where registers are left for more."""
MANY_LANES = 32
"""Lanes that stand for registers of 512 bits, of which there are 32."""
WIDTHS = (4, 8, 16, 32, 64)
"""Extents of a last axis that become vector instructions as they are."""
UNROLLED = 16
"""Positions of a window up to which a sum is instructions in a row."""
STACK_BYTES = 1024
"""Temporaries larger than this are passed in; LLVM would need a call to allocate them."""


def compute_along(schedule: LoopSchedule, blocks: list[SBlockRV], lanes: int) -> None:
    """Compute every sum inside the loops of the one output."""
    (output,) = outputs_of(schedule)
    if is_reduction(schedule, output):
        _reduce(schedule, output, lanes)
        return
    loops = loops_of(schedule, output)
    if not loops:
        return
    sums = [block for block in blocks if not schedule.get(block).same_as(schedule.get(output))]
    shape = spatial_extents(schedule, output)
    if len(sums) != 1 or spatial_extents(schedule, sums[0]) != shape:
        _compute_in_rows(schedule, sums, loops)
    elif is_along_last_axis(schedule, sums[0]):
        _compute_at_each(schedule, sums[0], loops)
    else:
        _compute_in_tiles(schedule, sums[0], loops, lanes)


def _compute_in_rows(schedule: LoopSchedule, sums: list[SBlockRV], loops: list[LoopRV]) -> None:
    """Compute sums of several shapes row by row of the output, where that has rows."""
    if all(extent_of(schedule, loop) <= 1 for loop in loops[:-1]):
        return
    row = schedule.fuse(*loops[:-1]) if len(loops) > 2 else loops[0]
    for block in reversed(sums):
        try:
            schedule.compute_at(block, row)
        except ScheduleError:
            return


def _compute_at_each(schedule: LoopSchedule, block: SBlockRV, loops: list[LoopRV]) -> None:
    """Compute a sum at each element, by vectors along what is summed up."""
    schedule.compute_at(block, loops[-1], preserve_unit_loops=True)
    if len(loops) > 2:
        schedule.fuse(*loops[:-1])
    _order(schedule, block)
    _join(schedule, block)


def _compute_in_tiles(
    schedule: LoopSchedule, block: SBlockRV, loops: list[LoopRV], lanes: int
) -> None:
    """Compute the sums of a tile at a time, which stay in registers."""
    size = size_of(schedule.get(block).writes[0].source)
    itemsize = size // prod(spatial_extents(schedule, block))
    is_wide, most = itemsize > 4, (STACK_BYTES - 1) // itemsize
    # Sums of twice the size get half the lanes.
    part, least = (lanes // 2, LEAST_WIDE) if is_wide else (lanes, LEAST)
    width = width_of(extent_of(schedule, loops[-1]), part, least)
    has_more = is_wide and (lanes >= MANY_LANES or width == LEAST_WIDE)
    neighbours = MANY_NEIGHBOURS if has_more else NEIGHBOURS
    place, inner = _tile(schedule, loops, width, most, neighbours)
    schedule.compute_at(block, place, preserve_unit_loops=True)
    _order(schedule, block)
    for loop in inner[-1:]:
        if extent_of(schedule, loop) in WIDTHS:
            schedule.vectorize(loop)


def _join(schedule: LoopSchedule, block: SBlockRV) -> None:
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
    schedule.fuse(*loops_of(schedule, block)[-len(axes) :])


def _tile(
    schedule: LoopSchedule, loops: list[LoopRV], width: int, most: int, neighbours: Sequence[int]
) -> tuple[LoopRV, list[LoopRV]]:
    """Tile the last two axes, `width` of the last; at most so many sums, best `neighbours` first.

    Returns the loop to compute sums at, and the loops inside it.
    """
    outer, inside = schedule.split(loops[-1], [None, width])
    rest, before = loops[:-1], []
    if rest:
        extent = extent_of(schedule, rest[-1])
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


def _order(schedule: LoopSchedule, block: SBlockRV) -> None:
    """Sum in the outer loops, over accumulators in the inner ones."""
    loops = loops_of(schedule, block)
    kinds = _loop_kinds(schedule, block, loops)
    sums = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "sum"]
    own = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "own"]
    if not sums:
        return
    schedule.reorder(*sums, *own)
    # Once the zeroing is split off, the loops no longer hold a complete sum to vectorize.
    if own and extent_of(schedule, own[-1]) in WIDTHS:
        schedule.vectorize(own[-1])
    for loop in own[:-1]:
        if 1 < extent_of(schedule, loop) <= max(MANY_NEIGHBOURS):
            schedule.unroll(loop)
    schedule.decompose_reduction(block, sums[0])


def _loop_kinds(schedule: LoopSchedule, block: SBlockRV, loops: list[LoopRV]) -> list[str]:
    """Per loop around a block: `sum`, `own` (inside its tile) or `outer`."""
    axes = len(schedule.get(block).iter_vars)
    spatial = len(spatial_extents(schedule, block))
    count, own = axes - spatial, min(2, spatial)
    kinds = ["outer"] * len(loops)
    for index in range(count):
        kinds[len(loops) - 1 - index] = "sum"
    for index in range(own):
        kinds[len(loops) - 1 - count - index] = "own"
    return kinds


def _reduce(schedule: LoopSchedule, block: SBlockRV, lanes: int) -> None:
    """A sum that is the output itself."""
    loops = loops_of(schedule, block)
    count = len(loops) - len(spatial_extents(schedule, block))
    spatial, sums = loops[: len(loops) - count], loops[len(loops) - count :]
    if not sums:
        return
    if not spatial:
        # Apart from its start the sum is no loop on its own, which tasks would share.
        schedule.decompose_reduction(block, sums[0])
        return
    outer, inside = schedule.split(
        spatial[-1], [None, width_of(extent_of(schedule, spatial[-1]), lanes)]
    )
    schedule.reorder(*spatial[:-1], outer, *sums, inside)
    is_short = prod(extent_of(schedule, loop) for loop in sums) <= UNROLLED
    if extent_of(schedule, inside) in WIDTHS or (is_short and extent_of(schedule, inside) > LEAST):
        schedule.vectorize(inside)
    items = [*spatial[:-1], outer]
    if len(items) > 1:
        schedule.fuse(*items)
    if is_short:
        # As instructions in a row, what is summed up stays in registers.
        for loop in sums:
            schedule.unroll(loop)
    schedule.decompose_reduction(block, sums[0])
