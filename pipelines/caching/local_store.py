"""The local store: what it holds, what recipes need of it, whether it is sound, and less of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from pipelines.caching import eviction
from pipelines.caching.eviction import Result
from pipelines.store import keys, roots
from pipelines.store.manifest import DamagedError, Manifest, parse
from pipelines.store.store import Store


def manifests(store: Store) -> Iterator[tuple[Path, Manifest | None]]:
    """Yield the folder of each artifact and item, with its manifest; None where it has none."""
    for pattern in ("*/*/manifest.json", "items/*/*/manifest.json"):
        for path in sorted(store.root.glob(pattern)):
            if path.relative_to(store.root).parts[0] in ("tmp", "packages"):
                continue
            manifest = None
            with contextlib.suppress(OSError, ValueError):
                manifest = parse(path.read_bytes())
            yield path.parent, manifest


def of_recipe(store: Store, recipe: str) -> Iterator[Manifest]:
    """Yield what a recipe used, as far as it is there: its artifacts, and their items."""
    for stage, kept in roots.of(store, recipe).items():
        for key in kept:
            with contextlib.suppress(DamagedError):
                manifest = store.manifest(stage, key)
                if manifest is not None:
                    yield manifest
                    yield from _items(store, manifest)


def _items(store: Store, manifest: Manifest) -> Iterator[Manifest]:
    for item in manifest.items:
        folder, _, key = item.rpartition("/")
        with contextlib.suppress(DamagedError):
            if (found := store.manifest(folder, key)) is not None:
                yield found


def verify(store: Store) -> tuple[int, list[str]]:
    """Hash every content; remove what is damaged. Return how many results are sound, and names of
    those that were not: they are built again when they are needed."""
    sound, damaged = 0, []
    for folder, _parsed in manifests(store):
        name = str(folder.relative_to(store.root))
        if _is_sound(store, folder):
            sound += 1
        else:
            damaged.append(name)
            store.remove(folder)
    return sound, damaged


def _is_sound(store: Store, folder: Path) -> bool:
    try:
        made = parse((folder / "manifest.json").read_bytes())
        if store.folder(made.stage, made.key) != folder:
            return False
        # By digest, a part at a time: an artifact need not fit memory.
        return store.manifest(made.stage, made.key) is not None and all(
            _repaired(store, path, content.sha256) for content, path in store.places(made)
        )
    except (DamagedError, ValueError, OSError):
        return False


def _repaired(store: Store, path: Path, sha256: str) -> bool:
    """Whether a file is what its digest says; a tensor that is not goes, as others may share it."""
    if keys.digest_of(path) == sha256:
        return True
    if path.is_relative_to(store.root / "blobs"):
        path.unlink(missing_ok=True)
    return False


def results(store: Store) -> list[Result]:
    """Return the artifacts and items of the store as gc sees them."""
    found = []
    for folder, manifest in manifests(store):
        with contextlib.suppress(OSError):
            used = (folder / "manifest.json").stat().st_mtime
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            tensors = {c.sha256: c.size for c in manifest.tensors} if manifest else {}
            name = str(folder.relative_to(store.root))
            found.append(Result(name, used, size, tensors))
    return found


def collect(store: Store, limit: int) -> list[str]:
    """Remove what no recipe needs until the store is within its limit; return what went."""
    with store.lock(exclusive=True):
        found = results(store)
        needed = roots.needed(store)
        doomed = eviction.choose(found, needed, limit, time.time())
        for name in doomed:
            store.remove(store.root / name)
        roots.sweep_blobs(store)
    return doomed
