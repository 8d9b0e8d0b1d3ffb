"""BENCHMARKS.md, out of kept results: `python -m pipelines.benchmarks.results_page [FILE ...]`.

A FILE is what `doit bench ... json=FILE` wrote. It is kept beside the others in `results`, without
the time of every turn; then the page is written anew. Without files only the page is.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.benchmarks import contestants
from pipelines.emulating import emulated_primitives, result_tables
from pipelines.errors import UserError
from pipelines.output import printed_tables
from pipelines.store import keys

RESULTS = Path(__file__).with_name("results")
INTRODUCTION, EARLIER = RESULTS / "INTRODUCTION.md", RESULTS / "EARLIER.md"
"""How the page begins, and what was measured before results were kept as files: by hand."""
PAGE = keys.ROOT / "pipelines" / "BENCHMARKS.md"

NEEDED = {
    *("recipe", "command", "fields", "date", "bitkiln", "engines"),
    *("processor", "core", "cpus", "threads"),
}
"""What a result says of itself, and the page of it."""
_SIDES = ("threads", "side", "ms", "middle half", "takes", "middle half", "differs")
_SIZES = ("network", "multiply-accumulates", "time", "ms")


def files() -> dict[Path, str]:
    """Return the generated page and its text."""
    return {PAGE: render(_read(path) for path in sorted(RESULTS.glob("*.json")))}


def render(results: Iterable[Mapping[str, Any]]) -> str:
    """Return the page: a section a machine, in it a table a result, then what was before."""
    machines: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        machines.setdefault(_machine(result), []).append(result)
    parts = [INTRODUCTION.read_text(encoding="utf-8")]
    for title, found in sorted(machines.items()):
        parts += [f"## {title}\n", *(_section(result) for result in found)]
    parts.append(f"## Earlier\n\n{EARLIER.read_text(encoding='utf-8')}")
    return "\n".join(parts)


def kept(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result without the time of every turn; UserError if the page cannot show it."""
    is_whole = result.keys() >= NEEDED
    has_rows = not result.keys().isdisjoint({"rows", "primitives"})
    if not is_whole or not (has_rows or isinstance(result["threads"], list)):
        raise UserError(
            "no result that the page shows: it takes those of `doit bench recipe=NAME json=FILE`, "
            "with grow= or without, of this machine or emulated, and with primitives= emulated"
        )
    small = {key: value for key, value in result.items() if key != "seconds"}
    if isinstance(small["threads"], list):
        small["threads"] = [
            {key: value for key, value in part.items() if key != "seconds"}
            for part in small["threads"]
        ]
    return small


def _machine(result: Mapping[str, Any]) -> str:
    count, core = result["cpus"], f" ({result['core']})" if result["core"] else ""
    return f"{result['processor']}{core}, {count} CPU{'s' if count > 1 else ''}"


def _section(result: Mapping[str, Any]) -> str:
    fields = "".join(f", {name}={value}" for name, value in result["fields"].items())
    engines = "".join(f", {name} {version}" for name, version in result["engines"].items())
    about = f"`{result['command']}`, {result['date']}, bitkiln {result['bitkiln']}{engines}."
    if "load_at_start" in result:
        about += f" The load was {result['load_at_start']:.1f} at the start."
    if "onednn_max_cpu_isa" in result:
        about += f" oneDNN was kept to {result['onednn_max_cpu_isa']}."
    if "emulated" in result:
        about += f" QEMU {result['emulated']['qemu']}, -cpu {result['emulated']['cpu']}."
        body = _primitives(result) if "primitives" in result else result_tables.section(result)
    else:
        body = _sizes(result) if "rows" in result else _sides(result)
    return f"### {result['recipe']}{fields}\n\n{about}\n\n{body}"


def _primitives(result: Mapping[str, Any]) -> str:
    """What each scheduling primitive adds, as Figure 4 of Cowan et al. (CGO 2020) has it."""
    rows = emulated_primitives.table(result["primitives"])
    about = (
        "Thousands of cycles (modelled), and how many times as fast as our own float32 on as many "
        "threads. Loops have one primitive more from column to column; several threads take what "
        "the longest part takes.\n\n"
    )
    return about + _table(list(rows[0]), [list(row.values()) for row in rows])


def _sides(result: Mapping[str, Any]) -> str:
    rows, refused = [], []
    for part in result["threads"]:
        for row in part["rows"]:
            is_package = "ratio" not in row
            rows.append(
                [
                    str(part["threads"]),
                    row["what"],
                    f"{row['median_ms']:.3f}",
                    printed_tables.between(row["quartiles_ms"], 3),
                    "" if is_package else f"{row['ratio']:.2f}",
                    "" if is_package else printed_tables.between(row["ratio_quartiles"], 2),
                    "" if row.get("difference") is None else f"{row['difference']:.6g}",
                ]
            )
        refused += [f"{each['what']}: {each['why']}" for each in part["refused"]]
    notes = [*_on_float32({row[1] for row in rows}), *(f"Not timed: {each}." for each in refused)]
    return _table(_SIDES, rows) + "".join(f"\n{text}\n" for text in dict.fromkeys(notes))


def _on_float32(names: Iterable[str]) -> list[str]:
    """What a table's figures of OpenVINO's floats stand for."""
    found = [re.fullmatch(r"OpenVINO \S+, (.+)", name) for name in names]
    precisions = {match[1] for match in found if match}
    if precisions.isdisjoint(contestants.ROUNDED):
        return []
    if not precisions.isdisjoint(contestants.ROUNDED.values()):
        return [
            "OpenVINO was asked for float32. Its own default is bfloat16 here, because the "
            "processor has it; the row that says so is what it takes by that default."
        ]
    return [
        "OpenVINO was asked for float32. Its own default is bfloat16 on processors that have it; "
        "this processor, or the recipe's hardware, has not."
    ]


def _sizes(result: Mapping[str, Any]) -> str:
    rows = [
        [
            row["what"],
            f"{row['times_the_macs']:.2f}",
            f"{row['times_the_time']:.2f}",
            f"{1e3 * row['seconds']:.3f}",
        ]
        for row in result["rows"]
    ]
    return _table(_SIZES, rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: no JSON: {error}") from error
    try:
        return kept(found if isinstance(found, dict) else {})
    except UserError as error:
        raise UserError(f"{path}: {error.message}") from error


def main(names: Sequence[str]) -> None:
    """Keep results that were measured, and write the page."""
    # All are read before one is kept: a mistake leaves everything as it was.
    found = {Path(name).name: _read(Path(name)) for name in names}
    for name, result in found.items():
        printed_tables.write_json(str((RESULTS / name).with_suffix(".json")), result)
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as _error:
        sys.exit(f"ERROR: {_error.message}")
