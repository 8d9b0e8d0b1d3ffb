"""Seeded damage to files: cut off, bits and numbers changed, pieces moved, spliced with others."""

from __future__ import annotations

import io
import random
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence

NUMBERS = (0, 1, 2, 3, 5, 127, 128, 255, 256, 2**15, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
FLOATS = (0.0, -1.0, 1e-45, 3e38, float("inf"), float("nan"))
MOST_CHANGES = 6
IN_ARCHIVES = 0.8
"""How often an archive's member is damaged and not the archive."""
_UNREADABLE = (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error)


def mutated(source: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """One damaged variant of a file; `others` lend it their pieces.

    Of an archive it is as a rule one member that is damaged, and the checksums are right.
    """
    if rng.random() < IN_ARCHIVES:
        return in_archive(source, rng, lambda member: _damaged(member, others, rng))
    return _damaged(source, others, rng)


def in_archive(source: bytes, rng: random.Random, change: Callable[[bytes], bytes]) -> bytes:
    """An archive with one of its members changed; changed as it stands if it cannot be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(source)) as archive:
            members = [(item.filename, archive.read(item)) for item in archive.infolist()]
    except _UNREADABLE:
        return change(source)
    if not members:
        return change(source)
    chosen = rng.randrange(len(members))
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        warnings.simplefilter("ignore")
        for index, (name, data) in enumerate(members):
            archive.writestr(zipfile.ZipInfo(name), change(data) if index == chosen else data)
    return stream.getvalue()


def _damaged(source: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    data = bytearray(source)
    for _ in range(rng.randint(1, MOST_CHANGES)):
        if not data:
            break
        rng.choice(_CHANGES)(data, others, rng)
    return bytes(data)


def _cut(data: bytearray, _others: Sequence[bytes], rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _flip(data: bytearray, _others: Sequence[bytes], rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, _others: Sequence[bytes], rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _number(data: bytearray, _others: Sequence[bytes], rng: random.Random) -> None:
    """Overwrite four or eight aligned bytes with a number that means trouble."""
    kind = rng.choice("IQf")
    value = rng.choice(FLOATS if kind == "f" else NUMBERS)
    packed = struct.pack(f"<{kind}", value)
    at = rng.randrange(len(data)) & ~3
    data[at : at + len(packed)] = packed[: len(data) - at]


def _digits(data: bytearray, _others: Sequence[bytes], rng: random.Random) -> None:
    """Replace a digit of a text, as the JSON formats have."""
    at = [index for index, byte in enumerate(data) if chr(byte).isdigit()]
    if at:
        index = rng.choice(at)
        data[index : index + 1] = rng.choice((b"-1", b"0", b"9" * 9, b"1e9", b"null", b'"x"'))


def _drop(data: bytearray, _others: Sequence[bytes], rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.randint(1, 64)]


def _repeat(data: bytearray, _others: Sequence[bytes], rng: random.Random) -> None:
    start = rng.randrange(len(data))
    data[start:start] = data[start : start + rng.randint(1, 64)]


def _splice(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    other = rng.choice(others)
    start, size = rng.randrange(len(other)), rng.randint(1, 256)
    at = rng.randrange(len(data))
    data[at : at + (size if rng.random() < 0.5 else 0)] = other[start : start + size]


_CHANGES = (_cut, _flip, _flip, _set, _set, _number, _number, _digits, _drop, _repeat, _splice)
