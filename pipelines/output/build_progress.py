"""What a build shows: one line a stage, a spinner on a terminal, and errors without a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TextIO

from doit.exceptions import BaseFail, TaskFailed, UnmetDependency
from doit.reporter import ConsoleReporter

from pipelines import exit_status

BUILD = "build:"
HIDDEN = "_"
"""Tasks that doit does not list: they leave no line."""
_shown: Progress | None = None


def detail(text: str) -> None:
    """Show how far the running stage is, where someone is looking."""
    if _shown is not None:
        _shown.detail(text)


class Task(Protocol):
    """What we read of a task of doit's, which has no types."""

    name: str
    meta: Mapping[str, Any] | None
    values: Mapping[str, Any]


class Progress(ConsoleReporter):
    """doit's reporter for our tasks; commands print their results themselves."""

    desc = "one line a stage"

    def __init__(self, outstream: TextIO, options: object) -> None:
        super().__init__(outstream, options)
        self._process = os.getpid()
        self._is_build = False
        self._running: dict[str, Any] = {}
        self._live: Any = None
        self._status = exit_status.DONE

    def initialize(self, tasks: object, selected_tasks: Iterable[str]) -> None:
        """Prepare the live lines if someone is looking."""
        del tasks
        self._is_build = any(name.partition(":")[0] == "build" for name in selected_tasks)
        if self.outstream.isatty():
            global _shown
            _shown = self

    def detail(self, text: str) -> None:
        """Put a word behind the running stage; other processes than doit's own stay silent."""
        if self._live is not None and os.getpid() == self._process:
            for name, line in self._running.items():
                self._live.update(line, description=f"{_stage(name)}: {text}")

    def execute_task(self, task: Task) -> None:
        """Show that a stage is being built."""
        if not task.name.startswith((BUILD, HIDDEN)):
            self._stop()  # a command shows its own progress
        elif _shown is self:
            self._start()
            line = self._live.add_task(_stage(task.name), total=None)
            self._running[task.name] = line

    def skip_uptodate(self, task: Task) -> None:
        """Say that a stage was cached, if building is what was asked for."""
        if self._is_build:
            meta = task.meta or {}
            note = meta["said"]() if "said" in meta else None
            self._line(task, {"status": "cached", "artifact": meta.get("where"), "note": note})

    def add_success(self, task: Task) -> None:
        """Say what a stage did and how long it took."""
        self._line(task, task.values)
        if "summary" in (task.values or {}):
            self._stop()
            self.write(f"\n{task.values['summary']}\n")

    def add_failure(self, task: Task, fail: BaseFail) -> None:
        """Say what went wrong and, for a user's mistake, nothing else."""
        self._ended(task)
        self._stop()
        self._status = exit_status.graver(self._status, exit_status.status(fail))
        if isinstance(fail, UnmetDependency):
            return
        self.outstream.flush()
        if isinstance(fail, TaskFailed):
            print(f"ERROR: {fail.message}", file=sys.stderr)
        else:
            lines = fail.get_msg().rstrip()
            print(f"{lines}\nERROR: {task.name}: {exit_status.SENTENCE}", file=sys.stderr)

    def complete_run(self) -> None:
        """Leave the terminal as it was; end the process here if a task failed.

        doit calls this last, and would end with statuses of its own.
        """
        self._stop()
        for message in self.runtime_errors:
            print(f"ERROR: {message}", file=sys.stderr)
            self._status = exit_status.FAULT
        if self._status != exit_status.DONE and sys.exc_info()[0] is None:
            raise SystemExit(self._status)

    def _line(self, task: Task, values: Mapping[str, Any]) -> None:
        self._ended(task)
        if not task.name.startswith(BUILD):
            return
        status = values.get("status", "done")
        if status == "cached" and not self._is_build:
            return
        is_timed = status in ("built", "fetched")
        seconds = f"{values['seconds']:7.1f} s" if is_timed else " " * 9
        note = values.get("note") or values.get("artifact") or ""
        text = f"{_stage(task.name):<15} {status:<8}{seconds}  {note}".rstrip()
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            self.write(f"{text}\n")
            self.outstream.flush()

    def _ended(self, task: Task) -> None:
        line = self._running.pop(task.name, None)
        if line is not None and self._live is not None:
            self._live.remove_task(line)

    def _start(self) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.progress import Progress as Live
            from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._live = Live(*columns, console=Console(file=self.outstream), transient=True)
            self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._running.clear()


def _stage(task: str) -> str:
    return task.removeprefix(BUILD).removeprefix(HIDDEN)
