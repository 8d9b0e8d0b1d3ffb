"""A program on a board that is spoken to: lines go in, lines of JSON come back.

Whatever a board answers is data: it is checked to be of the form that was asked for, shown without
control characters, and neither executed nor used as a path.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import subprocess
import threading
from collections.abc import Sequence
from typing import IO, Any

from pipelines.remote.deployment import BoardError
from pipelines.remote.transport import printable_tail

ANSWER_SECONDS = 60.0
"""How long a program may take for what is no measuring."""
_LONGEST_LINE = 1 << 24
_MOST_ANSWERS = 10_000
_LONGEST_TIME = 1e18
"""Of what is called a time here: seconds, kHz and microjoules are far below it."""


class LostError(BoardError):
    """The way to a board, or the program on it, ended."""


class FaultError(BoardError):
    """What the program ran made it fail."""


class Dialogue:
    """A program that a command line of this machine starts on a board; `close` ends it."""

    def __init__(self, board: str, command: Sequence[str]) -> None:
        self.board = board
        self._said: list[str] = []
        self._answers: queue.Queue[tuple[Any, bytes] | None] = queue.Queue(_MOST_ANSWERS)
        self._wanted = 0
        """Bytes that were asked for: no more is taken."""
        pipe = subprocess.PIPE
        # In a session of its own, so that Ctrl-C is for whoever speaks to it, who then ends it.
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        self._listeners = [
            threading.Thread(target=listen, daemon=True)
            for listen in (self._listen, self._listen_to_errors)
        ]
        for thread in self._listeners:
            thread.start()

    def ask(self, line: str, payload: bytes = b"", seconds: float = ANSWER_SECONDS) -> Any:
        """Send a line, with bytes behind it, and return the answer to it."""
        self.send(line, payload)
        return self.answer(seconds)

    def send(self, line: str, payload: bytes = b"") -> None:
        """Send a line that is not answered."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n" + payload)
            self._process.stdin.flush()
        except (OSError, ValueError):
            self.answer()  # says why, as a rule
            raise self._lost() from None

    def answer(self, seconds: float = ANSWER_SECONDS) -> Any:
        """Return the next answer, an object of JSON.

        LostError if none comes; FaultError or BoardError if it is that of something gone wrong.
        """
        return self._next(seconds)[0]

    def ask_bytes(self, line: str, count: int) -> bytes:
        """Send a line that is answered by so many bytes."""
        self._wanted = count
        self.send(line)
        said, data = self._next(ANSWER_SECONDS)
        self._wanted = 0
        if len(data) != count:
            raise self.garbage(said)
        return data

    def garbage(self, said: object) -> BoardError:
        """Return the error of an answer that is not of the form that was asked for."""
        what = printable_tail(repr(said)[:100])
        return BoardError(
            f"{self.board} answers what no runner says: {what}; doit doctor board={self.board} "
            "says more"
        )

    def close(self) -> None:
        """End the program."""
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _next(self, seconds: float) -> tuple[Any, bytes]:
        try:
            found = self._answers.get(timeout=None if math.isinf(seconds) else seconds)
        except queue.Empty:
            self._process.kill()
            raise LostError(f"{self.board}: no answer in {seconds:.0f} s") from None
        if found is None:
            self._answers.put(None)
            raise self._lost()
        said, data = found
        if not isinstance(said, dict):
            raise self.garbage(said)
        if "fault" in said:
            raise FaultError(printable_tail(str(said["fault"])))
        if "error" in said:
            raise BoardError(f"{self.board}: {printable_tail(str(said['error']))}")
        return said, data

    def _lost(self) -> LostError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        self._listeners[1].join(timeout=1)
        said = printable_tail("\n".join(self._said)) or "the program there ended without a word"
        return LostError(f"{self.board}: {said}")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        stream = self._process.stdout
        with contextlib.suppress(OSError, ValueError):
            while line := stream.readline(_LONGEST_LINE):
                if not line.strip():
                    continue
                said = _parsed(line)
                count = said.get("bytes", 0) if isinstance(said, dict) else 0
                data = _exactly(stream, count) if is_count(count, self._wanted) else b""
                self._answers.put((said, data))
                if not isinstance(said, dict):
                    break
        self._answers.put(None)

    def _listen_to_errors(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            while line := self._process.stderr.readline(10_000):
                self._said = [*self._said[-20:], line.decode(errors="replace")]


def is_count(value: object, most: int = 1 << 62) -> bool:
    """Whether an answer is a whole number that can be a count or a set of bits."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def is_time(value: object) -> bool:
    """Whether an answer is a number that can be a time."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value < _LONGEST_TIME  # type: ignore[operator]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line.decode(errors="replace")[:200]


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count) if count else b""
    if len(data) != count:
        raise OSError("the stream ended")
    return data
