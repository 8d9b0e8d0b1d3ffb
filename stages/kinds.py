"""The kinds of artifact that stages exchange."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_CHUNK_BYTES = 4 << 20

Table = dict[str, Any]
"""Plain data with a canonical JSON form."""

Array = np.ndarray[Any, Any]
"""A NumPy array of any shape and type."""


class Held:
    """The content of a file that is too large for memory: it is on disk as long as this lives."""

    def __init__(self, source: Path) -> None:
        """Take a file away from where it lies."""
        room = Path(tempfile.mkdtemp(prefix="bitkiln-"))
        self.path = source.replace(room / source.name)
        weakref.finalize(self, shutil.rmtree, room, ignore_errors=True)

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in order, some bytes at a time."""
        with self.path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk


Files = dict[str, bytes]
"""Relative POSIX paths and their contents."""

HeldFiles = dict[str, bytes | Held]
"""The same, the large ones on disk."""


def in_memory(files: HeldFiles) -> Files:
    """All contents as bytes."""
    return {n: d if isinstance(d, bytes) else b"".join(d.chunks()) for n, d in files.items()}


@dataclass(frozen=True)
class Model:
    """A Relax module and the tensors its `main` refers to by parameter name.

    `main` takes the graph inputs first (their count is its attribute `num_input`), then one
    parameter per entry of `params`, in order. Tensors never sit inside the module, so a module
    stays small and a tensor is stored once however many stages hand it on.
    """

    module: Any
    params: dict[str, np.ndarray]


@dataclass(frozen=True)
class Golden:
    """Inputs of the source graph and the outputs it computes; the leading axis counts samples."""

    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
