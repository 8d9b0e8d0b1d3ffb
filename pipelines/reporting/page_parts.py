"""What the sections of a page are made of: tables, and bars with their values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Bar:
    """A row of a figure of bars."""

    name: str
    value: float
    """How long it is, from 0."""
    said: str
    """What stands behind it."""
    kind: str = "plain"
    """The class that colours it: plain, float or worst."""


def bars(rows: Sequence[Bar], label: str) -> str:
    """Return rows of bars, the largest value over the whole width."""
    most = max((row.value for row in rows if row.value > 0), default=1.0)
    found = "".join(
        f'<div class="bar-row"><span>{escape(row.name)}</span><div><i class="bar-{row.kind}" '
        f'style="width:{60 * max(row.value, 0.0) / most:.2f}%"></i>'
        f"<em>{escape(row.said)}</em></div></div>"
        for row in rows
    )
    return f'<div class="bars" role="img" aria-label="{escape(label)}">{found}</div>'


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Iterable[int],
    code: Iterable[int] = (),
    marked: int | None = None,
) -> str:
    """Return a table; `numbers` and `code` are the columns set as such, `marked` is a row that
    stands out."""
    kinds = {n: ' class="number"' for n in numbers} | {n: ' class="code"' for n in code}
    head = "".join(f"<th{kinds.get(n, '')}>{escape(t)}</th>" for n, t in enumerate(titles))
    body = "".join(
        ('<tr class="worst">' if number == marked else "<tr>")
        + "".join(f"<td{kinds.get(n, '')}>{escape(str(v))}</td>" for n, v in enumerate(row))
        + "</tr>"
        for number, row in enumerate(rows)
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        "</table></div>"
    )
