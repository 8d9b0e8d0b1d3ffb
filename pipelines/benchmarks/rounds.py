"""Sides timed in turns, and how their times compare."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pipelines.benchmarks.engines import Timed
from pipelines.remote.timed_turns import TurnLengths

_QUARTILES = (25, 50, 75)


def alternate(sides: Mapping[str, Timed], repeat: int, title: str | None) -> dict[str, list[float]]:
    """Return each side's seconds, one a turn; who is first changes from round to round.

    After each has been first the order is turned round, so that nobody always comes behind the same
    one. A turn begins with runs that are not counted, until the machine has settled. Without a
    title nothing is shown meanwhile.
    """
    once = {name: max(timed(1), 1e-7) for name, timed in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for index in _rounds(repeat, title):
        first = index % len(names)
        order = [*names[first:], *names[:first]]
        if index // len(names) % 2:
            order.reverse()
        for name in order:
            sides[name](math.ceil(TurnLengths.settle / once[name]))
            times[name].append(sides[name](math.ceil(TurnLengths.turn / once[name])))
    return times


def _rounds(repeat: int, title: str | None) -> Iterator[int]:
    """Yield the rounds; what is shown of them is drawn between two, by this thread alone."""
    if title is None or not sys.stdout.isatty():
        yield from range(repeat)
        return
    from rich.progress import Progress

    with Progress(auto_refresh=False, transient=True) as progress:
        task = progress.add_task(title, total=repeat)
        for index in range(repeat):
            progress.refresh()
            yield index
            progress.advance(task)


def compared(times: Mapping[str, list[float]], reference: str) -> list[dict[str, Any]]:
    """Return a row a side: median and quartiles, and the reference's time as a ratio of its own.

    `ratio` is the median over the rounds of reference time / this side's time, so that drift of
    the machine's speed cancels; `ratio_quartiles` its middle half.
    """
    rows = []
    for name, seconds in times.items():
        low, median, high = (1e3 * float(q) for q in np.percentile(seconds, _QUARTILES))
        row: dict[str, Any] = {"what": name, "median_ms": median, "quartiles_ms": [low, high]}
        if name != reference:
            ratios = np.asarray(times[reference]) / np.asarray(seconds)
            low, median, high = (float(q) for q in np.percentile(ratios, _QUARTILES))
            row |= {"ratio": median, "ratio_quartiles": [low, high]}
        rows.append(row)
    return rows
