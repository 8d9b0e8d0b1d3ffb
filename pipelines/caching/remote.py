"""Reading artifacts through to the shared store, and writing them back to it.

Contents lie on the remote by digest, and beside them an entry for each key. What is written is
written contents first, and what is read is checked before the local store has it; so a remote can
be half written, damaged or forged, and costs a build no more than a warning and the time to build.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.caching import events, settings
from pipelines.caching.entry import LONGEST, BadEntryError, Signer, opened
from pipelines.caching.remote_files import Backend, UnreachableError
from pipelines.errors import cut, printable
from pipelines.store.manifest import Content, Manifest
from pipelines.store.store import Store

ENTRIES, CONTENTS = "entries", "contents"
AT_A_TIME = 8


def entry_path(stage: str, key: str) -> str:
    """Return where the entry of a key lies below the root of a remote."""
    return f"{ENTRIES}/{stage}/{key[:2]}/{key}"


def content_path(sha256: str) -> str:
    """Return where a content lies below the root of a remote."""
    return f"{CONTENTS}/{sha256[:2]}/{sha256}"


class Remote:
    """The shared store, beside the local one. Safe to share by threads.

    What goes wrong on the remote raises nothing: after one warning it is left alone.
    """

    def __init__(self, made: settings.Settings) -> None:
        self.settings = made
        self._signer = Signer(made.sign)
        own = {self._signer.public} - {settings.UNSIGNED}
        self.trusted = frozenset(own | set(made.trust))
        self._backend: Backend | None = None
        self._lock = threading.Lock()
        self._bad: set[str] = set()
        """Contents that were read and found bad: they are written again, though they are there."""
        self.is_down = False

    @property
    def backend(self) -> Backend:
        """Its files; opened when they are first asked for."""
        with self._lock:
            if self._backend is None:
                self._backend = Backend(self.settings)
            return self._backend

    def fetch(self, store: Store, stage: str, key: str, kind: str) -> Manifest | None:
        """Bring the artifact of a key into the local store; None, and nothing else, if that fails.

        Whatever is wrong with it becomes a warning: it is built instead.
        """
        if self.is_down:
            return None
        try:
            manifest = self._fetch(store, stage, key, kind)
        except (BadEntryError, OSError) as error:
            self._warn(f"{stage}/{key[:12]} of the remote is not used: {_said(error)}")
            manifest = None
        except UnreachableError as error:
            self._leave(error)
            return None
        held = 0 if manifest is None else _size(manifest)
        events.note(store, "hit" if manifest else "miss", stage, held)
        return manifest

    def _fetch(self, store: Store, stage: str, key: str, kind: str) -> Manifest | None:
        data = self.backend.read(entry_path(stage, key), LONGEST)
        if data is None:
            return None
        if len(data) > LONGEST:
            raise BadEntryError(f"its entry is longer than {LONGEST >> 20} MiB")
        manifest = opened(data, stage, key, self.trusted)
        if manifest.kind != kind:
            raise BadEntryError("it is of another kind")
        with store.lock(), store.workspace() as work:
            contents = {c.sha256: c for c in manifest.files}
            contents |= {c.sha256: c for c in manifest.tensors if not store.has_blob(c)}
            self._each(contents.values(), lambda each: self._bring(each, work / each.sha256))
            store.adopt(manifest, work)
        return manifest

    def _bring(self, content: Content, place: Path) -> None:
        """Write a content of the remote into a file; BadEntryError unless it is what was named."""
        found, size = hashlib.sha256(), 0
        with place.open("wb") as file:
            for chunk in self.backend.chunks(content_path(content.sha256), content.size):
                if chunk is None:
                    raise BadEntryError(f"content {content.sha256[:12]} is missing")
                found.update(chunk)
                size += len(chunk)
                if size <= content.size:
                    file.write(chunk)
        if size == content.size and found.hexdigest() == content.sha256:
            return
        self._bad.add(content.sha256)
        longer = "longer" if size > content.size else "shorter"
        found_to_be = "not what was written" if size == content.size else longer
        raise BadEntryError(f"content {content.sha256[:12]} is {found_to_be}")

    def share(self, store: Store, manifests: Iterable[Manifest]) -> int:
        """Write artifacts of the local store back, if the settings say so; return how many."""
        written = 0
        for manifest in manifests if self.settings.writes else ():
            if self.is_down:
                break
            try:
                self._share(store, manifest)
            except UnreachableError as error:
                self._leave(error)
            except OSError as error:  # cleaned away here meanwhile, or something is in the way
                self._warn(f"{manifest.stage}/{manifest.key[:12]} is not shared: {_said(error)}")
            else:
                written += 1
        return written

    def _share(self, store: Store, manifest: Manifest) -> None:
        places = {content.sha256: (content, path) for content, path in store.places(manifest)}
        self._each(places.values(), lambda each: self._put(*each))
        entry = self._signer.entry(manifest)
        self.backend.write(entry_path(manifest.stage, manifest.key), entry)
        events.note(store, "written", manifest.stage, _size(manifest))

    def _put(self, content: Content, path: Path) -> None:
        where = content_path(content.sha256)
        if content.sha256 in self._bad or self.backend.size(where) != content.size:
            self.backend.write(where, path)
            self._bad.discard(content.sha256)

    def _each(self, given: Iterable[object], action: Callable[..., None]) -> None:
        """Do something for each, some at a time; the first error ends it."""
        every = list(given)
        if len(every) < 2:
            for each in every:
                action(each)
            return
        with ThreadPoolExecutor(min(AT_A_TIME, len(every))) as pool:
            futures = [pool.submit(action, each) for each in every]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _leave(self, error: UnreachableError) -> None:
        """Say once that the remote is out of reach, and go on without it."""
        with self._lock:
            first, self.is_down = not self.is_down, True
        if first:
            self._warn(f"{self.settings.shown} is left alone from here on: {_said(error)}")

    def _warn(self, text: str) -> None:
        print(f"warning: cache: {printable(text)}", file=sys.stderr)


def _said(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return cut(text, 300)


def _size(manifest: Manifest) -> int:
    return sum(each.size for each in (*manifest.files, *manifest.tensors))


_open: dict[object, Remote] = {}


def of_settings() -> Remote | None:
    """Return the remote of this work folder, or None where none is set.

    It is opened once a process: file systems of fsspec do not survive a fork.
    """
    made = settings.load()
    if made is None:
        return None
    who = (os.getpid(), settings.path())
    if who not in _open:
        _open[who] = Remote(made)
    return _open[who]
