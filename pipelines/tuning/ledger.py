"""The ledger: every trial ever measured on this machine, one line of JSON each, never rewritten.

It lies outside the cache, where removing artifacts cannot lose hours of measuring; records worth
sharing are files of the same form in `hw/records`.
"""

from __future__ import annotations

import fcntl
import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.errors import UserError, shown
from pipelines.machine import EMULATED, is_here, processor
from pipelines.store import atomic, keys

RECORDS = keys.ROOT / "hw" / "records"
_TOOLS = ("apache-tvm",)


class Machine(BaseModel):
    """Where and with what a trial ran; its times mean nothing elsewhere."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    processor: str
    """What the processor is called, on ARM with its revision and the board."""
    core: str
    """The core whose costs predicted."""
    isa: str
    tools: tuple[str, ...]
    """Versions of what compiles kernels."""


class Trial(BaseModel):
    """One kernel on one workload, timed in turns with the kernel that was predicted to be best.

    Or, `on_threads`, with the same kernel and order whose tasks are not limited.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)

    machine: Machine
    workloads: tuple[str, ...]
    """What the stages that choose call the layer; the first is what it is known by."""
    kernel: str
    order: str | None = None
    """The order of work items; None is the predicted one."""
    rows: int | None = None
    """Output rows of a row block; None is all of them, or one, as the order says."""
    max_tasks: int | None = Field(default=None, alias="threads")
    """The most tasks that a call is split into; None is as many as it can use."""
    on_threads: int | None = None
    """Threads that ran both kernels; None is one."""
    against: str
    """The kernel predicted to be best, in its predicted order; on several threads `kernel` itself,
    in the same order and rows."""
    predicted: float | None = None
    """Predicted cycles of this kernel / those of `against`, whatever order and tasks."""
    seconds: float | None = None
    """Median of this kernel's turns, the kernel alone."""
    against_seconds: float | None = None
    ratio: float | None = None
    """Median over the rounds of this kernel's time / that of `against`."""
    failed: str | None = None
    """Why there is no time."""
    recipe: str
    layer: str
    at: str
    """Date and time, UTC."""

    @property
    def schedule(self) -> str:
        """What of the schedule was chosen, as people read it: empty if nothing was."""
        rows = f"{self.rows} rows" if self.rows is not None else ""
        tasks = f"{self.max_tasks} tasks at most" if self.max_tasks is not None else ""
        return " ".join(part for part in (self.order, rows, tasks) if part)


class Finished(BaseModel):
    """A mark that a model had all its trials."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    finished: str
    """Key of what was tuned: of the stage `scheduling` before anything was measured."""
    trials: int
    """Kernels that were to be measured per layer."""
    processor: str = ""
    """Where; marks of before tell only of the machine whose ledger it is."""


def path() -> Path:
    """Return the ledger of this user: $XDG_STATE_HOME/bitkiln/ledger.jsonl."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "bitkiln" / "ledger.jsonl"


def append(lines: Iterable[Trial | Finished], file: Path | None = None) -> None:
    """Add lines at the end, each whole; what a killed run left half written is ended first."""
    text = "".join(f"{line.model_dump_json(exclude_none=True)}\n" for line in lines)
    file = file or path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab+") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            size = opened.seek(0, os.SEEK_END)
            if size:
                opened.seek(size - 1)
                text = text if opened.read(1) == b"\n" else f"\n{text}"
            opened.write(text.encode())
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        raise UserError(f"{shown(file)}: {error.strerror}; trials are kept there") from error


def export(lines: Iterable[Trial], file: Path) -> None:
    """Write trials to a file of their own, in place of what it held."""
    unfinished = file.with_name(f"{file.name}.part")
    try:
        unfinished.unlink(missing_ok=True)
        append(lines, unfinished)
        atomic.move(unfinished, file)
    except OSError as error:
        raise UserError(f"{shown(file)}: cannot write it: {error.strerror}") from error


def trials(machine: Machine) -> list[Trial]:
    """Return the trials of a machine, oldest first: shipped records, then the user's own."""
    return [line for line in _lines() if isinstance(line, Trial) and line.machine == machine]


def trials_of_core(core: str, isa: str) -> list[Trial]:
    """Return the trials of every machine with a core and an instruction set, oldest first."""
    found = (line for line in _lines() if isinstance(line, Trial))
    return [trial for trial in found if (trial.machine.core, trial.machine.isa) == (core, isa)]


def is_finished(key: str, count: int) -> bool:
    """Whether what a key names had so many trials a layer, on whichever processor."""
    marks = (line for line in _lines() if isinstance(line, Finished))
    return any(mark.finished == key and mark.trials >= count for mark in marks)


def machine(core: str, isa: str, name: str | None = None) -> Machine:
    """Return a machine as trials for a core and an instruction set name it; this one unless a
    processor's name is given."""
    tools = tuple(f"{tool} {keys.tool_version(tool)}" for tool in _TOOLS)
    return Machine(processor=name or processor(), core=core, isa=isa, tools=tools)


def machine_for(core: str, isa: str, architecture: str) -> Machine:
    """Return the machine whose trials a build heeds.

    It is this one if its processor is of the architecture; else the board on which kernels for the
    core were measured last. What QEMU ran counts only where no board was measured.
    """
    here = machine(core, isa)
    if is_here(architecture):
        return here
    measured = (line.machine for line in _lines() if isinstance(line, Trial))
    boards = [m for m in measured if m.model_copy(update={"processor": here.processor}) == here]
    real = [m for m in boards if not m.processor.startswith(EMULATED)]
    return (real or boards or [here])[-1]


def _lines() -> Iterator[Trial | Finished]:
    for file in (*sorted(RECORDS.glob("*.jsonl")), path()):
        try:
            state = file.stat()
            yield from _read(file, state.st_mtime_ns, state.st_size)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UserError(f"{shown(file)}: {error.strerror}") from error


@functools.lru_cache(maxsize=8)
def _read(file: Path, _changed: int, _size: int) -> tuple[Trial | Finished, ...]:
    return lines_of(file)


def lines_of(file: Path) -> tuple[Trial | Finished, ...]:
    """Return what a file of trials says; OSError if it cannot be read."""
    return tuple(line for text in file.read_bytes().splitlines() for line in _parsed(text))


def _parsed(text: bytes) -> Iterator[Trial | Finished]:
    """Yield what a line says; one that was cut off, or is of another version, says nothing."""
    for kind in (Trial, Finished):
        try:
            yield kind.model_validate_json(text)
            return
        except ValidationError:
            continue
