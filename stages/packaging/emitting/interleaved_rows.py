"""Rows whose sums take turns.

A sum along a row is taken in order, as operators say, so that every addition waits for the one
before it: those of several rows do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

ROWS = 4
"""Rows that take turns: as many as an addition takes cycles."""


def lines_of(count: int) -> int:
    """Items of work of so many rows."""
    return -(-count // ROWS)


def take_turns(number: Any, count: int, emit: Callable[[Sequence[Any]], None]) -> None:
    """Emit an item of so many rows in all, given their numbers; the last item may have fewer."""
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


def added_up(totals: Any, length: int, term: Callable[[int, Any], Any]) -> None:
    """Emit sums of rows into a buffer, the first term first; `term` is one of a row, at a place."""
    rows = range(int(totals.shape[0]))
    for row in rows:
        T.buffer_store(totals, term(row, 0), [row])
    with T.serial(1, length) as place:
        for row in rows:
            T.buffer_store(totals, totals[row] + term(row, place), [row])


def vectors_of(length: int, lanes: int) -> tuple[int, Callable[[Any], Any]]:
    """Vectors that a row takes, and where each begins: the last one overlaps the one before it."""
    return -(-length // lanes), lambda tile: tirx.min(tile * lanes, length - lanes)
