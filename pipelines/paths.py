"""Paths as people write them: of any length, with any characters, with a home that is unknown."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path


def is_file(path: Path) -> bool:
    """Whether there is such a file; no name is too long or too odd to ask."""
    return _is(stat.S_ISREG, path)


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; no name is too long or too odd to ask."""
    return _is(stat.S_ISDIR, path)


def expanded(text: str | Path) -> Path:
    """Return a path with its `~` replaced, as it stands where nobody has that home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def _is(kind: Callable[[int], bool], path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return kind(mode)
