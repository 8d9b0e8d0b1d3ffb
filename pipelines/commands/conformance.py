"""`doit conformance FOLDER ...`: every model file beside its framework's own runtime."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines import work_folder
from pipelines.commands import arguments
from pipelines.conformance import examiner_process, results_file
from pipelines.errors import CheckError, UserError, shown
from pipelines.evaluation import picture_inputs
from pipelines.output import printed_tables
from pipelines.paths import expanded
from pipelines.recipe.overrides import Variables

RESULTS = work_folder.ARTIFACTS / "conformance.jsonl"
SAMPLES = 20
PICTURES = 5
COLUMNS = (
    *("file", "format", "status", "steps", "difference", "samples"),
    *("import_s", "import_MiB", "package", "why"),
)
FINE = ("exact", "close", "alone", "refused")


def run(*, variables: Variables, files: Sequence[str]) -> None:
    """Print one row a model file and the sums; fail if a file crashed or differs.

    samples=N inputs are drawn (20), and pictures=FOLDER adds some of its pictures for networks
    that take such. packages=yes also builds each network for this machine and compares its
    library. Finished rows are kept in artifacts/conformance.jsonl and not found out again.
    """
    paths = [expanded(name).absolute() for name in files]
    found = list(results_file.model_files_in(paths))
    if not found:
        raise UserError("names no model file; for example: doit conformance models/")
    settings = _settings(variables)
    kept = results_file.ResultsFile(RESULTS)
    rows: list[dict[str, Any]] = []
    with _counted(len(found)) as advance, examiner_process.Worker() as worker:
        for path in found:
            advance(path)
            rows.append({"file": _name(path, paths), **_found_out(path, settings, kept, worker)})
    printed_tables.show("conformance", [_shown(row) for row in rows], COLUMNS)
    sums = Counter(row["status"] for row in rows)
    print(", ".join(f"{count} {status}" for status, count in sorted(sums.items())))
    result = {"settings": settings, "sums": dict(sums), "rows": rows}
    printed_tables.write_json(variables.command.get("json"), result)
    bad = [row["file"] for row in rows if not _is_fine(row)]
    if bad:
        raise CheckError(f"{len(bad)} of {len(rows)} files crashed or differ, such as {bad[0]}")


def _found_out(
    path: Path,
    settings: dict[str, Any],
    kept: results_file.ResultsFile,
    worker: examiner_process.Worker,
) -> dict[str, Any]:
    """Return a file's row, kept or new; one that cannot be read has a row that is not kept."""
    try:
        key = results_file.key_of(path, settings)
    except UserError as error:
        return {"status": "damaged", "why": str(error)}
    row = kept.row(key)
    if row is None:
        row = worker.row(path, settings)
        kept.add(key, row)
    return row


def _settings(variables: Variables) -> dict[str, Any]:
    packages = variables.command.get("packages", "no")
    if packages not in ("yes", "no"):
        raise UserError(f"packages={packages}: accepted: yes, no")
    folder = variables.command.get("pictures")
    shown_to: list[str] = []
    if folder is not None:
        inside = sorted(expanded(folder).absolute().rglob("*"))
        shown_to = [str(path) for path in inside if picture_inputs.is_picture(path)][:PICTURES]
        if not shown_to:
            raise UserError(f"pictures={folder}: holds no picture")
    return {
        "samples": arguments.samples(variables) or SAMPLES,
        "pictures": shown_to,
        "packages": packages == "yes",
    }


def _is_fine(row: dict[str, Any]) -> bool:
    package = row.get("package", {"status": "exact"})
    return row["status"] in (*FINE, "damaged") and package["status"] in (*FINE, "not run")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    grown = row.get("import_bytes")
    unsupported = "; ".join(f"{item['op']}: {item['why']}" for item in row.get("unsupported", []))
    package = row.get("package")
    return {
        **row,
        "import_s": row.get("import_seconds"),
        "import_MiB": None if grown is None else round(grown / 2**20, 1),
        "package": package and package["status"],
        "why": unsupported or " ".join(str(row.get("why", "")).split()) or _followed(row),
    }


def _followed(row: dict[str, Any]) -> str:
    """Say where ONNX Runtime's default session is not followed, and what is close by nature."""
    from stages.numerics.onnx_islands import INTEGERS, UNOPTIMIZED

    said = []
    if "from_default" in row:
        found = row["from_default"]
        by = max(found.get("steps", 0.0), found.get("difference", 0.0))
        kinds = [item for item in row["islands"] if item["gives"] == UNOPTIMIZED]
        named = ", ".join(
            f"{item['runtime'].split()[0].strip(',')} ({len(item['layers'])})" for item in kinds
        )
        said.append(f"{UNOPTIMIZED} at {named}, by {by:.3g} off the default session")
    exact = [item for item in row.get("islands", []) if item["gives"] == INTEGERS]
    if exact and row["status"] == "differs":
        count = sum(len(item["layers"]) for item in exact)
        said.append(f"the runtime adds up {count} layers as floats, a package exactly")
    if "moved_by_last_bits" in row:
        by = row["moved_by_last_bits"]
        said.append(f"last bits of float sums, quantized dynamically, move outputs by {by:.3g}")
    return "; ".join(said)


def _name(path: Path, given: Sequence[Path]) -> str:
    """Return a file's path inside the folder that was given, else as the user would write it."""
    folder = next((each for each in given if path != each and path.is_relative_to(each)), None)
    return path.relative_to(folder).as_posix() if folder else shown(path)


@contextmanager
def _counted(count: int) -> Iterator[Any]:
    """Show how far the files are, where someone is looking."""
    if not sys.stdout.isatty():
        yield lambda path: None
        return
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("", total=count, completed=-1)
        yield lambda path: progress.update(task, advance=1, description=path.name)
