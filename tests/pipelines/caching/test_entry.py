"""An entry is used if a trusted key signed it for this very key, and else it is as good as none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cryptography", reason="no cryptography: nothing can be signed")

from pipelines.caching.entry import BadEntryError, Signer, described, opened
from pipelines.caching.settings import UNSIGNED
from pipelines.store import keys
from pipelines.store.manifest import Content, Manifest, output_digest, render
from tests.pipelines.caching.stores import new_key

KEY = keys.digest("a key")
FILES = (Content("a.bin", keys.digest(b"a"), 1),)


def manifest(files: tuple[Content, ...] = FILES, **given: object) -> Manifest:
    output = output_digest("files", files, ())
    made = Manifest("importing", KEY, "files", output, {"n": 1}, files, ())
    return dataclasses.replace(made, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(str(new_key(tmp_path_factory.mktemp("keys"))[0]))


def test_what_was_signed_is_opened(signer: Signer) -> None:
    data = signer.entry(manifest())
    assert opened(data, "importing", KEY, {signer.public}) == manifest() == described(data)


@given(data=st.data())
def test_any_flipped_byte_makes_it_a_miss(signer: Signer, data: st.DataObject) -> None:
    entry = bytearray(signer.entry(manifest()))
    at = data.draw(st.integers(0, len(entry) - 1))
    entry[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadEntryError):
        opened(bytes(entry), "importing", KEY, {signer.public})


@given(data=st.data())
def test_any_other_length_makes_it_a_miss(signer: Signer, data: st.DataObject) -> None:
    entry = signer.entry(manifest())
    cut = data.draw(st.integers(0, len(entry) - 1))
    for other in (entry[:cut], entry + data.draw(st.binary(min_size=1, max_size=9))):
        with pytest.raises(BadEntryError):
            opened(other, "importing", KEY, {signer.public})


@given(st.binary(max_size=400))
def test_rubbish_is_a_miss_even_where_nothing_need_be_signed(data: bytes) -> None:
    for rubbish in (data, b"bitkiln entry 1\nunsigned\nunsigned\n" + data):
        with pytest.raises(BadEntryError):
            opened(rubbish, "importing", KEY, {UNSIGNED})


def test_an_entry_cannot_be_moved_to_another_key(signer: Signer) -> None:
    data = signer.entry(manifest())
    for stage, key in (("importing", keys.digest("another")), ("golden", KEY)):
        with pytest.raises(BadEntryError, match="signature is not of this key and result"):
            opened(data, stage, key, {signer.public})
        with pytest.raises(BadEntryError, match="another key"):
            opened(data, stage, key, {UNSIGNED})


def test_who_signed_it_must_be_trusted(signer: Signer, tmp_path: Path) -> None:
    stranger = Signer(str(new_key(tmp_path)[0]))
    with pytest.raises(BadEntryError, match="whom `trust` does not name"):
        opened(stranger.entry(manifest()), "importing", KEY, {signer.public})
    claimed = stranger.entry(manifest()).replace(stranger.public.encode(), signer.public.encode())
    with pytest.raises(BadEntryError, match="signature is not of"):
        opened(claimed, "importing", KEY, {signer.public})


def test_what_nobody_signed_is_refused_with_the_reason() -> None:
    data = Signer(None).entry(manifest())
    with pytest.raises(BadEntryError, match="because `verify` runs what it brings"):
        opened(data, "importing", KEY, {"0" * 64})
    assert opened(data, "importing", KEY, {UNSIGNED}) == manifest()


@pytest.mark.parametrize(
    "bad",
    [
        manifest((Content("../../x", keys.digest(b"a"), 1),)),
        manifest((Content("/etc/x", keys.digest(b"a"), 1),)),
        manifest((Content("a//b", keys.digest(b"a"), 1),)),
        manifest((Content("a", "../../../../etc/passwd", 1),)),
        manifest((Content("a", keys.digest(b"a"), -1),)),
        manifest((Content("a", keys.digest(b"a"), 1 << 50),)),
        manifest((Content("a", keys.digest(b"a"), 1.5),)),  # type: ignore[arg-type]
        manifest(items=("../../etc/" + KEY,)),
    ],
    ids=lambda bad: repr((*bad.files, *bad.items)[-1])[:60],
)
def test_no_name_leaves_its_folder_and_no_size_is_odd(bad: Manifest) -> None:
    entry = b"bitkiln entry 1\nunsigned\nunsigned\n" + render(bad).encode()
    with pytest.raises(BadEntryError):
        opened(entry, "importing", KEY, {UNSIGNED})
    with pytest.raises(BadEntryError):
        described(entry)


def test_a_private_key_is_read_by_its_user_alone(tmp_path: Path) -> None:
    path, public = new_key(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Signer(str(path)).public == public
