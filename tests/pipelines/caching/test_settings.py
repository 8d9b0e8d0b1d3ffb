"""The cache file: what is wrong with it is said at once, where it stands, with what is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.caching import settings
from pipelines.errors import UserError

KEY = "0123456789abcdef" * 4
GOOD = f"remote: s3://bucket/folder\ntrust: [{KEY}]\n"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    def of(text: str) -> settings.Settings:
        path = tmp_path / "cache.yaml"
        path.write_text(text)
        monkeypatch.setenv("BITKILN_CACHE", "cache.yaml")
        monkeypatch.chdir(tmp_path)
        settings._of.cache_clear()
        found = settings.load()
        assert found is not None
        return found

    return of


def test_what_is_unsaid_is_safe(load: object) -> None:
    made = load(GOOD)  # type: ignore[operator]
    assert not made.writes and made.trust == (KEY,) and settings.size(made.limit) == 20 * 2**30
    assert load("remote: file:///x\nsign: a.key\n").writes  # type: ignore[operator]
    assert not load("remote: https://x/y\nsign: a.key\n").writes  # type: ignore[operator]
    assert load("remote: file:///x\nsign: a.key\n").sign.endswith("/a.key")  # type: ignore[operator]


FAULTS = {
    "remote: s3://b/f\n": "cache.yaml:1:1: trust: names no public key; what nobody signed is read "
    "only with `trust: unsigned`, because `verify` runs what it brings",
    "remote: ftp://b\ntrust: unsigned\n": "cache.yaml:1:9: remote: is no URL of a shared store; "
    "accepted: file:///folder, https://host/folder, http://host/folder, s3://bucket/folder",
    GOOD + "limt: 3 GiB\n": "cache.yaml:3:1: limt: unknown field; did you mean 'limit'?",
    GOOD + "limit: 3 gigs\n": "cache.yaml:3:8: limit: '3 gigs' is no size; write it as 20 GiB or "
    "500 MiB",
    "remote: s3://b/f\ntrust: [abc]\n": "cache.yaml:2:1: trust: 'abc' is no public key: these have "
    "64 digits, 0 to 9 and a to f",
    "remote: s3://b/f\ntrust: signed\n": "cache.yaml:2:8: trust: is no list of public keys; or, "
    "for what nobody signed: unsigned",
    GOOD + "write: true\n": "cache.yaml:3:8: write: needs `sign: FILE`; `doit cache keygen "
    "out=FILE` writes a key",
    f"remote: https://h/\ntrust: [{KEY}]\nwrite: true\n": "cache.yaml:3:8: write: http is only "
    "read; write by s3:// or file://, or say false",
    GOOD + "timeout: 0\n": "cache.yaml:3:10: timeout: 0 is too small; it must exceed 0.0",
    "trust: unsigned\n": "cache.yaml:1:1: remote: is missing: the URL of the store: file:///folder,"
    " https://host/folder, http://host/folder, s3://bucket/folder",
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults_are_said_where_they_stand(load: object, text: str) -> None:
    with pytest.raises(UserError) as found:
        load(text)  # type: ignore[operator]
    assert str(found.value).splitlines()[0] == FAULTS[text]


def test_a_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BITKILN_CACHE", "/no/such/cache.yaml")
    with pytest.raises(UserError, match=r"BITKILN_CACHE=/no/such/cache\.yaml: there is no such"):
        settings.load()


def test_no_secret_is_in_the_url_that_is_printed(load: object) -> None:
    made = load(f"remote: https://me:word@host:80/p\ntrust: [{KEY}]\n")  # type: ignore[operator]
    assert made.shown == "https://host:80/p"
