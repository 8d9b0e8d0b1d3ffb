"""A table or figure of a source: what it says, what was published, and what shows ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines.paper.runs import Found, Run
from pipelines.reporting.page_parts import Bar
from pipelines.reporting.scatter import Axes, Point

Kind = Literal["measured", "modelled", "computed", "stated"]
"""How our values came about: timed on the processor named; by the model of a core, from what was
counted under QEMU; from shapes, sizes and programs alone; as pages say."""
CGO = "Cowan et al., CGO 2020"
QNN = "Jain et al., 2020"
ALIOS = "AliOS, 2019"
RFC = "RFC for Armv8"


@dataclass(frozen=True)
class Table:
    """A table, or bars, of a figure; texts as they are shown."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True)
class Bars:
    """Rows of bars, published ones in grey."""

    title: str
    rows: Sequence[Bar]


@dataclass(frozen=True)
class Scatter:
    """Points of two values, and their front."""

    title: str
    points: Sequence[Point]
    axes: Axes


Part = Table | Bars | Scatter
Results = Mapping[Run, Found]
"""What is known of a figure's runs."""


@dataclass(frozen=True)
class Figure:
    """One table or figure of a source."""

    name: str
    """By which `figure=` takes it."""
    source: str
    number: str
    """Table 1, Figure 7."""
    title: str
    """What it shows."""
    kinds: tuple[Kind, ...]
    published: str
    """What the source says, in a sentence or two: bars of its figures are not given as numbers."""
    ours: str
    """How ours came about, and how that differs from the source's."""
    show: Callable[[Results], list[Part]]
    """What stands on the page; without a result there is nothing to be shown of it."""
    runs: tuple[Run, ...] = ()
    boards: tuple[str, ...] = ()
    """Boards that its runs emulate, and model the cores of."""
    peers: tuple[str, ...] = ()
    """Engines that its runs time, by the names that `peers=` takes: without them it is empty."""
    cannot: str = ""
    """What of it no machine here can show, and why."""

    @property
    def heading(self) -> str:
        """Source, number, title, and how ours came about."""
        return f"{self.source}, {self.number}: {self.title} ({' and '.join(self.kinds)})"


def times(ratio: float) -> str:
    """Return a ratio as a cell."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def mega(value: float) -> str:
    """Return a number in millions as a cell."""
    return f"{value / 1e6:,.1f}"


def geomean(values: Sequence[float]) -> float:
    """Return the geometric mean of some values."""
    return math.prod(values) ** (1 / len(values))
