"""Boards on this machine: each with a home folder of its own, and some that go wrong."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.remote.board_addresses import LOCAL, Board
from pipelines.remote.transport import Local

BETWEEN = Path(__file__).with_name("between.py")


@dataclass(frozen=True)
class Faulty(Local):
    """A board whose runner answers well for so many lines (`between.py`)."""

    mode: str
    count: int

    @property
    def mark(self) -> Path:
        """There once it has gone wrong for good."""
        return self.home / "mark"

    def command(self, words: Sequence[str]) -> list[str]:
        """Nothing is reached any more once it died."""
        if self.mode == "dies" and self.mark.exists():
            return ["sh", "-c", "echo it is gone >&2; exit 255"]
        command = super().command(words)
        if not any("runner-" in word for word in words):
            return command
        wrong = [sys.executable, str(BETWEEN), self.mode, str(self.count), str(self.mark)]
        return [*wrong, "--", *command]


def fake(folder: Path, name: str) -> Local:
    """A board that works."""
    return Local(_board(name), _home(folder, name))


def faulty(folder: Path, name: str, mode: str, count: int) -> Faulty:
    """A board that goes wrong after so many lines of its runner."""
    return Faulty(_board(name), _home(folder, name), mode, count)


def _board(name: str) -> Board:
    return Board(name=name, address=LOCAL)


def _home(folder: Path, name: str) -> Path:
    home = folder / name
    home.mkdir(exist_ok=True)
    return home
