"""A runner on a board that is spoken to: commands go in, lines of JSON come back.

Whatever a board answers is data: it is checked to be of the form that was asked for, shown without
control characters, and neither executed nor used as a path.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import math
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol

from pipelines.machine import is_here, processor, processor_of
from pipelines.remote import program, starting
from pipelines.remote.address import Board
from pipelines.remote.starting import BoardError
from pipelines.remote.transport import Transport, plain

ANSWER_SECONDS = 60.0
"""How long a runner may take for what is no measuring."""
_LONGEST_LINE = 1 << 20
_MOST_BYTES = 1 << 30
Told = Callable[[str], None]


class LostError(BoardError):
    """The way to a board, or the runner on it, ended."""


class FaultError(BoardError):
    """What the runner ran made it fail."""


@dataclass(frozen=True)
class Hello:
    """What a runner says first."""

    cores: tuple[int, ...]
    tiles: bool
    """Whether the system lends matrix tiles (AMX)."""
    processor: str
    """As the ledger names processors."""


class Library(Protocol):
    """Kernels in one of two forms."""

    @property
    def name(self) -> str:
        """Another one for other kernels."""

    def shared(self) -> bytes:
        """A library that a runner loads."""

    def static(self) -> bytes:
        """A runner that has the kernels in it."""


class Session:
    """One runner, started; `close` ends it.

    `options` are words for the runner. Raises UnreachableError if there is no way to the board,
    BoardError if the board is not what is wanted.
    """

    def __init__(self, to: Transport, architecture: str, options: Sequence[str] = ()) -> None:
        self.board: Board = to.board
        self._to, self._architecture, self._options = to, architecture, options
        self.told: Told = lambda _: None
        """Gets a sentence when something about the board is to be known."""
        self.is_static = starting.is_static(to, architecture)
        """Whether the board loads no libraries, so that kernels have to be in the runner."""
        self._start(None)

    def _start(self, kernels: bytes | None) -> None:
        self.held: set[str] = set()
        """Keys of the tensors that the runner has."""
        self.library: str | None = None
        """The name of the library that it has."""
        if kernels is None:
            kernels = program.runner(self._architecture, self.is_static).read_bytes()
        words = starting.installed(self._to, self._architecture, kernels)
        who = f"{getpass.getuser()} on {os.uname().nodename}, process {os.getpid()}"
        words += ["--lock", "lock", "--who", who]
        if self.board.cores:
            words += ["--cores", ",".join(map(str, self.board.cores))]
        self._said: list[str] = []
        self._answers: queue.Queue[tuple[Any, bytes] | None] = queue.Queue()
        self._process = subprocess.Popen(
            starting.in_folder(self._to, [*words, *self._options]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._listen_to_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        try:
            self.hello = self._welcomed(self.answer(ANSWER_SECONDS))
        except BaseException:
            self.close()
            raise

    def ready(self, told: Told, seconds: float = math.inf) -> None:
        """Wait until nobody else uses the board; `told` gets a sentence if somebody does."""
        self.told = told
        said = self.answer(ANSWER_SECONDS)
        if "busy" in said:
            told(f"{self.board.name} is in use by {plain(str(said['busy']), 100)}; waiting for it")
            said = self.answer(seconds)
        if said.get("ready") is not True:
            raise self.garbage(said)

    def ask(self, line: str, payload: bytes = b"", seconds: float = ANSWER_SECONDS) -> Any:
        """Send a command and return its answer; LostError, FaultError or BoardError without one."""
        self.send(line, payload)
        return self.answer(seconds)

    def ask_bytes(self, line: str, count: int) -> bytes:
        """Send a command that is answered by so many bytes."""
        self.send(line)
        said, data = self._next(ANSWER_SECONDS)
        if len(data) != count:
            raise self.garbage(said)
        return data

    def send(self, line: str, payload: bytes = b"") -> None:
        """Send a command that is not answered."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n" + payload)
            self._process.stdin.flush()
        except (OSError, ValueError):
            self._next(ANSWER_SECONDS)  # says why, as a rule
            raise self._lost() from None

    def answer(self, seconds: float = ANSWER_SECONDS) -> Any:
        """Return the next answer: an object of JSON."""
        return self._next(seconds)[0]

    def put(self, blobs: Mapping[str, bytes]) -> None:
        """Send those tensors that the runner has not got."""
        for key, data in blobs.items():
            if key not in self.held:
                self.send(f"put {key} {len(data)}", data)
                self.held.add(key)

    def keep(self, wanted: set[str]) -> None:
        """Let the runner drop all other tensors."""
        for key in sorted(self.held - wanted):
            self.send(f"drop {key}")
            self.held.discard(key)

    def load(self, library: Library) -> None:
        """Load a library in place of the one before, unless it is that.

        Where the board loads none, another runner that has the kernels takes the place of this one.
        """
        if self.library == library.name:
            return
        if self.is_static:
            self.close()
            self._start(library.static())
            self.ready(self.told)
        else:
            data = library.shared()
            said = self.ask(f"library {len(data)}", data)
            if said.get("loaded") is not True:
                raise self.garbage(said)
        self.library = library.name

    def close(self) -> None:
        """End the runner."""
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- answers -----------------------------------------------------------------------------

    def _next(self, seconds: float) -> tuple[Any, bytes]:
        try:
            found = self._answers.get(timeout=None if math.isinf(seconds) else seconds)
        except queue.Empty:
            self._process.kill()
            raise LostError(f"{self.board.name}: no answer in {seconds:.0f} s") from None
        if found is None:
            self._answers.put(None)
            raise self._lost()
        said, data = found
        if not isinstance(said, dict):
            raise self.garbage(said)
        if "fault" in said:
            raise FaultError(plain(str(said["fault"])))
        if "error" in said:
            raise BoardError(f"{self.board.name}: {plain(str(said['error']))}")
        return said, data

    def _lost(self) -> BoardError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self._threads[1].join(timeout=1)
        said = plain("\n".join(self._said)) or "the runner ended without a word"
        return LostError(f"{self.board.name}: {said}")

    def garbage(self, said: object) -> BoardError:
        """Return the error of an answer that is not of the form that was asked for."""
        return BoardError(
            f"{self.board.name} answers what no runner says: {plain(repr(said), 100)}"
        )

    def _listen(self) -> None:
        assert self._process.stdout is not None
        stream = self._process.stdout
        with contextlib.suppress(OSError, ValueError):
            while line := stream.readline(_LONGEST_LINE):
                if not line.strip():
                    continue
                said = _parsed(line)
                count = said.get("bytes", 0) if isinstance(said, dict) else 0
                data = _exactly(stream, count) if _is_count(count) else b""
                self._answers.put((said, data))
                if not isinstance(said, dict):
                    break
        self._answers.put(None)

    def _listen_to_errors(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            while line := self._process.stderr.readline(10_000):
                self._said = [*self._said[-20:], line.decode(errors="replace")]

    def _welcomed(self, said: Any) -> Hello:
        architecture, cores, text = self._architecture, said.get("cores"), said.get("cpuinfo", "")
        is_runner = said.get("runner") == 1 and said.get("architecture") == architecture
        are_cores = isinstance(cores, list) and all(map(_is_count, cores)) and cores
        if not is_runner or not are_cores or not isinstance(text, str):
            raise self.garbage(said)
        own = plain(processor_of(text, str(said.get("model", ""))), 200) or architecture
        if self.board.is_local:
            own = processor() if is_here(architecture) else f"QEMU {architecture} on {processor()}"
        return Hello(tuple(sorted(cores)), said.get("tiles") is True, own)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line.decode(errors="replace")[:200]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_BYTES


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count) if count else b""
    if len(data) != count:
        raise OSError("the stream ended")
    return data
