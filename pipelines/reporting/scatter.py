"""Points in a figure of two values, of which the one across is better the smaller it is.

The figure is that of Cowan et al. (CGO 2020, Figure 8): accuracy over time. Whoever another one
beats or equals in both is not on the front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, BELOW = 1000, 430, 90, 60
_LABEL, _LINE = 150, 14
"""How wide and how tall a name is, about."""


@dataclass(frozen=True)
class Point:
    """One thing that is compared."""

    name: str
    across: float
    up: float
    said: str
    """What is shown where it is pointed at."""


@dataclass(frozen=True)
class Axes:
    """What the two values are, and how they are written."""

    across: str
    up: str
    is_more_better: bool
    """Whether more is better upwards; across, less always is."""
    write_up: Callable[[float], str]
    write_across: Callable[[float], str] = "{:,.2f}".format


def pareto_front(points: Sequence[Point], axes: Axes) -> list[Point]:
    """Those that no other one beats or equals in both, the best across first."""

    def worth(point: Point) -> float:
        return point.up if axes.is_more_better else -point.up

    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.across, -worth(p))):
        if not kept or worth(point) > worth(kept[-1]):
            kept.append(point)
    return kept


def figure(points: Sequence[Point], axes: Axes) -> str:
    """Return the points and their front as SVG."""
    across = _scale([point.across for point in points], LEFT, WIDTH - 180)
    up = _scale([point.up for point in points], HEIGHT - BELOW, 30)
    best = pareto_front(points, axes)
    line = " ".join(f"{across[p.across]:.1f},{up[p.up]:.1f}" for p in best)
    parts = [
        f'<text class="head" x="{LEFT}" y="14">{escape(axes.up)}</text>',
        f'<text class="head" x="{WIDTH - 10}" y="{HEIGHT - 8}" text-anchor="end">'
        f"{escape(axes.across)}</text>",
        f'<path class="edge" d="M{LEFT - 10} 24 V{HEIGHT - BELOW + 16} H{WIDTH - 10}"/>',
        f'<polyline class="front" points="{line}"/>',
        *_ticks(across, up, axes),
        *_marks(points, best, across, up),
    ]
    label = escape(f"{axes.up} over {axes.across}")
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _marks(
    points: Sequence[Point],
    best: Sequence[Point],
    across: Mapping[float, float],
    up: Mapping[float, float],
) -> Iterator[str]:
    labels: list[tuple[float, float]] = []
    for point in points:
        x, y = across[point.across], up[point.up]
        kind = "best" if point in best else "beaten"
        yield f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="6"><title>{escape(point.said)}'
        place = y + 4
        while any(abs(x - x0) < _LABEL and abs(place - y0) < _LINE for x0, y0 in labels):
            place += _LINE
        labels.append((x, place))
        yield f'</title></circle><text x="{x + 10:.1f}" y="{place:.1f}">{escape(point.name)}</text>'


def _ticks(across: Mapping[float, float], up: Mapping[float, float], axes: Axes) -> Iterator[str]:
    """The least and the most of both."""
    for value in sorted({min(across), max(across)}):
        place = f'x="{across[value]:.1f}" y="{HEIGHT - BELOW + 32}"'
        yield f'<text class="value" {place} text-anchor="middle">{axes.write_across(value)}</text>'
    for value in sorted({min(up), max(up)}):
        place = f'x="{LEFT - 16}" y="{up[value] + 4:.1f}"'
        yield f'<text class="value" {place} text-anchor="end">{axes.write_up(value)}</text>'


def _scale(values: Sequence[float], first: float, last: float) -> dict[float, float]:
    """Where values stand between two places; all in the middle if they are equal."""
    low, high = min(values), max(values)
    wide = high - low
    return {
        value: first + (last - first) * ((value - low) / wide if wide else 0.5) for value in values
    }
