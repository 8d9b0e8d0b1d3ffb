"""The file system of a remote, by fsspec: few operations, each within a time and so many bytes."""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pipelines.caching.settings import Settings
from pipelines.errors import UserError, cut, printable

Result = TypeVar("Result")
CHUNK = 2**20
_SLOWEST = 2**16
"""Bytes a second that an upload may take at least."""
TEMPORARY = ".part"
"""The ending of a file that is being written: no entry names it."""


class UnreachableError(Exception):
    """A remote that does not answer, or not as a store does; the message says how."""


@dataclass(frozen=True)
class Listed:
    """A file of the remote: its path below the root, bytes, and when it was written, in seconds
    since 1970; None where the remote does not say."""

    path: str
    size: int
    written: float | None


class Backend:
    """Files below the root of a remote. Every method may raise UnreachableError, and an OSError
    where something that is no file is at its place."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files = self._within(None, lambda: _file_system(settings))
        self._root = self._files._strip_protocol(settings.remote).rstrip("/")

    def read(self, path: str, most: int) -> bytes | None:
        """Return a file's bytes, one more than `most` if it is longer; None if there is none."""
        data = bytearray()
        for chunk in self.chunks(path, most):
            if chunk is None:
                return None
            data += chunk
        return bytes(data)

    def chunks(self, path: str, most: int) -> Iterator[bytes | None]:
        """Yield a file's bytes, up to one more than `most`; None alone if there is no file."""
        streamed = 0 if self._settings.protocol.startswith("http") else CHUNK
        given: dict[str, Any] = {"block_size": streamed}
        if self._settings.protocol == "s3":
            given["cache_type"] = "readahead"
        try:
            file = self._within(None, lambda: self._files.open(self._at(path), "rb", **given))
        except FileNotFoundError:
            yield None
            return
        # It may vanish, or be cut off, while it is read: what arrives is then too short.
        left = most + 1
        try:
            while left:
                data = self._within(None, functools.partial(file.read, min(CHUNK, left)))
                if not data:
                    return
                left -= len(data)
                yield bytes(data)
        except FileNotFoundError:
            return
        finally:
            with contextlib.suppress(UnreachableError, FileNotFoundError):
                self._within(None, file.close)

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes, or None if there is none."""
        try:
            found = self._within(None, lambda: self._files.info(self._at(path)))
        except FileNotFoundError:
            return None
        return int(found["size"]) if found.get("type") == "file" else None

    def write(self, path: str, data: bytes | Path) -> None:
        """Write a file as a whole: a reader sees all of it, or what was there before."""
        size = len(data) if isinstance(data, bytes) else data.stat().st_size
        # A folder has no upload that takes effect at its end, as S3 has: a rename is one.
        is_folder = self._settings.protocol == "file"
        target = self._at(path)
        first = f"{target}.{secrets.token_hex(8)}{TEMPORARY}" if is_folder else target
        if isinstance(data, bytes):
            self._within(size, lambda: self._files.pipe_file(first, data))
        else:
            self._within(size, lambda: self._files.put_file(str(data), first))
        if is_folder:
            self._within(None, lambda: self._files.mv(first, target))

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._within(None, lambda: self._files.rm_file(self._at(path)))

    def list(self, below: str) -> list[Listed]:
        """Return the files below a folder; none if there is no such folder."""
        try:
            found = self._within(2**28, lambda: self._files.find(self._at(below), detail=True))
        except FileNotFoundError:
            return []
        start = len(self._root) + 1
        return [
            Listed(name[start:], int(info["size"] or 0), _written(info))
            for name, info in sorted(found.items())
        ]

    def forget(self) -> None:
        """Forget what listings said before."""
        self._files.invalidate_cache()

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _within(self, size: int | None, action: Callable[[], Result]) -> Result:
        """Return what an action returns, in the time it may take for so many bytes.

        It runs in a thread of its own, since not every file system heeds a limit of time; one that
        hangs does not keep the process from ending.
        """
        results: list[Result] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(action())
            except BaseException as error:
                errors.append(error)

        seconds = self._settings.timeout + (size or 0) / _SLOWEST
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(seconds)
        if errors:
            self._raise(errors[0])
        if not results:
            raise UnreachableError(f"no answer in {seconds:g} s")
        return results[0]

    def _raise(self, error: BaseException) -> None:
        """Raise an error as one of ours; what a secret is in the settings is in no message."""
        if self._settings.protocol.startswith("http"):
            error = _without_disguise(error)
        known = (FileNotFoundError, IsADirectoryError, NotADirectoryError, UserError)
        if isinstance(error, known):
            raise error
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        for secret in _texts(self._settings.storage):
            said = said.replace(secret, "***")
        said = said.replace(self._settings.remote, self._settings.shown)
        raise UnreachableError(printable(cut(said, 200))) from error


def _file_system(settings: Settings) -> Any:
    """Open fsspec's file system; UserError if what it needs is not installed."""
    try:
        import fsspec
    except ModuleNotFoundError:
        raise _missing("fsspec") from None
    given: dict[str, Any] = {**settings.storage, "skip_instance_cache": True}
    if settings.protocol == "file":
        given["auto_mkdir"] = True
    try:
        if settings.protocol == "s3":
            seconds = settings.timeout
            waits = {"connect_timeout": seconds, "read_timeout": seconds}
            given["config_kwargs"] = {**waits, "retries": {"max_attempts": 2}}
            given["use_listings_cache"] = False
        made = fsspec.filesystem(settings.protocol, **given)
        made.retries = 1  # of s3fs, which otherwise tries five times
        return made
    except ImportError as error:
        raise _missing(error.name or "fsspec's file system") from None


def _without_disguise(error: BaseException) -> BaseException:
    """Return what kept fsspec from reading by http: it says of all errors that no file is there."""
    cause = error.__cause__
    is_said = getattr(cause, "status", None) in (404, 410)
    if isinstance(error, FileNotFoundError) and cause is not None and not is_said:
        return cause
    return error


def _texts(options: object) -> Iterator[str]:
    """Yield the texts in a file system's options, but the address of its server."""
    if isinstance(options, str) and len(options) > 3:
        yield options
    elif isinstance(options, list):
        for each in options:
            yield from _texts(each)
    elif isinstance(options, dict):
        for name, each in options.items():
            if name != "endpoint_url":
                yield from _texts(each)


def _missing(name: str) -> UserError:
    return UserError(
        f"{name} reaches the remote and is not installed; run: pip install -e '.[cache]'"
    )


def _written(info: dict[str, Any]) -> float | None:
    found = info.get("LastModified") or info.get("mtime")
    if isinstance(found, datetime):
        return float(found.timestamp())
    return float(found) if isinstance(found, int | float) else None
