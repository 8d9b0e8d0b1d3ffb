"""Many recipes built one after the other, or several at a time, each by a `doit build` of its own.

A build that fails, or dies, is a row like others. What a row says is read from the lines that a
build prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from pipelines import exit_status
from pipelines.builds.plan import VERIFYING
from pipelines.errors import UserError
from pipelines.recipe import load

_LINE = re.compile(
    r"^(\w+) +(built|fetched|cached|written|skipped)\b(?: +[\d.]+ s)? *(.*)$", re.MULTILINE
)
"""A line of a build: stage, what became of it, and what is to be said of it."""
PACKAGING = "packaging"
ERROR = "ERROR: "


@dataclass(frozen=True)
class Built:
    """One recipe and what came of it."""

    recipe: str
    board: str | None
    """None of a recipe that cannot be read."""
    package: str
    """built, fetched, cached or failed."""
    verified: str | None
    """What the golden samples said and how they were run; None where they were not."""
    why: str
    """Why it was not verified, or the first line of what went wrong."""
    status: int
    """As the build's process ended."""
    seconds: float
    output: str
    """All that the build wrote."""

    @property
    def is_fine(self) -> bool:
        """Whether there is a package, and nothing speaks against it."""
        return self.status == exit_status.DONE


def build_all(recipes: Sequence[str], jobs: int) -> Iterator[Built]:
    """Build recipes, so many at a time; yield each when it is done."""
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(build, recipe) for recipe in recipes]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def build(recipe: str) -> Built:
    """Build a recipe by its name in a process of its own."""
    started = time.monotonic()
    try:
        board = load.load_recipe(recipe).recipe.hardware
    except UserError as error:
        seconds = time.monotonic() - started
        return failed(recipe, None, exit_status.MISTAKE, seconds, f"{ERROR}{error}\n")
    done = subprocess.run(
        [sys.executable, "-m", "doit", "build", f"recipe={recipe}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # Both are written to one pipe, in order.
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        check=False,
    )
    seconds = time.monotonic() - started
    if done.returncode != exit_status.DONE:
        return failed(recipe, board, done.returncode, seconds, done.stdout)
    return parse_output(recipe, board, seconds, done.stdout)


def parse_output(recipe: str, board: str | None, seconds: float, output: str) -> Built:
    """What the lines of a build that went well say."""
    lines = {stage: (state, said) for stage, state, said in _LINE.findall(output)}
    package, _ = lines.get(PACKAGING, ("cached", ""))
    state, said = lines.get(VERIFYING, ("skipped", "the build says nothing of it"))
    verified, why = (None, said) if state == "skipped" else (said or "before", "")
    return Built(recipe, board, package, verified, why, exit_status.DONE, seconds, output)


def failed(recipe: str, board: str | None, status: int, seconds: float, output: str) -> Built:
    """What a build says that ended with a status, or by a signal: its first error."""
    said = [line.removeprefix(ERROR) for line in output.splitlines() if line.startswith(ERROR)]
    if status < 0:
        said = [f"ended by signal {-status}"]
    why = said[0] if said else f"ended with status {status}"
    return Built(recipe, board, "failed", None, why, status, seconds, output)
