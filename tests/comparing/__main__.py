"""The command: `python -m tests.comparing OLD NEW`; --help lists the rest."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pipelines.errors import UserError
from tests.comparing import report
from tests.comparing.checkouts import ROOT, resolve
from tests.comparing.execution import measure
from tests.comparing.jobs import Job, chosen
from tests.comparing.sides import Side, prepared, write_models
from tests.comparing.verdicts import Row, compare, refused

FOLDER = ROOT / "artifacts" / "comparing"
QUICK_SECONDS, WHOLE_SECONDS = 3.0, 5.0
"""For how long a changed package is timed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare as the command line says; 0 proved, 1 not proved, 2 a mistake of the user's."""
    options = _parser().parse_args(arguments)
    begin = time.monotonic()
    console = Console(stderr=True)
    try:
        old, new = resolve(options.old), resolve(options.new)
        sides = prepared(old, new, options.folder.resolve())
        checkouts = [side.checkout for side in sides]
        jobs = chosen(checkouts, options.recipes, quick=options.quick)
        rows = _compared(sides, jobs, QUICK_SECONDS if options.quick else WHOLE_SECONDS, console)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; packages that were built are kept", file=sys.stderr)
        return 130
    seconds = time.monotonic() - begin
    report.show(rows)
    print(report.summary(rows, seconds))
    if options.json:
        report.write(rows, (old.title, new.title), seconds, options.json)
    return 0 if report.is_proved(rows, options.proof) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.comparing",
        description="Build the packages of two commits and say what differs.",
    )
    parser.add_argument("old", help="a commit, or . for the working tree")
    parser.add_argument("new", help="a commit, or . for the working tree")
    parser.add_argument("--quick", action="store_true", help="a few small packages")
    parser.add_argument(
        "--proof",
        choices=tuple(report.PROOFS),
        default="outputs",
        help="what every package must have in common for status 0 (default: outputs)",
    )
    parser.add_argument(
        "--recipes", nargs="+", default=[], metavar="PATTERN", help="only those called like this"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="where checkouts and packages are kept"
    )
    return parser


def _compared(
    sides: tuple[Side, Side], jobs: Sequence[Job], seconds: float, console: Console
) -> list[Row]:
    write_models(jobs, sides[0].models)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        _build(sides, jobs, progress)
        task = progress.add_task("compare", total=len(jobs))
        rows = []
        for job in jobs:
            progress.update(task, description=f"compare {job.name}")
            rows.append(_row(sides, job, seconds))
            progress.advance(task)
    return rows


def _build(sides: tuple[Side, Side], jobs: Sequence[Job], progress: Progress) -> None:
    """Build both sides at the same time; nothing is timed meanwhile."""
    with ThreadPoolExecutor(len(sides)) as pool:
        futures = []
        for side in sides:
            task = progress.add_task(f"build {side.revision.title}", total=len(jobs))
            futures.append(pool.submit(side.build, jobs, partial(progress.advance, task)))
        try:
            for future in futures:
                future.result()
        finally:
            for side in sides:
                side.stop()


def _row(sides: tuple[Side, Side], job: Job, seconds: float) -> Row:
    old, new = sides
    failures = old.failure(job), new.failure(job)
    if any(failures):
        return refused(job.name, *failures)
    return compare(
        job.name,
        old.package(job),
        new.package(job),
        lambda before, after: measure(before, after, seconds),
    )


if __name__ == "__main__":
    sys.exit(main())
