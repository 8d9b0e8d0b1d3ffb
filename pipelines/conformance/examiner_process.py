"""The process that finds out about model files, started again whenever a file was its end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from pipelines.conformance.steps import REFERENCE
from pipelines.store import keys

MODULE = "pipelines.conformance.examiner"
SECONDS = 900
"""Most time one file may take."""
BYTES = 8 << 30
"""Most memory the process may take."""
_TOLD = 8


class Worker:
    """One process at a time; use as a context."""

    def __init__(self) -> None:
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115, closed by __exit__
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._rest = b""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._said.close()

    def row(self, path: Path, settings: Mapping[str, object]) -> dict[str, Any]:
        """Return what is found out about a file; a process that died or stood still is a row."""
        process = self._process or self._start()
        assert process.stdin is not None
        request = json.dumps({"file": str(path), **settings}) + "\n"
        step, ends = "", time.monotonic() + SECONDS
        with suppress(BrokenPipeError):
            process.stdin.write(request.encode())
            process.stdin.flush()
        while (line := self._line(ends)) is not None:
            if "row" in line:
                row: dict[str, Any] = line["row"]
                return row
            step = line["step"]
        is_late = time.monotonic() >= ends
        code = self._end()
        what = f"took more than {SECONDS} seconds" if is_late else f"ended the process ({code})"
        # That the framework's own runtime dies of a file is none of our faults.
        status = "alone" if step == REFERENCE else "crashed"
        return {"status": status, "why": f"{step or 'starting'} {what}", "trace": self._last()}

    def _start(self) -> subprocess.Popen[bytes]:
        self._pipe, writing = os.pipe()
        os.set_blocking(self._pipe, False)
        self._rest = b""
        self._said.truncate(0)
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(BYTES), str(writing)],
            cwd=keys.ROOT,
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=self._said,
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        return self._process

    def _line(self, ends: float) -> dict[str, Any] | None:
        """Return the next line, or None if the process ended or the time is over."""
        while b"\n" not in self._rest:
            left = ends - time.monotonic()
            if left <= 0 or not select.select([self._pipe], [], [], left)[0]:
                return None
            more = os.read(self._pipe, 1 << 16)
            if not more:
                return None
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\n")
        line: dict[str, Any] = json.loads(text)
        return line

    def _end(self) -> int | None:
        """End the process with all it started; return how it ended."""
        process, self._process = self._process, None
        if process is None:
            return None
        code = process.poll()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        os.close(self._pipe)
        return process.returncode if code is None else code

    def _last(self) -> list[str]:
        self._said.seek(0)
        return self._said.read().decode(errors="replace").strip().splitlines()[-_TOLD:]
