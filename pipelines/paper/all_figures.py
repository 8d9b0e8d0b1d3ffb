"""All tables and figures that there are, in the order of the sources."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.errors import UserError, did_you_mean
from pipelines.paper import accuracy_figures, arm_reports, cgo, qnn
from pipelines.paper.figure import Figure


def figures() -> list[Figure]:
    """Return every table and figure."""
    of_cgo = [*cgo.figures(), accuracy_figures.figure_8()]
    return [
        *sorted(of_cgo, key=_number),
        *accuracy_figures.tables(),
        *qnn.figures(),
        *arm_reports.figures(),
    ]


def _number(figure: Figure) -> tuple[bool, int]:
    kind, number = figure.number.split()
    return kind != "Table", int(number)


def chosen(text: str, every: Sequence[Figure]) -> list[Figure]:
    """Return the figures that names mean, or all; UserError for a name of none."""
    known = {figure.name: figure for figure in every}
    if text == "all":
        return [*every]
    names = [name for name in (part.strip() for part in text.split(",")) if name]
    for name in names:
        if name not in known:
            raise UserError(f"figure={name}: no such figure{did_you_mean(name, [*known, 'all'])}")
    if not names:
        raise UserError("figure= names none; `doit paper` lists them")
    return [known[name] for name in dict.fromkeys(names)]
