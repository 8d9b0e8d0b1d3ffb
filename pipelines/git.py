"""What git says about a folder; nothing where there is no git, or no clone."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path


def said(root: Path, *words: str) -> str:
    """Return what `git -C root words…` prints, without the last line's end; empty if it fails."""
    with contextlib.suppress(OSError):
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def commit_of(root: Path, *flags: str) -> str:
    """Return the commit that a clone stands at, given that `root` is its top; else nothing."""
    if said(root, "rev-parse", "--show-toplevel") != str(root.resolve()):
        return ""
    return said(root, "rev-parse", *flags, "HEAD")


def is_changed(root: Path) -> bool:
    """Whether files of a clone differ from its commit."""
    return bool(said(root, "status", "--porcelain", "--untracked-files=no"))
