"""The runner on a board: what it is sent, and what it has."""

from __future__ import annotations

import getpass
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipelines.machine import EMULATED, is_here, processor, processor_of
from pipelines.remote import board_programs, deployment
from pipelines.remote.board_addresses import Board
from pipelines.remote.deployment import BoardError
from pipelines.remote.dialogue import ANSWER_SECONDS, Dialogue, is_count, is_time
from pipelines.remote.transport import Transport, printable_tail

Told = Callable[[str], None]


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
        """Identifies the kernels: `Session.load` skips a library whose name it holds."""

    def shared(self) -> bytes:
        """A library that a runner loads."""

    def static(self) -> bytes:
        """A runner that has the kernels in it."""


class Session:
    """One runner, started; `close` ends it.

    `options` are words for the runner. Raises UnreachableBoardError if there is no way to the
    board, BoardError if the board is not what is wanted.
    """

    def __init__(self, to: Transport, architecture: str, options: Sequence[str] = ()) -> None:
        self.board: Board = to.board
        self._to, self._architecture, self._options = to, architecture, options
        self.told: Told = lambda _: None
        """Gets a sentence when something about the board is to be known."""
        self._start(None)

    def _start(self, kernels: bytes | None) -> None:
        self.held: set[str] = set()
        """Keys of the tensors that the runner has."""
        self.library: str | None = None
        """The name of the library that it has."""
        found = deployment.probe(self._to)
        self.is_static = deployment.is_static(self._to, self._architecture, found)
        """Whether the board loads no libraries, so that kernels have to be in the runner."""
        if kernels is None:
            kernels = board_programs.runner(self._architecture, self.is_static).read_bytes()
        words = deployment.installed(self._to, self._architecture, kernels, found)
        who = f"{getpass.getuser()} on {os.uname().nodename}, process {os.getpid()}"
        words += ["--lock", "lock", "--who", who]
        if self.board.cores:
            words += ["--cores", ",".join(map(str, self.board.cores))]
        command = deployment.in_folder(self._to, [*words, *self._options])
        self._dialogue = Dialogue(self.board.name, command)
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
            user = printable_tail(str(said["busy"]), 100)
            told(f"{self.board.name} is in use by {user}; waiting for it")
            said = self.answer(seconds)
        if said.get("ready") is not True:
            raise self.garbage(said)

    def ask(self, line: str, payload: bytes = b"", seconds: float = ANSWER_SECONDS) -> Any:
        """Send a command and return its answer; LostError, FaultError or BoardError without one."""
        return self._dialogue.ask(line, payload, seconds)

    def ask_bytes(self, line: str, count: int) -> bytes:
        """Send a command that is answered by so many bytes."""
        return self._dialogue.ask_bytes(line, count)

    def send(self, line: str, payload: bytes = b"") -> None:
        """Send a command that is not answered."""
        self._dialogue.send(line, payload)

    def answer(self, seconds: float = ANSWER_SECONDS) -> Any:
        """Return the next answer: an object of JSON."""
        return self._dialogue.answer(seconds)

    def garbage(self, said: object) -> BoardError:
        """Return the error of an answer that is not of the form that was asked for."""
        return self._dialogue.garbage(said)

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

    def load(self, library: Library) -> float | None:
        """Load a library in place of the one before, unless it is that; return the seconds it took.

        Where the board loads none, another runner that has the kernels takes the place of this one.
        """
        if self.library == library.name:
            return None
        seconds = 0.0
        if self.is_static:
            self.close()
            self._start(library.static())
            self.ready(self.told)
        else:
            data = library.shared()
            said = self.ask(f"library {len(data)}", data)
            if not is_time(said.get("loaded")):
                raise self.garbage(said)
            seconds = float(said["loaded"])
        self.library = library.name
        return seconds

    def restart(self) -> None:
        """Take another process, which has done nothing yet."""
        self.close()
        self._start(None)
        self.ready(self.told)

    def close(self) -> None:
        """End the runner."""
        self._dialogue.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _welcomed(self, said: Any) -> Hello:
        architecture, cores, text = self._architecture, said.get("cores"), said.get("cpuinfo", "")
        is_runner = said.get("runner") == 1 and said.get("architecture") == architecture
        are_cores = isinstance(cores, list) and all(map(is_count, cores)) and cores
        if not is_runner or not are_cores or not isinstance(text, str):
            raise self.garbage(said)
        if absent := sorted(set(self.board.cores) - set(cores)):
            names, there = (", ".join(map(str, each)) for each in (absent, sorted(cores)))
            raise BoardError(f"{self.board.name} has no cores {names}; accepted in cores: {there}")
        own = printable_tail(processor_of(text, str(said.get("model", ""))), 200) or architecture
        if self.board.is_local:
            own = (
                processor()
                if is_here(architecture)
                else f"{EMULATED}{architecture} on {processor()}"
            )
        return Hello(tuple(sorted(cores)), said.get("tiles") is True, own)
