"""Items: results smaller than a stage, kept under their own problem and shared by all recipes."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pipelines.store import keys
from pipelines.store.manifest import DamagedError, Manifest, Parts
from pipelines.store.store import Store

if TYPE_CHECKING:
    from pipelines.caching.remote import Remote

_CONTENT, _KIND = "content", "files"


class Memo:
    """The item store as a stage sees it; remembers what it handed out. Safe to share by threads."""

    def __init__(
        self,
        store: Store,
        code: str,
        tools: Mapping[str, str],
        told: Callable[[str], None] = lambda text: None,
        remote: Remote | None = None,
    ) -> None:
        self._store = store
        self._code = code
        self._tools = dict(tools)
        self._told = told
        self._remote = remote
        self._lock = threading.Lock()
        self.used: set[str] = set()
        self.new: list[Manifest] = []
        """The items that were built, to be written back."""

    def __call__(
        self, kind: str, problem: Mapping[str, object], build: Callable[[], bytes]
    ) -> bytes:
        """Return the bytes kept for this problem, or what `build` returns, which is then kept.

        `problem` is plain JSON data and must say all that `build` depends on besides its code.
        """
        if not re.fullmatch(r"[a-z][a-z0-9_]*", kind):
            raise ValueError(f"'{kind}' cannot name a kind of item; use a-z, 0-9 and _")
        ingredients = {"code": self._code, "tools": self._tools, "problem": dict(problem)}
        folder, key = f"items/{kind}", keys.digest(keys.canonical(ingredients))
        with self._lock:
            self.used.add(f"{folder}/{key}")
        kept = self._read(folder, key)
        if kept is not None:
            return kept
        data = build()
        parts = Parts({_CONTENT: data}, {})
        manifest = self._store.commit(folder, key, _KIND, parts, ingredients)
        with self._lock:
            self.new.append(manifest)
        self._told(f"{len(self.used)} {kind}s, {len(self.new)} of them new")
        return data

    def _read(self, folder: str, key: str) -> bytes | None:
        try:
            manifest = self._store.manifest(folder, key)
        except DamagedError:
            self._store.discard(folder, key)
            manifest = None
        if manifest is None and self._remote is not None:
            manifest = self._remote.fetch(self._store, folder, key, _KIND)
        try:
            # One of the remote may be without the content that all items have.
            return None if manifest is None else self._store.read(manifest).files.get(_CONTENT)
        except DamagedError:
            self._store.discard(folder, key)
            return None
