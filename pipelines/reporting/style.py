"""The style of a report's page: its rules, and the colours of what its figures show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipelines.reporting import drawings
from pipelines.reporting.report_facts import LayerFacts

_COLOURS = ("#3b6fb6", "#c8553d", "#5b8c5a", "#8d6ab8", "#b08b2e", "#4f9da6", "#a45c7a", "#6b7280")
_HEATS = ("#dbe7f6", "#a9c6ea", "#6f9fd8", "#3b6fb6", "#1f4379")
STYLE = """
:root { color-scheme: light; --line: #d9dde3; --soft: #5d6673; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2430; margin: 0 auto; max-width: 1100px;
  padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; margin: 0; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; }
p.said { color: var(--soft); margin: .25rem 0 1rem; max-width: 75ch; }
.cards { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.card { border: 1px solid var(--line); border-radius: 8px; padding: .6rem .8rem; }
.card b { display: block; font-size: 1.25rem; } .card span { color: var(--soft); }
svg { width: 100%; height: auto; display: block; font: 12px system-ui, sans-serif; }
svg .value { fill: #5d6673; font-size: 11px; }
svg .head { fill: #5d6673; } svg .row { fill: transparent; } svg g:hover .row { fill: #f1f4f8; }
.figure { overflow-x: auto; } .figure svg { min-width: 760px; }
.front { fill: none; stroke: #3b6fb6; stroke-width: 2; } .best { fill: #3b6fb6; }
.beaten { fill: #b6bec9; }
.bars { margin: .5rem 0 1rem; font-size: 13px; }
.bar-row { display: grid; grid-template-columns: minmax(0, 14rem) minmax(0, 1fr); gap: .75rem; }
.bar-row > span { overflow-wrap: anywhere; } .bar-row > div { display: flex; align-items: center; }
.bar-row i { height: .8em; flex: none; background: #3b6fb6; }
.bar-row em { color: var(--soft); font-style: normal; margin-left: .5rem; font-size: 12px; }
.bar-row .bar-float { background: #b6bec9; } .bar-row .bar-worst { background: #c8553d; }
tr.worst td { background: #fbeae6; }
.edge { fill: none; stroke: #b6bec9; stroke-width: 1.5; } .tensor { stroke: #fff; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; } th { color: var(--soft); font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
code, td.code { font: 12px ui-monospace, monospace; overflow-wrap: anywhere; }
td.code { min-width: 20ch; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--soft); }
.pick { margin: .25rem .75rem .75rem 0; display: inline-block; }
.legend span { margin-right: 1rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px;
  margin-right: .35em; }
.legend { display: none; color: var(--soft); margin-bottom: .5rem; }
@media (max-width: 600px) { .bar-row { grid-template-columns: 1fr; gap: 0; } }
@media print {
  body { max-width: none; padding: 0; font-size: 11px; } h2 { break-after: avoid; }
  svg, tr, .card, .bar-row { break-inside: avoid; } .picks { display: none; }
  p.said { break-after: avoid; } details > * { display: block; }
  details::details-content { content-visibility: visible; height: auto; }
  .figure svg { min-width: 0; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; } }
"""
BY = ("how", "precision", "heat")
"""What layers can be coloured by."""


def legend(by: str, layers: Sequence[LayerFacts]) -> list[tuple[str, str]]:
    """Return what the colours mean, and the colours."""
    if by == "heat":
        return [("little time", _HEATS[0]), ("most time", _HEATS[-1])]
    texts = dict.fromkeys(getattr(layer, by) for layer in layers)
    return [(text or "none", _COLOURS[n % len(_COLOURS)]) for n, text in enumerate(texts)]


def colours(layers: Sequence[LayerFacts]) -> Iterable[str]:
    """The rules that colour nodes and bars by what is picked, and show its legend."""
    for by in ("how", "precision"):
        for text, colour in legend(by, layers):
            name = f"{by}-{drawings.slug('' if text == 'none' else text)}"
            yield f"#by-{by}:checked ~ .figure .{name} {{ fill: {colour}; }}\n"
    for number, colour in enumerate(_HEATS):
        yield f"#by-heat:checked ~ .figure .heat-{number} {{ fill: {colour}; }}\n"
    for by in BY:
        yield f"#by-{by}:checked ~ .legend-{by} {{ display: block; }}\n"
    for number in range(6):
        yield f".tensor-{number} {{ fill: {_COLOURS[number]}; opacity: .75; }}\n"
