"""Commands whose results figures show: each is run once and kept, in `artifacts/paper`.

A result says what code and which processor gave it. One of the same is not measured again, so that
an interrupted figure goes on where it was. Where nothing was measured here, the result that comes
with bitkiln for the very same command is shown instead: one of `paper/results`, which are such
files, or one of the page of benchmarks.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines import exit_status, work_folder
from pipelines.benchmarks.engines import ENGINES
from pipelines.benchmarks.result_origin import revision
from pipelines.benchmarks.results_page import RESULTS
from pipelines.emulating.result_tables import CYCLES, INSTRUCTIONS
from pipelines.machine import core, processor
from pipelines.store import atomic, keys

KEPT = work_folder.ARTIFACTS / "paper"
SHIPPED = Path(__file__).with_name("results")
_LEFT_OUT = {"predictions", "labels", "kinds", "exactness"}
_NEEDED = {"command", "made_by", "processor", "bitkiln", "date", "result"}


@dataclass(frozen=True)
class Run:
    """One command line of doit, without `json=`."""

    words: tuple[str, ...]
    has_layers: bool = field(default=False, compare=False)
    """Whether a figure shows what it says of single layers; else that is not kept."""

    @property
    def command(self) -> str:
        """The command line, as results of `doit bench` name theirs."""
        return shlex.join(["doit", *self.words])

    @property
    def file(self) -> str:
        """The name of the file of its result, of its words; a hash tells like names apart."""
        words = [word.rpartition("=")[2] for word in self.words]
        name = re.sub(r"[^\w.,]+", "_", "_".join(words)).strip("_")[:80]
        return f"{name}_{keys.digest(self.command)[:8]}.json"


def run(line: str, *, has_layers: bool = False) -> Run:
    """Return the run of a command line behind `doit`."""
    return Run(tuple(shlex.split(line)), has_layers)


@dataclass(frozen=True)
class Found:
    """What a run gave, and where and when."""

    run: Run
    result: Mapping[str, Any]
    processor: str
    """With its core."""
    bitkiln: str
    """The commit, or the version."""
    date: str
    is_shipped: bool
    """Whether it comes with bitkiln, and was not measured here."""


class RunError(Exception):
    """A command that gave no result; its text is the first line that it wrote of it."""


def find(wanted: Run) -> Found | None:
    """Return the result that was measured here, else the one that comes with bitkiln, if any."""
    for folder in (KEPT, SHIPPED):
        kept = _kept(folder, wanted)
        if kept is not None:
            return _found(wanted, kept["result"], kept, is_shipped=folder == SHIPPED)
    benched = _benched().get(wanted.command)
    return None if benched is None else _found(wanted, benched, benched, is_shipped=True)


def _found(
    wanted: Run, result: Mapping[str, Any], about: Mapping[str, Any], is_shipped: bool
) -> Found:
    where, what, when = (str(about[name]) for name in ("processor", "bitkiln", "date"))
    known = result.get("core") if isinstance(result, Mapping) else None
    if (named := about.get("core") or known) and f"({named})" not in where:
        where = f"{where} ({named})"
    return Found(wanted, result, where, what, when, is_shipped)


def is_current(wanted: Run) -> bool:
    """Whether this code gave the kept result, on this processor."""
    kept = _kept(KEPT, wanted)
    return kept is not None and kept["made_by"] == _made_by()


def measure(wanted: Run) -> None:
    """Run a command and keep its result; RunError, and nothing is kept, if it fails."""
    with tempfile.TemporaryDirectory(prefix="bitkiln-paper-") as folder:
        result = Path(folder) / "result.json"
        done = subprocess.run(
            [sys.executable, "-m", "doit", *wanted.words, f"json={result}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != exit_status.DONE or not result.is_file():
            raise RunError(_first_error(done.stdout) or f"ended with status {done.returncode}")
        found = json.loads(result.read_text(encoding="utf-8"))
    _check_modelled(found)
    kept = {
        "command": wanted.command,
        "made_by": _made_by(),
        "processor": found["processor"] if "processor" in found else processor(),
        "core": found["core"] if "core" in found else core(),
        "bitkiln": revision(),
        "date": datetime.now(UTC).date().isoformat(),
        "result": shown(found, wanted),
    }
    atomic.replace(KEPT / wanted.file, (json.dumps(kept, indent=1) + "\n").encode())


def _check_modelled(result: Any) -> None:
    """RunError for what was emulated without a model of the core: figures are of cycles."""
    if _lacks_cycles(result):
        notes = result.get("notes") or [
            "no cycles are modelled; `doit doctor` says what is missing"
        ]
        raise RunError("; ".join(notes))


def _lacks_cycles(value: object) -> bool:
    if isinstance(value, Mapping):
        is_cost = INSTRUCTIONS in value and CYCLES not in value
        return is_cost or any(_lacks_cycles(each) for each in value.values())
    return isinstance(value, list) and any(_lacks_cycles(each) for each in value)


def _first_error(output: str) -> str:
    said = (line.removeprefix("ERROR: ") for line in output.splitlines() if "ERROR: " in line[:7])
    return next(said, "")


def shown(value: object, wanted: Run) -> object:
    """Return what figures show of a result: the time of every turn, what each sample gave and
    single layers are most of it."""
    if isinstance(value, Mapping):
        left_out = _LEFT_OUT if wanted.has_layers else _LEFT_OUT | {"layers"}
        return {
            name: shown(each, wanted)
            for name, each in value.items()
            if name not in left_out and not _is_of_turns(name, each)
        }
    return [shown(each, wanted) for each in value] if isinstance(value, list) else value


def _is_of_turns(name: str, value: object) -> bool:
    if name != "seconds" or not isinstance(value, Mapping):
        return False
    return any(isinstance(each, list) for each in value.values())


def _kept(folder: Path, wanted: Run) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / wanted.file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_whole = isinstance(found, dict) and found.keys() >= _NEEDED
    return found if is_whole and found.get("command") == wanted.command else None


@functools.cache
def _benched() -> Mapping[str, Mapping[str, Any]]:
    """Results of the page of benchmarks, by their command."""
    found = (json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json"))
    return {result["command"]: result for result in found}


@functools.cache
def _made_by() -> str:
    """A digest of what a result depends on besides its command: the stages' code, the processor,
    and the engines that `doit bench` compares with."""
    from stages import STAGES

    code: dict[str, str] = {}
    for stage in STAGES:
        code |= keys.code_ingredients(stage.entry.partition(":")[0])
    engines = {engine.name: engine.version for engine in ENGINES.values()}
    where = [processor(), core()]
    return keys.digest(keys.canonical({"code": code, "where": where, "engines": engines}))
