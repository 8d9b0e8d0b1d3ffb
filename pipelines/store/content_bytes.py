"""The contents of artifacts as bytes on disk: written, read back, and compared by digest."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.store import atomic, keys
from pipelines.store.manifest import (
    Content,
)

if TYPE_CHECKING:
    # NumPy takes a good part of the second that `doit list` may take.
    import numpy as np


_ELF = b"\x7fELF"


def npy_of(tensor: np.ndarray) -> bytes:
    """Return a tensor as the bytes of a .npy file."""
    import numpy as np

    buffer = io.BytesIO()
    # Not ascontiguousarray: it turns a scalar tensor into a vector.
    np.lib.format.write_array(buffer, np.asarray(tensor, order="C"), allow_pickle=False)
    return buffer.getvalue()


def tensor_of(data: bytes) -> np.ndarray:
    """Return the tensor that the bytes of a .npy file hold; ValueError if they hold none."""
    import numpy as np

    array: np.ndarray = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return array


def sound_bytes(content: Content, path: Path, damaged: list[str]) -> bytes | None:
    """Return a part's bytes; None where it is damaged, which is noted, and the part removed."""
    try:
        data = path.read_bytes()
    except OSError:
        damaged.append(f"{content.name} is missing")
        return None
    if keys.digest(data) == content.sha256:
        return data
    path.unlink(missing_ok=True)
    damaged.append(f"{content.name} has changed since")
    return None


def write(path: Path, data: bytes | Path) -> None:
    """Write a file whole, of bytes or as a copy of another."""
    if isinstance(data, bytes):
        atomic.write(path, data)
    else:
        atomic.copy(data, path)


def kept(path: Path, name: str, data: bytes | Path) -> Content:
    """Write a file of an artifact; return its entry in the manifest."""
    write(path, data)
    return Content(name, digest(data), path.stat().st_size)


def digest(data: bytes | Path) -> str:
    """Return the SHA-256 of bytes, or of a file, in hex."""
    return keys.digest(data) if isinstance(data, bytes) else keys.digest_of(data)


def is_elf(path: Path) -> bool:
    """Whether a file is a library or a program, by its first bytes."""
    with path.open("rb") as file:
        return file.read(len(_ELF)) == _ELF


def is_file_of(path: Path, sha256: str) -> bool:
    """Whether a file is there and has this digest."""
    try:
        return keys.digest(path.read_bytes()) == sha256
    except OSError:
        return False


def holds_exactly(folder: Path, wanted: Mapping[str, str]) -> bool:
    """Whether a folder holds exactly these files, by digest; another process may replace it.

    What Python keeps beside a package's loader once it was imported does not count.
    """
    try:
        found = (p.relative_to(folder) for p in folder.rglob("*") if not p.is_dir())
        there = {path.as_posix() for path in found if path.parts[0] != "__pycache__"}
        return there == set(wanted) and all(
            keys.digest_of(folder / name) == sha256 for name, sha256 in wanted.items()
        )
    except OSError:
        return False
