"""The shared store as a whole: what it holds, whether it is sound, and less of it.

All of these may raise UnreachableError: a command about the remote fails where a build would go on.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection
from dataclasses import dataclass

from pipelines.caching import eviction
from pipelines.caching.entry import LONGEST, BadEntryError, described, opened
from pipelines.caching.eviction import GRACE, Result
from pipelines.caching.remote import CONTENTS, ENTRIES, Remote, content_path, entry_path
from pipelines.caching.remote_files import TEMPORARY, Backend, Listed, UnreachableError
from pipelines.store.manifest import Manifest


@dataclass(frozen=True)
class Swept:
    """What gc removed of a remote."""

    entries: int
    contents: int
    bytes: int


@dataclass(frozen=True)
class Checked:
    """What verifying found on a remote."""

    sound: int
    bad: dict[str, str]
    """Entry → what is wrong with it."""
    damaged: tuple[str, ...]
    """Contents that are not what their names say."""


def totals(remote: Remote) -> dict[str, tuple[int, int]]:
    """Return how many entries and contents there are, and their bytes."""
    found = {name: remote.backend.list(name) for name in (ENTRIES, CONTENTS)}
    return {name: (len(files), sum(file.size for file in files)) for name, files in found.items()}


def address_of(path: str) -> tuple[str, str]:
    """Return the stage and key of an entry's path; empty texts if it is none."""
    stage, _, rest = path.removeprefix(f"{ENTRIES}/").rpartition("/")[0].rpartition("/")
    key = path.rpartition("/")[2]
    return (stage, key) if stage and entry_path(stage, key) == path and rest else ("", "")


def verify(remote: Remote, *, remove: bool) -> Checked:
    """Check the signature of every entry and hash every content; remove what is bad, if told to.

    What is younger than the grace period may be half written, and stays.
    """
    backend = remote.backend
    now = time.time()
    damaged: dict[str, Listed] = {}
    there: set[str] = set()
    for file in backend.list(CONTENTS):
        if file.path.endswith(TEMPORARY):
            continue
        sha256 = file.path.rpartition("/")[2]
        if content_path(sha256) == file.path and _digest(backend, file) == sha256:
            there.add(sha256)
        else:
            damaged[file.path] = file
    bad: dict[str, str] = {}
    sound = 0
    for file in backend.list(ENTRIES):
        if file.path.endswith(TEMPORARY):
            continue
        why = _fault(remote, file, there)
        if why:
            bad[file.path] = why
            if remove and _is_old(file, now):
                backend.remove(file.path)
        else:
            sound += 1
    for path, file in damaged.items():
        if remove and _is_old(file, now):
            backend.remove(path)
    return Checked(sound, bad, tuple(damaged))


def collect(
    remote: Remote, limit: int, needed: Collection[tuple[str, str]], days: int | None
) -> Swept:
    """Remove the oldest entries above a limit, then what no entry names; entries go first.

    `needed` are addresses, stage and key, that stay.
    """
    backend = remote.backend
    now = time.time()
    entries = backend.list(ENTRIES)
    contents = {file.path: file for file in backend.list(CONTENTS)}
    results, rubbish = [], []
    for file in entries:
        manifest = _described(backend, file)
        if manifest is None:
            rubbish.append(file)
            continue
        held = {c.sha256: c.size for c in (*manifest.files, *manifest.tensors)}
        # What the listing lacks takes no room.
        held = {name: size for name, size in held.items() if content_path(name) in contents}
        results.append(Result(file.path, _written(file, now), file.size, held))
    stay = {entry_path(*address) for address in needed}
    oldest = None if days is None else days * 86400.0
    doomed = eviction.choose(results, stay, limit, now, oldest)
    doomed += [file.path for file in rubbish if _is_old(file, now)]
    for path in doomed:
        backend.remove(path)
    return _sweep(backend, entries, doomed, contents, now)


def _sweep(
    backend: Backend,
    entries: list[Listed],
    doomed: list[str],
    contents: dict[str, Listed],
    now: float,
) -> Swept:
    """Remove the contents that no entry names, and that are not on their way."""
    backend.forget()
    named: set[str] = set()
    # Listed once more: what was uploaded meanwhile may name contents that were there before.
    for file in backend.list(ENTRIES):
        manifest = _described(backend, file)
        if manifest is not None:
            named |= {content_path(c.sha256) for c in (*manifest.files, *manifest.tensors)}
    gone = [file for path, file in contents.items() if path not in named and _is_old(file, now)]
    for file in gone:
        backend.remove(file.path)
    sizes = {file.path: file.size for file in entries}
    freed = sum(sizes[path] for path in doomed) + sum(file.size for file in gone)
    return Swept(len(doomed), len(gone), freed)


def _fault(remote: Remote, file: Listed, there: Collection[str]) -> str:
    """What keeps an entry from being used here; nothing if it can be."""
    stage, key = address_of(file.path)
    if not stage:
        return "its path is that of no entry"
    data = remote.backend.read(file.path, LONGEST)
    if data is None:
        return "it vanished"
    if len(data) > LONGEST:
        return f"it is longer than {LONGEST >> 20} MiB"
    try:
        manifest = opened(data, stage, key, remote.trusted)
    except BadEntryError as error:
        return str(error)
    lacking = {c.sha256 for c in (*manifest.files, *manifest.tensors)} - set(there)
    return f"content {min(lacking)[:12]} is missing or damaged" if lacking else ""


def _described(backend: Backend, file: Listed) -> Manifest | None:
    """The manifest of an entry, whoever signed it; None if it is no entry, or gone."""
    if file.path.endswith(TEMPORARY):
        return None
    data = backend.read(file.path, LONGEST)
    try:
        return None if data is None or len(data) > LONGEST else described(data)
    except BadEntryError:
        return None


def _digest(backend: Backend, file: Listed) -> str:
    found = hashlib.sha256()
    for chunk in backend.chunks(file.path, file.size):
        if chunk is not None:
            found.update(chunk)
    return found.hexdigest()


def _written(file: Listed, now: float) -> float:
    """When a file was written; now, where the remote does not say: it then stays."""
    return now if file.written is None else file.written


def _is_old(file: Listed, now: float) -> bool:
    return now - _written(file, now) >= GRACE


def reachable(remote: Remote) -> str:
    """Return why a remote cannot be reached; nothing if it can."""
    try:
        remote.backend.read("bitkiln", 1)
    except UnreachableError as error:
        return str(error)
    return ""
