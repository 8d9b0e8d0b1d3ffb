"""What a run did with the remote, noted beside the local store for `doit cache stats`."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections import Counter
from pathlib import Path

from pipelines.store.store import RUN, Store

_MOST = 2**24
"""Bytes of the file that are read."""


def note(store: Store, what: str, stage: str, size: int) -> None:
    """Note a hit, a miss or a result written back, with its bytes; earlier runs are forgotten."""
    line = json.dumps([RUN, what, stage, size]) + "\n"
    # Locked: threads, and the processes that doit forks for `-n`, write it as well.
    with contextlib.suppress(OSError), _path(store).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if not _is_of_this_run(file.readline(500)):
            file.truncate(0)
        file.write(line)
        file.flush()


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


def _is_of_this_run(line: str) -> bool:
    try:
        return bool(json.loads(line)[0] == RUN)
    except (ValueError, IndexError, TypeError, KeyError):
        return False


def _path(store: Store) -> Path:
    return store.root / ".cache-run"
