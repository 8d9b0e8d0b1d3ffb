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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pipelines.errors import UserError
from pipelines.machine import processor, processor_of
from pipelines.packages import is_here
from pipelines.remote import program
from pipelines.remote.address import Board
from pipelines.remote.facts import architecture_of, glibc_of
from pipelines.remote.transport import FOLDER, Transport, UnreachableError, plain, script

ANSWER_SECONDS = 60.0
"""How long a runner may take for what is no measuring."""
_LONGEST_LINE = 1 << 20
_MOST_BYTES = 1 << 30
_PROBE = f"""mkdir -p {FOLDER} && cd {FOLDER} || exit 1
echo "machine $(uname -m) $(getconf LONG_BIT 2>/dev/null)"
echo "libc $(getconf GNU_LIBC_VERSION 2>/dev/null)"
test -x %(name)s && echo "has runner"
exit 0
"""


class BoardError(UserError):
    """Something about a board that keeps it from being used."""


class LostError(BoardError):
    """The way to a board, or the runner on it, ended."""


class FaultError(BoardError):
    """What the runner ran made it fail."""


@dataclass(frozen=True)
class Probe:
    """What a board's own shell says of it, before anything is started there."""

    architecture: str
    glibc: tuple[int, int] | None
    has_runner: bool

    @property
    def is_static(self) -> bool:
        """Whether its system is too old, or another, for the runner that loads libraries."""
        return self.glibc is None or self.glibc < program.GLIBC


@dataclass(frozen=True)
class Hello:
    """What a runner says first."""

    architecture: str
    cores: tuple[int, ...]
    tiles: bool
    processor: str
    """As the ledger names processors."""


def probe(to: Transport, name: str) -> Probe:
    """Ask a board's shell what it is, and whether it has a file of a name in our folder."""
    told = script(to, _PROBE % {"name": name})
    found = dict(line.partition(" ")[::2] for line in told.splitlines()[:20])
    machine, _, bits = found.get("machine", "").partition(" ")
    architecture = architecture_of(machine, int(bits) if bits in ("32", "64") else None)
    if not architecture:
        raise BoardError(
            f"{to.board.name}: its processor is called '{plain(machine, 50)}'; accepted: "
            f"{', '.join(program.ARCHITECTURES)}"
        )
    return Probe(architecture, glibc_of(found.get("libc", "")), found.get("has") == "runner")


class Session:
    """One runner, started; `close` ends it.

    With `kernels` it is that program, for boards that cannot load libraries. Raises
    UnreachableError if there is no way to the board, BoardError if the board is not what is wanted.
    """

    def __init__(
        self,
        to: Transport,
        architecture: str,
        *,
        kernels: bytes | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.board: Board = to.board
        self.held: set[str] = set()
        """Keys of the tensors that the runner has."""
        self.library: str | None = None
        """What the caller calls the library that the runner has loaded."""
        self.is_static = kernels is not None
        words = _installed(to, architecture, kernels)
        who = f"{getpass.getuser()} on {os.uname().nodename}, process {os.getpid()}"
        words += ["--lock", "lock", "--who", who]
        if to.board.cores:
            words += ["--cores", ",".join(map(str, to.board.cores))]
        inside = f'cd {FOLDER} && exec "$@"'
        command = to.command(["sh", "-c", inside, "sh", *words, *options])
        self._said: list[str] = []
        self._answers: queue.Queue[tuple[Any, bytes] | None] = queue.Queue()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._listen_to_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        try:
            self.hello = self._welcomed(self.answer(ANSWER_SECONDS), architecture)
        except BaseException:
            self.close()
            raise

    def ready(self, told: Any, seconds: float = math.inf) -> None:
        """Wait until nobody else uses the board; `told` gets a sentence if somebody does."""
        said = self.answer(ANSWER_SECONDS)
        if "busy" in said:
            told(f"{self.board.name} is in use by {plain(str(said['busy']), 100)}; waiting for it")
            said = self.answer(seconds)
        if said.get("ready") is not True:
            raise self._garbage(said)

    def ask(self, line: str, payload: bytes = b"", seconds: float = ANSWER_SECONDS) -> Any:
        """Send a command and return its answer; LostError, FaultError or BoardError without one."""
        self.send(line, payload)
        return self.answer(seconds)

    def ask_bytes(self, line: str, count: int) -> bytes:
        """Send a command that is answered by so many bytes."""
        self.send(line)
        said, data = self._next(ANSWER_SECONDS)
        if len(data) != count:
            raise self._garbage(said)
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

    def load(self, name: str, data: bytes) -> None:
        """Load a library in place of the one before, unless it is that."""
        if self.library == name or self.is_static:
            return
        said = self.ask(f"library {len(data)}", data)
        if said.get("loaded") is not True:
            raise self._garbage(said)
        self.library = name

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
            raise self._garbage(said)
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

    def _garbage(self, said: object) -> BoardError:
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

    def _welcomed(self, said: Any, architecture: str) -> Hello:
        known = said.get("architecture"), said.get("cores"), said.get("cpuinfo", "")
        is_fine = said.get("runner") == 1 and known[0] == architecture
        are_cores = isinstance(known[1], list) and all(map(_is_count, known[1])) and known[1]
        if not is_fine or not are_cores or not isinstance(known[2], str):
            raise self._garbage(said)
        own = processor_of(known[2], str(said.get("model", "")))
        own = plain(own, 200) or architecture
        if self.board.is_local:
            own = processor() if is_here(architecture) else f"QEMU {architecture} on {processor()}"
        return Hello(architecture, tuple(sorted(known[1])), said.get("tiles") is True, own)


def _installed(to: Transport, architecture: str, kernels: bytes | None) -> list[str]:
    """Put the runner on a board unless it is there; return the words that start it."""
    if kernels is None:
        path = program.runner(architecture)
        data, name = path.read_bytes(), path.name
    else:
        from pipelines import keys

        data, name = kernels, f"runner-{keys.digest(kernels)[:16]}"
    prefix: list[str] = []
    is_foreign = to.board.is_local and not is_here(architecture)
    found = probe(to, name)
    if is_foreign:
        prefix = to.command([], architecture)[4:]
    elif found.architecture != architecture:
        raise BoardError(
            f"{to.board.name} is {found.architecture}, and what is to run there is {architecture}; "
            "name a hardware= of its architecture"
        )
    elif found.is_static and kernels is None:
        raise StaticError(f"{to.board.name} has no glibc {'.'.join(map(str, program.GLIBC))}")
    if not found.has_runner:
        _copied(to, data, name)
    return [*prefix, f"./{name}"]


class StaticError(BoardError):
    """A board that cannot load libraries: kernels have to be in the runner."""


def _copied(to: Transport, data: bytes, name: str) -> None:
    """Copy the runner under another name, and rename it: what was cut off is not mistaken for it."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="bitkiln-copy-") as folder:
        file = Path(folder) / name
        file.write_bytes(data)
        part = f"{name}.{os.getpid()}"
        to.copy(file, f"{FOLDER}/{part}")
    script(to, f"cd {FOLDER} && chmod 755 {part} && mv -f {part} {name}\n")


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


__all__ = [
    "BoardError",
    "FaultError",
    "Hello",
    "LostError",
    "Session",
    "StaticError",
    "UnreachableError",
    "probe",
]
