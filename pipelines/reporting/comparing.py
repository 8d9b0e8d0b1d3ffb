"""Several built recipes beside each other: what each takes, how right it is, and who is beaten.

The figure is that of Cowan et al. (CGO 2020, Figure 8): accuracy over time. Whoever another recipe
beats in both is not on the front.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pipelines.reporting.gathering import Facts

WIDTH, HEIGHT, LEFT, BELOW = 1000, 430, 90, 60
_LABEL, _LINE = 150, 14
"""How wide and how tall a name is, about."""


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

    def worth(self, by_rate: bool) -> float:
        """What stands upwards in the figure; more is better."""
        return self.rate or 0.0 if by_rate else -self.mebibytes


def has_rates(entries: Sequence[Entry]) -> bool:
    """Whether all of them were rated, so that accuracy can stand in the figure."""
    return all(entry.rate is not None for entry in entries)


def front(entries: Sequence[Entry]) -> list[Entry]:
    """Those that no other one beats or equals in both, the fastest first.

    Both are predicted time, and accuracy; without rates of all of them, memory.
    """
    by_rate = has_rates(entries)
    ordered = sorted(entries, key=lambda e: (e.megacycles, -e.worth(by_rate)))
    kept: list[Entry] = []
    for entry in ordered:
        if not kept or entry.worth(by_rate) > kept[-1].worth(by_rate):
            kept.append(entry)
    return kept


def figure(entries: Sequence[Entry]) -> str:
    """Accuracy, or memory, over predicted time, as SVG."""
    by_rate = has_rates(entries)
    across = _scale([entry.megacycles for entry in entries], LEFT, WIDTH - 180)
    up = _scale([_height(entry, by_rate) for entry in entries], HEIGHT - BELOW, 30)
    title = "right answers" if by_rate else "weights and memory, MiB"
    best = front(entries)
    points = " ".join(f"{across[e.megacycles]:.1f},{up[_height(e, by_rate)]:.1f}" for e in best)
    parts = [
        f'<text class="head" x="{LEFT}" y="14">{title}</text>',
        f'<text class="head" x="{WIDTH - 10}" y="{HEIGHT - 8}" text-anchor="end">'
        "million cycles predicted, one thread</text>",
        f'<path class="edge" d="M{LEFT - 10} 24 V{HEIGHT - BELOW + 16} H{WIDTH - 10}"/>',
        f'<polyline class="front" points="{points}"/>',
        *_ticks(across, up, by_rate),
        *_points(entries, best, across, up, by_rate),
    ]
    label = f"{title} over predicted time"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _points(
    entries: Sequence[Entry],
    best: Sequence[Entry],
    across: Mapping[float, float],
    up: Mapping[float, float],
    by_rate: bool,
) -> Iterator[str]:
    labels: list[tuple[float, float]] = []
    for entry in entries:
        x, y = across[entry.megacycles], up[_height(entry, by_rate)]
        kind = "best" if entry in best else "beaten"
        value = f"{entry.rate:.2%}" if by_rate and entry.rate else f"{entry.mebibytes:.2f} MiB"
        said = f"{entry.name}: {entry.megacycles:,.2f} M cycles, {value}"
        yield f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="6"><title>{escape(said)}'
        place = y + 4
        while any(abs(x - x0) < _LABEL and abs(place - y0) < _LINE for x0, y0 in labels):
            place += _LINE
        labels.append((x, place))
        yield f'</title></circle><text x="{x + 10:.1f}" y="{place:.1f}">{escape(entry.name)}</text>'


def _ticks(
    across: Mapping[float, float], up: Mapping[float, float], by_rate: bool
) -> Iterator[str]:
    """The least and the most of both."""
    for value in sorted({min(across), max(across)}):
        place = f'x="{across[value]:.1f}" y="{HEIGHT - BELOW + 32}"'
        yield f'<text class="value" {place} text-anchor="middle">{value:,.2f}</text>'
    for value in sorted({min(up), max(up)}):
        text = f"{value:.2%}" if by_rate else f"{value:,.2f}"
        place = f'x="{LEFT - 16}" y="{up[value] + 4:.1f}"'
        yield f'<text class="value" {place} text-anchor="end">{text}</text>'


def _height(entry: Entry, by_rate: bool) -> float:
    return entry.rate or 0.0 if by_rate else entry.mebibytes


def _scale(values: Sequence[float], first: float, last: float) -> dict[float, float]:
    """Where values stand between two places; all in the middle if they are equal."""
    low, high = min(values), max(values)
    wide = high - low
    return {
        value: first + (last - first) * ((value - low) / wide if wide else 0.5) for value in values
    }
