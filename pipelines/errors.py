"""The errors a user can cause: what was found, where, what is accepted, and the next step."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_WIDEST_LINE = 120
_LONGEST_PATH = 1000
COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Source:
    """A text that says something: a YAML file, or one variable of the command line."""

    name: str
    """How to call it: a path as the user would write it, or 'command line'."""
    folder: Path
    """What relative paths in it are relative to."""
    lines: tuple[str, ...]

    @property
    def is_command_line(self) -> bool:
        """Whether this is a variable of the command line, which has no line numbers."""
        return self.name == COMMAND_LINE


@dataclass(frozen=True)
class Span:
    """A place in a source; line and column count from 1."""

    source: Source
    line: int
    column: int
    width: int = 1

    @property
    def origin(self) -> str:
        """Where a value came from, in short: 'base.yaml:7' or 'command line'."""
        if self.source.is_command_line:
            return COMMAND_LINE
        return f"{Path(self.source.name).name}:{self.line}"


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a user's text: where, in which field, and one sentence."""

    span: Span
    field: str
    """The field's path, as in layers[0].match; empty for the text as a whole."""
    sentence: str

    def render(self) -> str:
        """Return file:line:column, field and sentence, then the source line with a caret."""
        span = self.span
        place = (
            span.source.name
            if span.source.is_command_line
            else f"{span.source.name}:{span.line}:{span.column}"
        )
        field = f"{cut(self.field)}: " if self.field else ""
        head = printable(f"{place}: {field}{cut(self.sentence, 4 * _WIDEST_LINE)}")
        if not 1 <= span.line <= len(span.source.lines):
            return head
        text, column = _visible(span.source.lines[span.line - 1], span.column)
        label = "    " if span.source.is_command_line else f"{span.line:5d} | "
        bar = "    " if span.source.is_command_line else "      | "
        width = max(1, min(span.width, len(text) - column + 1))
        return f"{head}\n{label}{text}\n{bar}{' ' * (column - 1)}{'^' * width}"


class UserError(Exception):
    """A mistake of the user's, already worded; commands print it without a traceback."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message

    @classmethod
    def of(cls, faults: Iterable[Fault]) -> Self:
        """Return one error that reports every fault, files first, by line and column."""
        ordered = sorted(
            dict.fromkeys(faults),
            key=lambda fault: (
                fault.span.source.is_command_line,
                fault.span.source.name,
                fault.span.line,
                fault.span.column,
                fault.field,
                fault.sentence,
            ),
        )
        return cls("\n".join(fault.render() for fault in ordered))


class CheckError(UserError):
    """What was examined is not as it should be: outputs depart, tests fail, a board has a fault.

    It is worded as a user's mistake is, and the process ends with another status.
    """


_ROOM = "make room and try again"
_ACCESS = "let this user read and write there, and try again"
_DISK = {
    errno.ENOSPC: ("the disk is full", _ROOM),
    errno.EDQUOT: ("the disk quota is used up", _ROOM),
    errno.EFBIG: ("files may not be that large here", "raise the limit (ulimit -f) and try again"),
    errno.EROFS: ("the disk is read-only", "make it writable and try again"),
    errno.EACCES: ("permission denied", _ACCESS),
    errno.EPERM: ("operation not permitted", _ACCESS),
    errno.EEXIST: ("it is in the way", "move it elsewhere and try again"),
    errno.ENOTDIR: ("one of these is no folder", "move it elsewhere and try again"),
    errno.EISDIR: ("it is a folder", "move it elsewhere and try again"),
    errno.EIO: ("the disk could not read or write it", "look at the disk"),
}
"""What keeps a file from being read or written that is no fault of bitkiln's, and what to do."""


def of_disk(error: OSError) -> str | None:
    """Return one sentence on what is wrong with a file or disk; None for other errors."""
    if error.errno not in _DISK:
        return None
    found, advice = _DISK[error.errno]
    name = error.filename if isinstance(error.filename, str | os.PathLike) else None
    return f"{shown(Path(name)) if name else 'what is printed'}: {found}; {advice}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like `word`, or None if none is alike.

    A word without dots is also compared with the last parts of dotted ones.
    """
    best, best_score = None, 0.0
    for name in known:
        score = _likeness(word[:80], name)
        if score > best_score:
            best, best_score = name, score
    return best


def _likeness(word: str, name: str) -> float:
    """Return how alike two names are, 0 to 1; below a threshold they are not."""
    whole = difflib.SequenceMatcher(None, word, name).ratio()
    tail = difflib.SequenceMatcher(None, word.rpartition(".")[2], name.rpartition(".")[2]).ratio()
    has_tail = "." in name
    # The whole name counts for a little more, so that of two equal tails the nearer one wins.
    return max(whole if whole >= 0.6 else 0.0, tail - 0.05 if has_tail and tail >= 0.7 else 0.0)


def did_you_mean(word: str, known: Sequence[str], *, otherwise: str = "accepted") -> str:
    """Return '; did you mean …?' if something is alike, else '; accepted: …'."""
    close = nearest(word, known)
    if close:
        return f"; did you mean '{close}'?"
    return f"; {otherwise}: {', '.join(known)}" if known else ""


def shown(path: Path) -> str:
    """Return a path as the user would write it: relative if it lies below the current folder."""
    here = Path.cwd()
    text = str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
    return cut(text, _LONGEST_PATH)


def printable(text: str) -> str:
    """Return the text with what a terminal would obey, or not show, replaced by spaces."""
    return "".join(char if char.isprintable() else " " for char in text)


def cut(text: str, width: int = _WIDEST_LINE) -> str:
    """Return a text, cut off where it is longer than a line."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _visible(line: str, column: int) -> tuple[str, int]:
    """Return the line as one can print it, cut to the part around `column`, and the new column."""
    text = printable(line).rstrip()
    if len(text) <= _WIDEST_LINE:
        return text, column
    start = max(0, column - 1 - _WIDEST_LINE // 2)
    cut = text[start : start + _WIDEST_LINE]
    return (f"…{cut[1:]}" if start else cut), column - start
