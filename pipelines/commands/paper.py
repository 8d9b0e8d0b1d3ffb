"""`doit paper`: the tables and figures of the sources, each with ours beside what was published."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from pipelines.benchmarks.result_origin import revision
from pipelines.errors import CheckError
from pipelines.output import part_progress, printed_tables
from pipelines.paper import all_figures as everything
from pipelines.paper import needs, runs
from pipelines.paper.figure import Bars, Figure, Part, Scatter, Table
from pipelines.paper.paper_page import page, results_of, state
from pipelines.paper.runs import RunError
from pipelines.recipe.overrides import Variables
from pipelines.reporting.page_file import write


def run(*, variables: Variables) -> None:
    """Write the page from all results there are; figure=NAME,... first measures those, as far as
    this code and processor have not, and prints them. json=FILE has the values on the page."""
    every = everything.figures()
    asked = variables.command.get("figure")
    wanted = everything.chosen(asked, every) if asked is not None else []
    needs.check([figure for figure in wanted if not _is_known(figure)])
    failed = _measure(wanted)
    for figure in wanted:
        _print(figure)
    if not wanted:
        rows = [{"figure": each.name, "known": state(each), "is": each.heading} for each in every]
        printed_tables.show("tables and figures of the sources", rows, list(rows[0]))
    write(page(every, f"bitkiln {revision()}"), variables.command.get("out"), "paper")
    printed_tables.write_json(
        variables.command.get("json"), [_data(each) for each in wanted or every]
    )
    if failed:
        raise CheckError("paper: no result of\n  " + "\n  ".join(failed))


def _measure(figures: Sequence[Figure]) -> list[str]:
    """Run what is not known yet, one command after the other; return what failed, and why."""
    wanted = [*dict.fromkeys(run for figure in figures for run in figure.runs)]
    todo = [each for each in wanted if not runs.is_current(each)]
    if wanted:
        said = (
            f"{len(wanted) - len(todo)} of {len(wanted)} results were measured here, by this code"
        )
        print(f"{said}; measuring {len(todo)}", file=sys.stderr)
    failed = []
    with part_progress.shown([each.command for each in todo]) as done:
        for each in todo:
            started, said = time.monotonic(), ""
            try:
                runs.measure(each)
            except RunError as error:
                failed.append(f"{each.command}: {error}")
                said = f"FAILED: {error}, "
            done(each.command, f"{said}{time.monotonic() - started:.0f} s")
    return failed


def _is_known(figure: Figure) -> bool:
    return all(runs.is_current(each) for each in figure.runs)


def _print(figure: Figure) -> None:
    print(f"\n{figure.heading}\npublished: {figure.published}\nours: {figure.ours}")
    parts = figure.show(results_of(figure))
    for part in parts:
        _print_part(part)
    if not parts:
        print("no results")


def _print_part(part: Part) -> None:
    if isinstance(part, Bars):
        rows = [{"what": bar.name, "value": bar.said} for bar in part.rows]
        printed_tables.show(part.title, rows, ["what", "value"])
        return
    if isinstance(part, Scatter):
        return  # the same values stand in a table below
    lines = [dict(zip(part.heads, row, strict=True)) for row in part.rows]
    printed_tables.show(part.title or "as a table", lines, part.heads)


def _data(figure: Figure) -> dict[str, Any]:
    """What the page says of a figure, as plain data."""
    parts = [_plain(part) for part in figure.show(results_of(figure))]
    return {
        "figure": figure.name,
        "heading": figure.heading,
        "published": figure.published,
        "ours": figure.ours,
        "not_shown": figure.cannot,
        "parts": parts,
    }


def _plain(part: Part) -> dict[str, Any]:
    if isinstance(part, Table):
        rows = [list(row) for row in part.rows]
        return {"title": part.title, "heads": list(part.heads), "rows": rows}
    if isinstance(part, Bars):
        return {"title": part.title, "rows": [[bar.name, bar.value, bar.said] for bar in part.rows]}
    points = [[point.name, point.across, point.up] for point in part.points]
    return {"title": part.title, "across": part.axes.across, "up": part.axes.up, "points": points}
