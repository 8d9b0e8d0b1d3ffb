"""What a run did with the remote, noted beside the local store for `doit cache stats`."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import Counter
from pathlib import Path

from pipelines import atomic
from pipelines.store import Store

_RUN = f"{os.getpid()}-{time.time_ns()}"
"""This run: the processes that doit forks for `-n` have it, too."""
_lock = threading.Lock()
_MOST = 2**24
"""Bytes of the file that are read."""


def note(store: Store, what: str, stage: str, size: int) -> None:
    """Note a hit, a miss or a result written back, with its bytes; earlier runs are forgotten."""
    path = _path(store)
    line = json.dumps([_RUN, what, stage, size]) + "\n"
    with contextlib.suppress(OSError), _lock:
        if not _is_of_this_run(path):
            atomic.replace(path, b"")
        with path.open("a") as file:
            file.write(line)


def last(store: Store) -> dict[str, tuple[int, int]]:
    """Return what the last run with a remote did → how often, and how many bytes."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    with contextlib.suppress(OSError, ValueError, TypeError):
        with _path(store).open("rb") as file:
            lines = file.read(_MOST).splitlines()
        for line in lines:
            _run, what, _stage, size = json.loads(line)
            counts[str(what)] += 1
            sizes[str(what)] += int(size)
    return {what: (count, sizes[what]) for what, count in counts.items()}


def _is_of_this_run(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError, IndexError), path.open() as file:
        return bool(json.loads(file.readline(500))[0] == _RUN)
    return False


def _path(store: Store) -> Path:
    return store.root / ".cache-run"
