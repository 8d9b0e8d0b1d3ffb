"""Untrusted ZIP archives: each fault is one StageError, and nothing large is ever held."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import StageError
from stages.importing.archive import Archive, is_zip, member_names
from stages.importing.formats import format_of


def packed(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return stream.getvalue()


GOOD = packed(("a/one", b"first"), ("two", b"second" * 40), method=zipfile.ZIP_DEFLATED)


def test_members_are_read_as_they_were_written() -> None:
    archive = Archive(GOOD, "archive")
    assert is_zip(GOOD)
    assert member_names(GOOD) == ("a/one", "two")
    assert archive.read("a/one") == b"first"
    assert archive.read("two") == b"second" * 40


def test_what_is_no_archive_has_no_members() -> None:
    assert member_names(b"PK\x03\x04 but nothing more") == ()
    with pytest.raises(StageError, match="no valid archive: its ZIP directory cannot be read"):
        Archive(b"PK\x03\x04 but nothing more", "archive")


def test_a_missing_member_is_named() -> None:
    with pytest.raises(StageError, match="has no member 'three'"):
        Archive(GOOD, "archive").read("three")


def test_two_members_of_one_name_are_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = packed(("same", b"1"), ("same", b"2"))
    with pytest.raises(StageError, match="two of its members have the same name"):
        Archive(twice, "archive")


def test_a_member_that_claims_more_than_deflate_can_give_is_refused() -> None:
    source = bytearray(packed(("bomb", b"\0" * 100), method=zipfile.ZIP_DEFLATED))
    at = source.index(b"PK\x01\x02")
    struct.pack_into("<I", source, at + 24, 900_000_000)
    with pytest.raises(StageError, match="member 'bomb' claims 900,000,000 bytes"):
        Archive(bytes(source), "archive")


def test_a_true_bomb_is_refused_before_memory_is_taken() -> None:
    blocks = 2100
    bomb = packed(
        *((f"part{i}", b"\0" * (1 << 19)) for i in range(blocks)), method=zipfile.ZIP_DEFLATED
    )
    tracemalloc.start()
    with pytest.raises(StageError, match="hold more than"):
        Archive(bomb, "archive")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < len(bomb) + (16 << 20)


def test_a_member_longer_than_its_directory_says_is_refused() -> None:
    source = bytearray(packed(("liar", b"0123456789" * 100), method=zipfile.ZIP_DEFLATED))
    at = source.index(b"PK\x01\x02")
    struct.pack_into("<I", source, at + 24, 10)
    with pytest.raises(StageError, match="member 'liar'"):
        Archive(bytes(source), "archive").read("liar")


def test_an_encrypted_member_is_refused() -> None:
    source = bytearray(packed(("secret", b"data")))
    at = source.index(b"PK\x01\x02")
    source[at + 8] |= 1
    with pytest.raises(StageError, match="encrypted"):
        Archive(bytes(source), "archive").read("secret")


def test_names_that_climb_out_are_only_names() -> None:
    """Nothing is written to disk, whatever a member is called."""
    source = packed(("../../etc/passwd", b"x"), ("/root", b"y"))
    assert Archive(source, "archive").read("../../etc/passwd") == b"x"


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255), st.integers(0, len(GOOD)))
def test_damage_raises_nothing_else(at: int, value: int, end: int) -> None:
    damaged = bytearray(GOOD)
    damaged[at] = value
    with suppress(StageError):
        archive = Archive(bytes(damaged[:end]) if end % 3 == 0 else bytes(damaged), "archive")
        for name in archive.names:
            archive.read(name)


def test_archives_are_told_apart_by_their_members() -> None:
    modules = [
        format_of(source).module
        for source in (packed(("symbol.json", b"{}")), GOOD, b' {"nodes": []}', b"\x08\x09")
    ]
    mxnet, torch = "stages.importing.mxnet", "stages.importing.torch_export"
    assert modules == [mxnet, torch, mxnet, "stages.importing.onnx"]
