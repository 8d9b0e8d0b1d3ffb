"""Sums along several rows at once, whose additions are interleaved.

Operators define a sum along a row in order, so every addition waits for the one before it. Those
of different rows do not wait for each other, which hides the latency of an addition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.nodes import Buffer, Index, Scalar

ROWS = 4
"""Rows of a group: as many as an addition takes cycles."""


def group_count(count: int) -> int:
    """Groups of so many rows, each an item of work."""
    return -(-count // ROWS)


def each_group(number: Index, count: int, emit: Callable[[Sequence[Index]], None]) -> None:
    """Emit a group by the numbers of its rows, of `count` in all; the last group may be smaller."""
    full, rest = divmod(count, ROWS)

    def rows(length: int) -> None:
        emit([number * ROWS + row for row in range(length)])

    if not rest or not full:
        rows(ROWS if full else rest)
        return
    with T.If(number < full):
        with T.Then():
            rows(ROWS)
        with T.Else():
            rows(rest)


def accumulate_rows(totals: Buffer, length: int, term: Callable[[int, Index], Scalar]) -> None:
    """Emit sums of rows into a buffer, the first term first; `term` is one of a row, at a place."""
    rows = range(int(totals.shape[0]))
    for row in rows:
        T.buffer_store(totals, term(row, 0), [row])
    with T.serial(1, length) as place:
        for row in rows:
            T.buffer_store(totals, totals[row] + term(row, place), [row])


def vectors_of(length: int, lanes: int) -> tuple[int, Callable[[Index], Index]]:
    """Vectors that a row takes, and where each begins: the last one overlaps the one before it."""
    return -(-length // lanes), lambda tile: tirx.min(tile * lanes, length - lanes)
