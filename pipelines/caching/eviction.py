"""Which results go when a store is too large: the least recently used, and never what is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

GRACE = 3600.0
"""Seconds for which everything stays: a build may be using it, an upload may be under way."""


@dataclass(frozen=True)
class Result:
    """An artifact or item of a store, or an entry of a remote."""

    name: str
    used: float
    """When it was last used, or on a remote written, in seconds since 1970."""
    size: int
    """Bytes that it has alone."""
    contents: Mapping[str, int] = field(default_factory=dict)
    """Digest → bytes of what others may have, too."""


def total(results: Iterable[Result]) -> int:
    """Return the bytes of results; contents that several have count once."""
    every = list(results)
    contents: dict[str, int] = {}
    for each in every:
        contents |= each.contents
    return sum(each.size for each in every) + sum(contents.values())


def choose(
    results: Collection[Result],
    needed: Collection[str],
    limit: int,
    now: float,
    oldest: float | None = None,
) -> list[str]:
    """Return the names of the results to remove, in this order, the least recently used first.

    None is needed, and none is younger than `GRACE`. What is left has at most `limit` bytes, or
    nothing more may go. Results older than `oldest` seconds go whatever there is room for.
    """
    left = total(results)
    users = Counter(digest for each in results for digest in each.contents)
    removed: list[str] = []
    for each in sorted(results, key=lambda each: (each.used, each.name)):
        age = now - each.used
        is_old = oldest is not None and age > oldest
        if each.name in needed or age < GRACE or (left <= limit and not is_old):
            continue
        removed.append(each.name)
        left -= each.size
        for digest, size in each.contents.items():
            users[digest] -= 1
            if not users[digest]:
                left -= size
    return removed
