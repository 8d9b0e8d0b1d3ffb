"""Ten clients at once on one remote, one killed while it uploads, one writing rubbish over all."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec", reason="no fsspec: no remote can be reached")
pytest.importorskip("cryptography", reason="no cryptography: nothing can be signed")

from pipelines.caching import upkeep
from pipelines.caching.entry import Signer
from pipelines.caching.eviction import GRACE
from pipelines.caching.remote import CONTENTS, ENTRIES, Remote, content_path, entry_path
from pipelines.caching.remote_files import Backend
from pipelines.store.store import Store
from tests.pipelines.caching.stores import (
    STAGE,
    built,
    data_of,
    key_of,
    new_key,
    remote_of,
)

NUMBERS = range(6)
FORK = multiprocessing.get_context("fork")


def client(folder: Path, key: Path, seed: int, told: Any) -> None:
    """Build what the remote lacks, read what it has; tell if anything but the right thing came."""
    store = Store(folder / f"store{seed}")
    remote = remote_of(folder / "remote", key)
    counts = {"wrong": 0, "fetched": 0, "built": 0}
    for number in random.Random(seed).sample(NUMBERS, len(NUMBERS)):
        manifest = remote.fetch(store, STAGE, key_of(number), "files")
        if manifest is None:
            remote.share(store, [built(store, number)])
            counts["built"] += 1
        else:
            counts["fetched"] += 1
            counts["wrong"] += store.read(manifest).files != data_of(number)
    told.put(counts)


def killed(folder: Path, key: Path) -> None:
    """Die while a content is half written at its own place, as no store should let it happen."""

    def half(self: Backend, path: str, data: bytes | Path) -> None:
        whole = data if isinstance(data, bytes) else data.read_bytes()
        target = folder / "remote" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(whole[: len(whole) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    Backend.write = half  # type: ignore[method-assign]
    store = Store(folder / "killed")
    remote_of(folder / "remote", key).share(store, [built(store, 5)])


def vandal(folder: Path, stop: Any) -> None:
    """Write rubbish over entries and contents, cut them, swap them, and replace them by folders."""
    chance = random.Random(0)
    while not stop.is_set():
        files = [path for path in (folder / "remote").rglob("*") if path.is_file()]
        for path in chance.sample(files, min(2, len(files))):
            deed = chance.randrange(4)
            try:
                data = bytearray(path.read_bytes())
                if deed == 0 and data:
                    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                    path.write_bytes(data)
                elif deed == 1:
                    path.write_bytes(data[: len(data) // 2])
                elif deed == 2:
                    path.write_bytes(chance.choice(files).read_bytes())
                else:
                    path.write_bytes(bytes(data) + b"more")
            except OSError:
                continue  # it was replaced meanwhile
        time.sleep(0.01)


def test_nothing_wrong_is_ever_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    key, _public = new_key(tmp_path)
    dying = FORK.Process(target=killed, args=(tmp_path, key))
    dying.start()
    dying.join()
    assert dying.exitcode == -signal.SIGKILL
    told, stop = FORK.Queue(), FORK.Event()
    rubbish = FORK.Process(target=vandal, args=(tmp_path, stop))
    rubbish.start()
    clients = [FORK.Process(target=client, args=(tmp_path, key, seed, told)) for seed in range(10)]
    for each in clients:
        each.start()
    found = [told.get(timeout=60) for _ in clients]
    stop.set()
    for each in (*clients, rubbish):
        each.join()
    assert [each.exitcode for each in clients] == [0] * 10
    assert sum(each["wrong"] for each in found) == 0
    assert sum(each["built"] + each["fetched"] for each in found) == 10 * len(NUMBERS)
    # Rubbish that lies there when all is over is replaced by who builds next, and then all is well.
    for number in (0, 1):
        client(tmp_path, key, 100 + number, told)
        told.get(timeout=60)
    client(tmp_path, key, 200, told)
    assert told.get(timeout=60) == {"wrong": 0, "fetched": len(NUMBERS), "built": 0}
    assert "left alone" not in capfd.readouterr().err


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, Remote, Store]:
    key, _public = new_key(tmp_path)
    remote, store = remote_of(tmp_path / "remote", key), Store(tmp_path / "store")
    assert remote.share(store, [built(store, number) for number in NUMBERS]) == len(NUMBERS)
    return tmp_path / "remote", remote, store


def test_a_folder_in_the_way_is_a_miss(
    filled: tuple[Path, Remote, Store], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, remote, _store = filled
    path = folder / entry_path(STAGE, key_of(1))
    path.unlink()
    path.mkdir()
    fresh = Store(tmp_path / "fresh")
    assert remote.fetch(fresh, STAGE, key_of(1), "files") is None
    assert remote.fetch(fresh, STAGE, key_of(2), "files") is not None
    assert capfd.readouterr().err.count("warning: cache: ") == 1


def test_what_is_larger_than_it_says_is_not_read_to_its_end(
    filled: tuple[Path, Remote, Store], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, remote, store = filled
    manifest = store.manifest(STAGE, key_of(1))
    assert manifest is not None
    with (folder / content_path(manifest.files[0].sha256)).open("ab") as file:
        file.truncate(1 << 40)  # a terabyte of holes
    assert remote.fetch(Store(tmp_path / "fresh"), STAGE, key_of(1), "files") is None
    with (folder / entry_path(STAGE, key_of(2))).open("ab") as file:
        file.truncate(1 << 40)
    assert remote.fetch(Store(tmp_path / "fresh"), STAGE, key_of(2), "files") is None
    assert "is longer" in capfd.readouterr().err


def test_gc_of_a_remote_keeps_what_is_new_and_what_is_needed(
    filled: tuple[Path, Remote, Store],
) -> None:
    folder, remote, _store = filled
    swept = upkeep.collect(remote, 0, set(), None)
    assert (swept.entries, swept.contents) == (0, 0)
    old = time.time() - 2 * GRACE
    for path in folder.rglob("*"):
        os.utime(path, (old, old))
    fresh = folder / content_path("ab" * 32)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    fresh.write_bytes(b"on its way")
    stays = {(STAGE, key_of(3))}
    swept = upkeep.collect(remote, 0, stays, None)
    assert swept.entries == len(NUMBERS) - 1
    assert swept.contents == len(NUMBERS) - 1  # the one that all have stays
    assert fresh.exists()
    assert [each.path for each in remote.backend.list(ENTRIES)] == [entry_path(STAGE, key_of(3))]
    assert len(remote.backend.list(CONTENTS)) == 3
    checked = upkeep.verify(remote, remove=False)
    assert (checked.sound, checked.bad) == (1, {})
    assert checked.damaged == (content_path("ab" * 32),)


def test_verify_names_what_is_bad_and_removes_it_when_it_is_old(
    filled: tuple[Path, Remote, Store],
) -> None:
    folder, remote, store = filled
    manifest = store.manifest(STAGE, key_of(1))
    assert manifest is not None
    content = folder / content_path(manifest.files[0].sha256)
    content.write_bytes(b"x")
    stranger = folder / entry_path(STAGE, key_of(2))
    stranger.write_bytes(Signer(None).entry(built(store, 2)))
    found = upkeep.verify(remote, remove=True)
    assert found.sound == len(NUMBERS) - 2 and content.exists()
    assert "is not signed" in found.bad[entry_path(STAGE, key_of(2))]
    assert "is missing or damaged" in found.bad[entry_path(STAGE, key_of(1))]
    for path in (content, stranger):
        os.utime(path, (1, 1))
    upkeep.verify(remote, remove=True)
    assert not content.exists() and not stranger.exists()
