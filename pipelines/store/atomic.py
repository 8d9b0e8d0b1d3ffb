"""Files and folders written whole: on the disk first, then renamed into place.

A name that was renamed before its content was on the disk may stand for an empty file after a loss
of power. So content is synced, then renamed, then the folder that has the new name is synced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Give an OSError that names no file, as that of a write does, the name of this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def make_folder(path: Path) -> None:
    """Make a folder and those above it, each of them synced into the one that has it."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    _sync(path.parent, path)


def write(path: Path, data: bytes) -> None:
    """Write a file whose content is on the disk when this returns; its name may not yet be."""
    with _synced(path) as file:
        file.write(data)


def copy(source: Path, path: Path) -> None:
    """Write a file as another, which need not fit memory; the same holds of it."""
    with source.open("rb") as given, _synced(path) as file:
        shutil.copyfileobj(given, file)


def sync_tree(folder: Path) -> None:
    """Bring the names in a folder, and in all below it, to the disk."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            sync_tree(path)
    _sync(folder, folder)


def move(source: Path, target: Path) -> None:
    """Rename what is on the disk already, a file over a file or a folder to a new name."""
    source.rename(target)
    _sync(target.parent, target)


def replace(path: Path, data: bytes, through: Path | None = None) -> None:
    """Replace a file as a whole, by way of `through`: another name on its file system.

    Without one it is a name beside it. A write that fails leaves the file as it was.
    """
    make_folder(path.parent)
    through = through or path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
    try:
        write(through, data)
        move(through, path)
    except BaseException:
        through.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _synced(path: Path) -> Iterator[IO[bytes]]:
    """Give a new file to write into; its content is on the disk afterwards."""
    make_folder(path.parent)
    with named(path), path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path, named_as: Path) -> None:
    """Bring the names in a folder to the disk, where its file system can."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with named(named_as):
            os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(opened)
