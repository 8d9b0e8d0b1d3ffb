"""What a build shows: one line a stage, a spinner on a terminal, and errors without a traceback."""

from __future__ import annotations

import sys
import time
from typing import Any

from doit.exceptions import BaseFail, TaskFailed, UnmetDependency
from doit.reporter import ConsoleReporter

BUILD = "build:"
_FAULT = "this is a fault of bitkiln, not of your recipe; please report it with the lines above"


class Progress(ConsoleReporter):
    """doit's reporter for our tasks; commands print their results themselves."""

    desc = "one line a stage"

    def __init__(self, outstream: Any, options: Any) -> None:
        super().__init__(outstream, options)
        self._running: dict[str, float] = {}
        self._spinner: Any = None

    def initialize(self, tasks: Any, selected_tasks: Any) -> None:
        """Start the spinner if someone is looking."""
        del tasks, selected_tasks
        if self.outstream.isatty():
            from rich.console import Console

            self._spinner = Console(file=self.outstream).status("")

    def execute_task(self, task: Any) -> None:
        """Show that a stage is being built."""
        if task.name.startswith(BUILD):
            self._running[task.name] = time.monotonic()
            self._spin()
        else:
            self._stop()  # a command prints its own progress

    def skip_uptodate(self, task: Any) -> None:
        """Say that a stage was cached."""
        self._line(task, {"status": "cached"})

    def add_success(self, task: Any) -> None:
        """Say what a stage did and how long it took."""
        self._line(task, task.values)

    def add_failure(self, task: Any, fail: BaseFail) -> None:
        """Say what went wrong and, for a user's mistake, nothing else."""
        self._running.pop(task.name, None)
        self._stop()
        if isinstance(fail, UnmetDependency):
            return
        self.outstream.flush()
        if isinstance(fail, TaskFailed):
            print(f"ERROR: {fail.message}", file=sys.stderr)
        else:
            print(f"{fail.get_msg().rstrip()}\nERROR: {task.name}: {_FAULT}", file=sys.stderr)

    def complete_run(self) -> None:
        """Leave the terminal as it was."""
        self._stop()
        for message in self.runtime_errors:
            print(f"ERROR: {message}", file=sys.stderr)

    def _line(self, task: Any, values: Any) -> None:
        self._running.pop(task.name, None)
        if not task.name.startswith(BUILD):
            return
        self._stop()
        status = values.get("status", "done")
        seconds = f"{values['seconds']:7.1f} s" if status == "built" else " " * 9
        note = values.get("note") or (values.get("artifact") if status != "cached" else None) or ""
        self.write(f"{task.name.removeprefix(BUILD):<15} {status:<8}{seconds}  {note}".rstrip())
        self.write("\n")
        self.outstream.flush()
        self._spin()

    def _spin(self) -> None:
        if self._spinner is not None and self._running:
            names = ", ".join(name.removeprefix(BUILD) for name in self._running)
            self._spinner.update(f"building {names} …")
            self._spinner.start()

    def _stop(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
