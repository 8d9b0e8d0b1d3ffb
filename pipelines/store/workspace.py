"""Folders in which artifacts are written before they are renamed into place."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pipelines.store import atomic

_GRACE_SECONDS = 600
_IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
"""How renaming a folder fails where something is at its new place."""


def _is_abandoned(workspace: Path) -> bool:
    """Whether the process a temporary folder is named after is gone, and has been for a while.

    The wait is for processes we cannot see: those of another container at the same folder.
    """
    try:
        if time.time() - workspace.stat().st_mtime < _GRACE_SECONDS:
            return False
        os.kill(int(workspace.name.partition("-")[0]), 0)
    except (ProcessLookupError, ValueError):
        return True
    except OSError:
        pass
    return False


@contextlib.contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """Give a private folder below `folder`; what a killed build left there goes."""
    atomic.make_folder(folder)
    for left in folder.iterdir():
        if _is_abandoned(left):
            shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=folder))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def move_folder(
    source: Path, target: Path, work: Path, *, stays: Callable[[Path], bool] | None = None
) -> None:
    """Rename a folder into place; one that is there moves into `work`, unless it `stays`."""
    atomic.make_folder(target.parent)
    atomic.sync_tree(source)
    for attempt in range(100):
        try:
            atomic.move(source, target)
            return
        except OSError as error:
            # Not whether it is there now: another build may just have taken it away.
            if error.errno not in _IN_THE_WAY:
                raise
        if stays is not None and stays(target):
            return
        with contextlib.suppress(FileNotFoundError):  # another build was faster
            target.rename(work / f"replaced{attempt}")
    raise OSError(f"{target} cannot be replaced")
