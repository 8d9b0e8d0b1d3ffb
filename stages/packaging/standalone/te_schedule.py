"""The schedule of a TE kernel: one pass over its output, all before it computed on the way.

Blocks that compute position by position are inlined. Sums are computed where they are used
(`te_reductions.py`). What cannot be computed on the way stays whole, in memory that the caller
passes.
"""

from __future__ import annotations

from math import gcd, prod

from tvm import tirx
from tvm.s_tir import ScheduleError

from stages.dialect.let_bindings import nodes, operations
from stages.nodes import LoopRV, PrimFunc, SBlockRV, Stmt
from stages.packaging.standalone.te_loops import (
    LEAST,
    LoopSchedule,
    blocks_of,
    extent_of,
    is_along_last_axis,
    is_reduction,
    loops_of,
    outputs_of,
    spatial_extents,
)
from stages.packaging.standalone.te_reductions import compute_along

CHEAP = 8
"""Operations that may as well be repeated as remembered."""


def scheduled(
    function: PrimFunc, lanes: int, *, whole: bool = False, vectors: bool = True
) -> PrimFunc:
    """The function in loops; `lanes` is how many values of the last axis are worked on at once.

    With `whole`, every sum is computed whole before it is used; without `vectors`, which of the
    inner loops become vectors is LLVM's choice.
    """
    schedule = LoopSchedule(function, vectors)
    _inline(schedule)
    blocks = blocks_of(schedule)
    if len(blocks) == 1 and not is_reduction(schedule, blocks[0]):
        _flatten(schedule, blocks[0], lanes)
    elif len(outputs_of(schedule)) == 1 and not whole:
        compute_along(schedule, blocks, lanes)
    return schedule.mod["main"]


def _inline(schedule: LoopSchedule) -> None:
    """Inline whatever computes position by position, unless a sum would repeat costly work."""
    for block in blocks_of(schedule):
        consumers = schedule.get_consumers(block)
        if not consumers or is_reduction(schedule, block) or _repeats(schedule, block, consumers):
            continue
        try:
            schedule.compute_inline(block)
        except ScheduleError:
            continue


def _repeats(schedule: LoopSchedule, block: SBlockRV, consumers: list[SBlockRV]) -> bool:
    """Whether inlining a block would compute something costly several times, or one by one."""
    size = prod(spatial_extents(schedule, block))
    is_larger = any(prod(spatial_extents(schedule, consumer)) > size for consumer in consumers)
    sums = any(
        is_reduction(schedule, consumer) and not _takes_once(schedule, consumer, size)
        for consumer in consumers
    )
    return (is_larger or sums or len(consumers) > 1) and _cost(schedule.get(block).body) > CHEAP


def _takes_once(schedule: LoopSchedule, block: SBlockRV, size: int) -> bool:
    """Whether a reduction in vectors takes every one of so many values a single time."""
    extents = [int(axis.dom.extent) for axis in schedule.get(block).iter_vars]
    return prod(extents) == size and is_along_last_axis(schedule, block)


def _cost(statement: Stmt) -> int:
    """How many operations a block's expression has."""
    value = getattr(statement, "value", None)
    return 0 if value is None else operations(value)


def _flatten(schedule: LoopSchedule, block: SBlockRV, lanes: int) -> None:
    """One loop over all positions, `lanes` of them at a time where that divides them.

    A last axis that no longer vector divides is a vector of its own, if it is short.
    """
    loops = loops_of(schedule, block)
    if not loops:
        return
    last, joints = loops[-1], _joints(schedule, block)
    extent = extent_of(schedule, last)
    if extent < LEAST and len(loops) > 1 and not joints and not _stays(schedule, block):
        _vectorize_before_last(schedule, loops, lanes)
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


def _stays(schedule: LoopSchedule, block: SBlockRV) -> bool:
    """Whether all that a block reads is a scalar, or lies as what it writes does."""
    stored = schedule.get(block)
    axes = [axis.var for axis in stored.iter_vars]
    reads = (read for read in stored.reads if prod(map(int, read.source.shape)) > 1)
    return all(
        len(read.region) == len(axes)
        and all(at.min.same_as(axis) for at, axis in zip(read.region, axes, strict=True))
        for read in reads
    )


def _vectorize_before_last(schedule: LoopSchedule, loops: list[LoopRV], lanes: int) -> None:
    """Vectors along the axis before a last one that is too short for them.

    In a loop over all positions LLVM would find out where each of them lies, one by one.
    """
    *rest, before, last = loops
    extent = extent_of(schedule, before)
    width = max(n for n in range(1, lanes + 1) if extent % n == 0)
    outer, inner = schedule.split(before, [None, width])
    if width >= LEAST:
        schedule.reorder(outer, last, inner)
        schedule.vectorize(inner)
    schedule.unroll(last)
    if rest:
        schedule.fuse(*rest, outer)


def _joints(schedule: LoopSchedule, block: SBlockRV) -> list[int]:
    """Where on the last axis other tensors begin: no vector should reach across."""
    stored, axis = schedule.get(block), schedule.get(block).iter_vars[-1].var
    comparisons = (n for n in nodes(stored.body.value) if isinstance(n, tirx.LT))
    places = (n.b for n in comparisons if n.a.same_as(axis))
    return [int(place) for place in places if isinstance(place, tirx.IntImm)]
