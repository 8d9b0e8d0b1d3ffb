"""Several built recipes beside each other: what each takes, how right it is, and who is beaten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.reporting import scatter
from pipelines.reporting.report_facts import Facts
from pipelines.reporting.scatter import Axes, Point

RATES = Axes("million cycles predicted, one thread", "right answers", True, "{:.2%}".format)
MEMORY = Axes(RATES.across, "weights and memory, MiB", False, "{:,.2f}".format)


@dataclass(frozen=True)
class Entry:
    """One recipe."""

    name: str
    hardware: str
    facts: Facts
    library: int | None
    """Bytes of the shared library."""
    rate: float | None
    """The rate of right answers, if it was measured."""

    @property
    def megacycles(self) -> float:
        """Predicted, of all products, on one thread."""
        return self.facts.cycles / 1e6

    @property
    def mebibytes(self) -> float:
        """Weights and memory beside them, of one thread."""
        return (self.facts.weights + self.facts.arena.size(1)) / 2**20


def has_rates(entries: Sequence[Entry]) -> bool:
    """Whether all of them were rated, so that accuracy can stand in the figure."""
    return all(entry.rate is not None for entry in entries)


def pareto_front(entries: Sequence[Entry]) -> list[Entry]:
    """Those that no other one beats or equals in both, the fastest first.

    Both are predicted time, and accuracy; without rates of all of them, memory.
    """
    points, axes = _points(entries)
    whose = dict(zip(points, entries, strict=True))
    return [whose[point] for point in scatter.pareto_front(points, axes)]


def figure(entries: Sequence[Entry]) -> str:
    """Accuracy, or memory, over predicted time, as SVG."""
    return scatter.figure(*_points(entries))


def _points(entries: Sequence[Entry]) -> tuple[list[Point], Axes]:
    by_rate = has_rates(entries)
    points = []
    for entry in entries:
        value = f"{entry.rate:.2%}" if by_rate and entry.rate else f"{entry.mebibytes:.2f} MiB"
        said = f"{entry.name}: {entry.megacycles:,.2f} M cycles, {value}"
        up = entry.rate or 0.0 if by_rate else entry.mebibytes
        points.append(Point(entry.name, entry.megacycles, up, said))
    return points, RATES if by_rate else MEMORY
