"""The two figures of a report, as SVG: the network with what each layer takes, and the arena."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from pipelines.output import printed_tables
from pipelines.output.abbreviations import shortened
from pipelines.reporting.report_facts import Facts, LayerFacts

WIDTH, ROW, TOP = 1000, 20, 26
_GUTTER, _NAMES = 70, 260
_TIME, _PRODUCTS, _MEMORY = "time", "multiply-accumulates", "memory alive"
_BARS = ((340, 220, _TIME), (650, 90, _PRODUCTS), (820, 110, _MEMORY))
"""Where a column of bars begins, how wide it is, and what it is of."""
HEATS = 5


def network(facts: Facts) -> str:
    """Every layer in a row: what it reads, its time, its products, and the memory alive then."""
    layers = facts.layers
    height = TOP + ROW * len(layers) + 8
    times = [time_of(layer) for layer in layers]
    most = max(times, default=1.0) or 1.0
    names = shortened((layer.name for layer in layers), (_NAMES - 10) // 7)
    parts = [*_heads(), *_edges(layers)]
    columns = (
        times,
        [float(layer.macs) for layer in layers],
        [float(layer.alive_bytes) for layer in layers],
    )
    for number, layer in enumerate(layers):
        y = TOP + ROW * number
        heat = min(HEATS - 1, int(HEATS * times[number] / most))
        kinds = f"how-{slug(layer.how)} precision-{slug(layer.precision)} heat-{heat}"
        parts.append(f"<g><title>{escape(_said(layer))}</title>")
        parts.append(f'<rect class="row" x="0" y="{y}" width="{WIDTH}" height="{ROW}"/>')
        parts.append(f'<circle class="node {kinds}" cx="{_GUTTER - 12}" cy="{y + 10}" r="5"/>')
        parts.append(f'<text x="{_GUTTER}" y="{y + 14}">{escape(names[layer.name])}</text>')
        for (x, width, title), values in zip(_BARS, columns, strict=True):
            whole = max(values, default=0.0) or 1.0
            wide = width * values[number] / whole
            parts.append(
                f'<rect class="bar {kinds}" x="{x}" y="{y + 4}" width="{wide:.1f}" height="12"/>'
            )
            if text := _figure(layer, title):
                parts.append(
                    f'<text class="value" x="{x + wide + 4:.1f}" y="{y + 14}">{text}</text>'
                )
        parts.append("</g>")
    return _svg(height, parts, "the network, layer by layer")


def arena(facts: Facts) -> str:
    """Which bytes of the arena are whose, from call to call."""
    calls, size = len(facts.layers), max(facts.arena.buffer_bytes, 1)
    height, left = 300, 70
    wide = (WIDTH - left - 10) / max(calls, 1)
    parts = [
        f'<text x="0" y="20">{printed_tables.size(size)}</text>'
        f'<text x="0" y="{height - 4}">0</text>'
    ]
    for number, item in enumerate(facts.items):
        offset = facts.arena.offsets[item.key]
        tall = (height - 20) * item.size / size
        y = height - 10 - (height - 20) * offset / size - tall
        first, last = max(item.first, 0), min(item.last, calls - 1)
        said = f"{item.key[0]} {item.key[1]}: {item.size} bytes"
        parts.append(
            f'<rect class="tensor tensor-{number % 6}" x="{left + first * wide:.1f}" y="{y:.1f}" '
            f'width="{(last - first + 1) * wide:.1f}" height="{max(tall, 0.5):.1f}">'
            f"<title>{escape(said)}</title></rect>"
        )
    return _svg(height, parts, "the arena over time")


def time_of(layer: LayerFacts) -> float:
    """What a layer's bar of time shows: seconds if they were measured, else predicted cycles."""
    return layer.seconds if layer.seconds is not None else layer.cycles or 0.0


def slug(text: str) -> str:
    """A text as a part of a class's name."""
    return "".join(c if c.isalnum() else "-" for c in text.lower()) or "none"


def _heads() -> Iterator[str]:
    yield f'<text class="head" x="{_GUTTER}" y="14">layer</text>'
    for x, _, title in _BARS:
        yield f'<text class="head" x="{x}" y="14">{title}</text>'


def _edges(layers: Sequence[LayerFacts]) -> Iterator[str]:
    """A line from what made a tensor to who reads it; those that skip layers in a bow."""
    for number, layer in enumerate(layers):
        for maker in layer.reads:
            x, y0, y1 = _GUTTER - 12, TOP + ROW * maker + 10, TOP + ROW * number + 10
            bow = min(_GUTTER - 16, 14 * (number - maker - 1))
            yield f'<path class="edge" d="M{x} {y0} C{x - bow} {y0} {x - bow} {y1} {x} {y1}"/>'


def _figure(layer: LayerFacts, title: str) -> str:
    """What a bar stands for, in its column's unit; nothing where it stands for nothing."""
    if title == _PRODUCTS:
        return short(layer.macs) if layer.macs else ""
    if title == _MEMORY:
        return f"{layer.alive_bytes / 1024:,.{0 if layer.alive_bytes >= 10240 else 1}f} KiB"
    if layer.seconds is not None:
        return f"{1e6 * layer.seconds:,.{0 if layer.seconds >= 1e-5 else 1}f} us"
    return f"{short(layer.cycles)} cycles" if layer.cycles else ""


def short(number: float) -> str:
    """A count in thousands or millions, in three digits or four."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:,.{0 if number >= 1000 * size else 1}f} {unit}"
    return f"{number:.0f}"


def _said(layer: LayerFacts) -> str:
    said = [layer.name, layer.how, layer.precision, layer.kernel]
    return ", ".join(part for part in said if part)


def _svg(height: int, parts: Sequence[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )
