"""The table of all packages, and the sentence below it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.comparing.verdicts import Row, Verdict

PROOFS = {
    "bytes": {Verdict.BYTES},
    "code": {Verdict.BYTES, Verdict.CODE},
    "outputs": {Verdict.BYTES, Verdict.CODE, Verdict.OUTPUTS, Verdict.NOT_RUN},
}
"""Which verdicts are accepted, by the proof that is asked for: a machine runs what it can."""
_FILE_WIDTH = 160
_STYLES = {Verdict.DEPARTS: "red", Verdict.NOT_RUN: "yellow", Verdict.OUTPUTS: "cyan"}


def show(rows: Sequence[Row]) -> None:
    """Print a row for each package but those with the same bytes, which are only counted."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("package", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    for title in ("static", "executed", "time"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("reasons", overflow="fold")
    for row in rows:
        if row.verdict is not Verdict.BYTES:
            style = _STYLES.get(row.verdict, "")
            figures = (_counts(row.static), _counts(row.executed), _time(row))
            verdict = f"[{style}]{row.verdict.value}[/]" if style else row.verdict.value
            table.add_row(row.package, verdict, *figures, "\n".join(row.reasons))
    if table.row_count:
        console.print(table)


def summary(rows: Sequence[Row], seconds: float) -> str:
    """How many packages have each verdict."""
    counts = Counter(row.verdict for row in rows)
    said = ", ".join(f"{counts[item]} {item.value}" for item in Verdict if counts[item])
    return f"{len(rows)} packages in {seconds:.0f} s: {said}"


def is_proved(rows: Sequence[Row], proof: str) -> bool:
    """Whether no package lacks the proof that was asked for; those refused alike need none."""
    return all(row.verdict in PROOFS[proof] | {Verdict.REFUSED} for row in rows)


def write(rows: Sequence[Row], titles: tuple[str, str], seconds: float, path: Path) -> None:
    """Write everything as JSON."""
    tree = {
        "old": titles[0],
        "new": titles[1],
        "seconds": round(seconds, 1),
        "packages": [row.plain() for row in rows],
    }
    path.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")


def _counts(pair: tuple[int | None, int | None] | None) -> str:
    if pair is None:
        return ""
    old, new = ("?" if value is None else f"{value:,}" for value in pair)
    return old if old == new else f"{old} → {new}"


def _time(row: Row) -> str:
    if row.ratio is None or row.noise is None:
        return ""
    return f"{row.ratio:.3f} ±{row.noise:.3f}"
