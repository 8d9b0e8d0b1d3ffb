"""How programs reach a board and run there: the user's own ssh and scp, or this machine itself.

A transport gives command lines of this machine. What stands in them for the board is quoted for its
shell; nothing that a board answers ever becomes a part of one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from hw.profile import Hardware
from pipelines import paths
from pipelines.errors import UserError
from pipelines.remote.board_addresses import LOCAL, Board, boards
from pipelines.runners.replay import qemu_lacks, qemu_prefix

FOLDER = ".cache/bitkiln"
"""Where things are put on a board, below the home folder."""
CONNECT_SECONDS = 10
"""How long a board may take to answer a call."""
_COPY_SECONDS = 300
_SCRIPT_SECONDS = 60
_MOST_BYTES = 1 << 24
"""What is read of what a program prints."""
_PIPE_SECONDS = 2.0
"""What an ended program may have printed is read for so long: another may hold its pipes."""


class UnreachableBoardError(UserError):
    """A board that cannot be reached, or no longer: what ssh or scp said of it."""


class Transport(Protocol):
    """What runs and copies."""

    @property
    def board(self) -> Board:
        """Which board it is."""

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command line of this machine that runs words on the board, in its home."""

    def emulator(self, architecture: str) -> list[str]:
        """Return the words before a program of another architecture than the board's."""

    def copy(self, file: Path, name: str) -> None:
        """Copy a file to a path below the board's home; UnreachableBoardError if it fails."""


@dataclass(frozen=True)
class Ssh:
    """A board that ssh reaches, with the user's client, keys and configuration."""

    board: Board
    alive: tuple[int, int] = field(default=(5, 3), kw_only=True)
    """A board that leaves questions unanswered is gone: seconds between them, and how many."""

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the command line of ssh; passwords are not asked for."""
        host, port = self.target
        to_port = ["-p", port] if port else []
        line = shlex.join(words)
        plain_host = host.replace("[", "").replace("]", "")
        return [_found("ssh"), "-T", *self._options, *to_port, "--", plain_host, line]

    def emulator(self, architecture: str) -> list[str]:
        """A board runs programs of its own architecture alone."""
        raise UserError(f"{self.board.name} runs no programs of {architecture}")

    def copy(self, file: Path, name: str) -> None:
        """Copy a file with scp."""
        host, port = self.target
        to_port = ["-P", port] if port else []
        target = f"{host}:{name}"
        command = [_found("scp"), "-q", *self._options, *to_port, "--", str(file), target]
        _done(self.board, command, None, _COPY_SECONDS)

    @property
    def _options(self) -> list[str]:
        stated = self.board.ssh_config
        config = ["-F", str(paths.expanded(stated))] if stated else []
        wait = ("-o", f"ConnectTimeout={CONNECT_SECONDS}", "-o", "BatchMode=yes")
        every, most = self.alive
        asked = ("-o", f"ServerAliveInterval={every}", "-o", f"ServerAliveCountMax={most}")
        return [*config, *wait, *asked]

    @property
    def target(self) -> tuple[str, str]:
        """User and host, and the port if one is stated."""
        match = re.fullmatch(r"(.*?[^:]|.*\])(?::(\d+))?", self.board.address)
        assert match is not None, "addresses were checked"
        return match.group(1), match.group(2) or ""


@dataclass(frozen=True)
class Local:
    """This machine as a board; QEMU runs programs of another architecture."""

    board: Board
    home: Path
    """What stands for its home folder."""

    def command(self, words: Sequence[str]) -> list[str]:
        """Return what runs the words in the folder."""
        return ["sh", "-c", 'cd "$0" && exec "$@"', str(self.home), *words]

    def emulator(self, architecture: str) -> list[str]:
        """Return the words that start QEMU."""
        found = qemu_prefix(architecture)
        if found is None:
            raise UserError(
                f"board={LOCAL}: this machine runs programs of {architecture} under QEMU alone; "
                f"on Debian: apt install {' '.join(qemu_lacks(architecture))}"
            )
        return list(found)

    def copy(self, file: Path, name: str) -> None:
        """Copy a file below the folder."""
        target = self.home / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def transport(board: Board) -> Transport:
    """Return how a board is reached."""
    return Local(board, Path.home()) if board.is_local else Ssh(board)


def reached(text: str | None, hardware: Hardware) -> list[Transport]:
    """Return how the boards that `board=` names are reached; none if it was not given.

    UserError if one of them is said to be another board than the hardware that is built for.
    """
    found = boards(text) if text is not None else ()
    for board in found:
        if board.kind is not None and board.kind != hardware.name:
            raise UserError(
                f"board={board.name}: it is a {board.kind}, and what is built is for "
                f"{hardware.name}; give hardware={board.kind}, or another board"
            )
    return [transport(board) for board in found]


def script(to: Transport, text: str, seconds: float = _SCRIPT_SECONDS) -> str:
    """Run a POSIX shell script on a board and return what it printed.

    UnreachableBoardError if it fails. The script is one of our own, and is sent as its input.
    """
    return _done(to.board, to.command(["sh", "-s"]), text, seconds)


def _done(board: Board, command: Sequence[str], given: str | None, seconds: float) -> str:
    done = ended(board, command, given, seconds)
    if done.returncode:
        raise UnreachableBoardError(
            f"{board.name}: {printable_tail(done.stderr) or 'ended without a word'}"
        )
    return done.stdout


def ended(
    board: Board, command: Sequence[str], given: str | None, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end.

    UnreachableBoardError if it takes longer than so many seconds, or if it prints more than any
    program of ours does.
    """
    pipe = subprocess.PIPE
    said: list[bytes] = [b"", b""]

    def listen(place: int, stream: IO[bytes]) -> None:
        with stream:
            said[place] = stream.read(_MOST_BYTES + 1)
        if len(said[place]) > _MOST_BYTES:
            _kill(process)

    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    assert process.stdin and process.stdout and process.stderr
    streams = enumerate((process.stdout, process.stderr))
    threads = [threading.Thread(target=listen, args=each, daemon=True) for each in streams]
    for thread in threads:
        thread.start()
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write((given or "").encode())
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise UnreachableBoardError(f"{board.name}: no answer in {seconds:.0f} s") from None
    finally:
        _kill(process)
        process.wait()
        for thread in threads:
            thread.join(_PIPE_SECONDS)
    if max(map(len, said)) > _MOST_BYTES:
        raise UnreachableBoardError(
            f"{board.name}: it prints without end where a few lines are due"
        )
    out, errors = (each.decode(errors="replace") for each in said)
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def printable_tail(text: str, most: int = 300) -> str:
    """The last lines of what somebody else said: one line, without control characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = "; ".join(lines[-3:])
    return "".join(c if c.isprintable() else "?" for c in found)[-most:]


def _found(program: str) -> str:
    path = shutil.which(program, path=os.environ.get("PATH"))
    if path is None:
        raise UserError(f"{program} is not installed; on Debian: apt install openssh-client")
    return path
