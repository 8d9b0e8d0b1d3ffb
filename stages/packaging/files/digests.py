"""Lengths and digests of contents, which are in memory or on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from stages.kinds import Held


def chunks(data: bytes | Held) -> Iterable[bytes]:
    """Return a content in parts."""
    return data.chunks() if isinstance(data, Held) else (data,)


def size_and_digest(parts: Iterable[bytes]) -> tuple[int, str]:
    """Return how long a content is, in bytes, and its SHA-256 in hex."""
    size, digest = 0, hashlib.sha256()
    for part in parts:
        size += len(part)
        digest.update(part)
    return size, digest.hexdigest()
