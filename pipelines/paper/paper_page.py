"""The page of all tables and figures, and how much of each is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from pipelines.paper.figure import Figure, Part, Results, Scatter, Table
from pipelines.paper.runs import Found, Run, find
from pipelines.reporting import scatter
from pipelines.reporting.page_parts import bars, table
from pipelines.reporting.report_page import html
from pipelines.reporting.style import STYLE

_MORE = """
nav ol { columns: 2; padding-left: 1.25rem; font-size: 13px; } nav li { break-inside: avoid; }
h3 { font-size: .95rem; margin: 1.25rem 0 .25rem; }
dl { display: grid; grid-template-columns: 6rem minmax(0, 1fr); gap: .25rem .75rem; margin: .5rem 0;
  max-width: 85ch; } dt { color: var(--soft); } dd { margin: 0; }
@media (max-width: 600px) { nav ol { columns: 1; } dl { grid-template-columns: 1fr; } }
"""


def results_of(figure: Figure) -> Results:
    """Return what is known of a figure's runs."""
    found = ((run, find(run)) for run in figure.runs)
    return {run: each for run, each in found if each is not None}


def state(figure: Figure) -> str:
    """Return how much of a figure is known, as a cell."""
    known = results_of(figure)
    if not figure.runs:
        return "nothing to measure"
    shipped = sum(each.is_shipped for each in known.values())
    said = f"{len(known)} of {len(figure.runs)} results"
    return f"{said}, {shipped} of them shipped" if shipped else said


def page(figures: Sequence[Figure], origin: str) -> str:
    """Return the page; `origin` is one line of what wrote it."""
    parts = [
        "<h1>What the sources show, and what bitkiln gives</h1>",
        f'<p class="said">{escape(origin)}. Grey bars are published values, or what ours is '
        "compared with. Measured: timed on the processor that is named. Modelled: cycles of a "
        "model of the board's core, from instructions counted under QEMU and simulated caches; no "
        "board was timed. Computed: from shapes and sizes.</p>",
        "<nav><ol>",
        *(f'<li><a href="#{each.name}">{escape(each.heading)}</a></li>' for each in figures),
        "</ol></nav>",
    ]
    for each in figures:
        parts += _section(each)
    return html("bitkiln beside its sources", STYLE + _MORE, parts)


def _section(figure: Figure) -> Iterator[str]:
    known = results_of(figure)
    yield f'<h2 id="{figure.name}">{escape(figure.heading)}</h2>'
    said = [("published", figure.published), ("ours", figure.ours)]
    said += [("not shown", figure.cannot)] if figure.cannot else []
    if known:
        said.append(("from", _where(known)))
    yield f"<dl>{''.join(f'<dt>{a}</dt><dd>{_prose(b)}</dd>' for a, b in said)}</dl>"
    for part in figure.show(known):
        yield from _part(part)
    yield from _origins(figure, known)


def _where(known: Results) -> str:
    """Where results were measured or modelled, and when."""
    places = sorted({each.processor for each in known.values()})
    dates = sorted({each.date for each in known.values()})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"{'; '.join(places)}; {when}"


def _prose(text: str) -> str:
    """A text with `code` set as such."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if n % 2 else p for n, p in enumerate(pieces))


def _part(part: Part) -> Iterable[str]:
    if isinstance(part, Table):
        numbers = [n for n in range(1, len(part.heads)) if _is_numeric(part, n)]
        title = f"<h3>{escape(part.title)}</h3>" if part.title else ""
        return [title, table(part.heads, part.rows, numbers)]
    title = f"<h3>{escape(part.title)}</h3>"
    if isinstance(part, Scatter):
        return [title, f'<div class="figure">{scatter.figure(part.points, part.axes)}</div>']
    return [title, bars(part.rows, part.title)]


def _is_numeric(part: Table, column: int) -> bool:
    """Whether most cells of a column are numbers, or begin with one."""
    cells = [row[column] for row in part.rows if row[column]]
    return 2 * sum(cell.lstrip("+-")[:1].isdigit() for cell in cells) > len(cells)


def _origins(figure: Figure, known: Results) -> Iterator[str]:
    missing = [run for run in figure.runs if run not in known]
    if missing:
        yield (
            f'<p class="said">Not measured yet: {len(missing)} of {len(figure.runs)} results. '
            f"<code>doit paper figure={figure.name}</code> measures all that this machine has "
            "not.</p>"
        )
    if known:
        rows = [_origin(run, each) for run, each in known.items()]
        heads = ["command", "processor", "bitkiln", "date"]
        listed = table(heads, rows, (), {0})
        yield f"<details><summary>the commands</summary>{listed}</details>"


def _origin(run: Run, found: Found) -> list[str]:
    kept = f"{found.bitkiln}, shipped" if found.is_shipped else found.bitkiln
    return [run.command, found.processor, kept, found.date]
