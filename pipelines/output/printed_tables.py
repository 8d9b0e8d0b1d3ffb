"""Tables that commands print, and the same results as a JSON file."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.errors import shown
from pipelines.output import abbreviations, out_files

Row = Mapping[str, Any]

LONGEST = 64
"""Characters of a cell."""


def show(title: str, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print rows below a title; on a terminal they wrap, elsewhere each is one plain line.

    Long texts are made short, as names of layers that TensorFlow Lite has joined, but in the last
    column; different ones stay different.
    """
    if not rows:
        return
    texts = [[_text(row.get(column)) for column in columns] for row in rows]
    whole = [*zip(*texts, strict=True)]
    short = [abbreviations.column(cells, LONGEST) for cells in whole[:-1]]
    texts = [list(line) for line in zip(*short, whole[-1], strict=True)]
    heads = [column.replace("_", " ") for column in columns]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*heads, title=title, title_justify="left", box=None)
        for line in texts:
            table.add_row(*(Text(cell) for cell in line))
        Console().print(table)
        return
    print(title)
    texts.insert(0, heads)
    widths = [max(len(line[i]) for line in texts) for i in range(len(columns))]
    for line in texts:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print(f"  {'  '.join(cells)}".rstrip())


def microseconds(seconds: float | None) -> str:
    """Return a time as a cell of a table; nothing where there is none."""
    return "" if seconds is None else f"{1e6 * seconds:.1f}"


def between(values: Sequence[float], digits: int) -> str:
    """Return a range as a cell of a table."""
    return " to ".join(f"{value:.{digits}f}" for value in values)


def size(count: int) -> str:
    """Return bytes as KiB or MiB with a decimal."""
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def write_json(name: str | None, result: object) -> None:
    """Write a command's result where json=FILE says, if it does."""
    if name is None:
        return
    text = json.dumps(_finite(result), indent=1, allow_nan=False)
    path = out_files.write("json", name, f"{text}\n".encode())
    print(f"written: {shown(path)}", file=sys.stderr)


def _finite(value: object) -> object:
    """Return plain data with NaN and infinity as text: JSON has no numbers for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, list | dict | bool) else str(value)
