"""Stores and remotes of tests, and a clone that shares one."""

from __future__ import annotations

from pathlib import Path

from pipelines.caching import entry
from pipelines.caching.remote import Remote
from pipelines.caching.settings import Settings
from pipelines.store import keys
from pipelines.store.manifest import Manifest, Parts
from pipelines.store.store import Store
from tests.pipelines.fake_clone import Clone

STAGE = "importing"


def data_of(number: int) -> dict[str, bytes]:
    """What the stage of these tests gives for a number."""
    return {"a.bin": str(number).encode() * (1 + 300 * number), "deep/b.txt": b"same for all"}


def key_of(number: int) -> str:
    return keys.digest(f"key {number}")


def built(store: Store, number: int) -> Manifest:
    """Build and commit an artifact."""
    return store.commit(STAGE, key_of(number), "files", Parts(data_of(number), {}), {"n": number})


def remote_of(folder: Path, key: Path) -> Remote:
    """A remote in a folder, written and trusted with a key."""
    return Remote(Settings(remote=f"file://{folder}", sign=str(key)))


def new_key(folder: Path, name: str = "cache.key") -> tuple[Path, str]:
    path = folder / name
    return path, entry.keygen(path)


def share(clone: Clone, text: str) -> None:
    """Let a clone share the remote that a cache file says."""
    path = clone.write("shared.yaml", text)
    clone.environment["BITKILN_CACHE"] = str(path)
