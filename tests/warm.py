"""`python -m doit` as a process of its own, without paying for its imports each time.

A true start spends more on importing doit, pydantic and TVM than most commands of a test spend on
their work. Each process of pytest therefore keeps one server (`tests/warm_server.py`) that has
imported what third parties wrote, and nothing of the project's own, as clones carry copies of that;
for each command it forks a child that goes on as `python -m doit` would have. It stays another
process, with its own folder, environment, session and exit code.

What asks for another interpreter gets a true start: an environment that differs in what Python or
a library reads when it starts, or a system that the server cannot run on. Tests of starting itself
use `subprocess`.
"""

from __future__ import annotations

import atexit
import compileall
import contextlib
import functools
import json
import os
import py_compile
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

SERVER = Path(__file__).with_name("warm_server.py")
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "OMP_", "OPENBLAS_", "MKL_", "TVM_", "MALLOC_")
"""How variables begin that Python and the libraries read once."""
IMITATED = ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")
"""Those of them that a fork heeds all the same."""
ROOT = Path(__file__).resolve().parents[1]
DOIT = (sys.executable, "-m", "doit")


@functools.cache
def scratch(name: str) -> Path:
    """A folder that is there until this process ends: what is kept of a run does not outlive it."""
    folder = Path(tempfile.mkdtemp(prefix=f"bitkiln-{name}-"))
    owner = os.getpid()

    def removed() -> None:
        if os.getpid() == owner:  # and no fork of it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(removed)
    return folder


def environment() -> dict[str, str]:
    """The environment of a process that imports this very project, as many others of the run do.

    Python may be told to keep no bytecode, and would compile a hundred modules at each start.
    """
    found = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {"PYTHONPYCACHEPREFIX": str(scratch("bytecode")), **found}


def compile_all(folder: Path) -> None:
    """Leave bytecode beside a copy's modules; it is used only for sources of the same hash."""
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    assert compileall.compile_dir(folder, quiet=1, invalidation_mode=mode)


class Process(Protocol):
    """What tests need of a process, true or forked."""

    returncode: int | None

    @property
    def pid(self) -> int:
        """Of the process itself, which may be signalled."""

    def communicate(self, *, timeout: float | None = None) -> tuple[str, str]:
        """Return what it wrote, when it has ended; after a timeout one may ask again."""

    def kill(self) -> None:
        """End it, if it has not ended."""


class Server:
    """The process that forks: it ends when this one closes its end of the socket, or dies."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.environment = dict(os.environ)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                env={k: v for k, v in os.environ.items() if k not in IMITATED},
                pass_fds=[theirs.fileno()],
                # As those of children: neither is a terminal's.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self.close)

    def close(self) -> None:
        """Let the server end."""
        self.ours.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)

    def can_imitate(self, environment: Mapping[str, str]) -> bool:
        """Whether a fork of the server is what a start with this environment would be."""
        return all(
            self.environment.get(name) == environment.get(name)
            for name in self.environment.keys() | environment.keys()
            if name.startswith(READ_AT_START) and name not in IMITATED
        )

    def ask(self, request: Mapping[str, object], files: Sequence[int]) -> None:
        """Have it fork; the child gets `files` as its standard streams and says how it fares."""
        socket.send_fds(self.ours, [json.dumps(request).encode()], list(files))


@functools.cache
def _server(pid: int) -> Server:
    """The server of this process: forks of it shall not speak through its socket."""
    return Server()


class Warm:
    """A command in a fork of the server."""

    def __init__(
        self,
        server: Server,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.args = (*DOIT, *arguments)
        self.returncode: int | None = None
        self._texts = ["", ""]
        self._streams: list[IO[bytes]] = [
            tempfile.TemporaryFile(),  # noqa: SIM115
            tempfile.TemporaryFile(),  # noqa: SIM115
        ]
        self._status, end = os.pipe()
        request = {
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(environment),
        }
        try:
            server.ask(request, [*(stream.fileno() for stream in self._streams), end])
        finally:
            os.close(end)
        self.pid = self._said()

    def communicate(self, *, timeout: float | None = None) -> tuple[str, str]:
        """Return what it wrote, when it has ended; after a timeout one may ask again."""
        if self.returncode is None:
            ready, _, _ = select.select([self._status], [], [], timeout)
            if not ready:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = self._said()
            os.close(self._status)
            self._texts = [self._written(stream) for stream in self._streams]
        return self._texts[0], self._texts[1]

    @staticmethod
    def _written(stream: IO[bytes]) -> str:
        with stream:
            stream.seek(0)
            return stream.read().decode()

    def kill(self) -> None:
        """End it, if it has not ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _said(self) -> int:
        """Read a number that the server says of this process: its id, then its exit code."""
        number = b""
        while not number.endswith(b"\n"):
            byte = os.read(self._status, 1)
            if not byte:
                raise RuntimeError("the server of warm processes died")
            number += byte
        return int(number)


def start(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Process:
    """Start doit in a session of its own; its standard input is empty, what it writes is kept."""
    given = environment() if cwd == ROOT else os.environ
    variables = dict(given if env is None else env)
    if hasattr(os, "pidfd_open"):
        server = _server(os.getpid())
        if server.can_imitate(variables):
            return Warm(server, arguments, cwd, variables)
    return Cold(arguments, cwd, variables)


def run(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run doit to its end, whatever it ends with; kill it after `timeout` seconds."""
    process = start(*arguments, cwd=cwd, env=env)
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    assert process.returncode is not None
    return subprocess.CompletedProcess([*DOIT, *arguments], process.returncode, out, err)


class Cold(subprocess.Popen[str]):
    """A true start."""

    def __init__(self, arguments: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        super().__init__(
            [*DOIT, *arguments],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # As from a terminal, also where the tests run in the background of a script.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def communicate(  # type: ignore[override]
        self, *, timeout: float | None = None
    ) -> tuple[str, str]:
        """Return what it wrote, when it has ended; after a timeout one may ask again."""
        return super().communicate(timeout=timeout)
