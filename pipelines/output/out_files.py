"""Files that a command line names for what a command writes, as `json=` and `out=` do."""

from __future__ import annotations

import os
from pathlib import Path

from pipelines.errors import UserError, shown
from pipelines.paths import expanded, is_file
from pipelines.store import atomic


def check(variable: str, name: str | None) -> None:
    """Raise UserError for a file in a folder that is not there, before long work is begun."""
    if name is not None and not (folder := expanded(name).absolute().parent).is_dir():
        raise UserError(f"{variable}={name}: cannot write it: there is no folder {shown(folder)}")


def write(variable: str, name: str, data: bytes) -> Path:
    """Write the file that `variable` names, whole or not at all; return its absolute path.

    A link stays and the file it leads to is replaced; what is no file, as a pipe or /dev/stdout, is
    written into. No folder is made: a name with a wrong one is a mistake. UserError says why the
    file cannot be written.
    """
    path = expanded(name)
    try:
        if path.exists() and not is_file(path):
            path.write_bytes(data)
        else:
            target = Path(os.path.realpath(path))
            os.stat(f"{target.parent}{os.sep}")  # noqa: PTH116 - the slash asks for a folder
            atomic.replace(target, data)
    except OSError as error:
        raise UserError(f"{variable}={name}: cannot write it: {error.strerror}") from error
    return path.absolute()
