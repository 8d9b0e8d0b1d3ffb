"""The store gives back what was committed, or says that it is damaged; never something else."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pipelines.store import atomic, content_bytes, keys
from pipelines.store.manifest import DamagedError, Parts
from pipelines.store.store import Store
from tests.pipelines.committed import KEY, PARTS, broken_manifest, commit, emptied, flipped


def test_what_was_committed_is_read_back(artifacts: Store) -> None:
    manifest = artifacts.manifest("importing", commit(artifacts).key)
    assert manifest is not None
    assert manifest.ingredients == {"options": {"a": 1}}
    found = artifacts.read(manifest)
    assert found.files == PARTS.files
    assert list(found.tensors) == ["weights", "scalar"]
    for name, tensor in PARTS.tensors.items():
        np.testing.assert_array_equal(found.tensors[name], tensor)
        assert found.tensors[name].shape == np.shape(tensor)
        assert found.tensors[name].dtype == tensor.dtype


@given(
    arrays.arrays(
        dtype=st.sampled_from(["i1", "u1", "i4", "i8", "f4", "f8", "?"]),
        shape=arrays.array_shapes(min_dims=0, min_side=0),
    )
)
def test_any_tensor_survives(tensor: np.ndarray) -> None:
    found = content_bytes.tensor_of(content_bytes.npy_of(tensor))
    assert found.dtype == tensor.dtype and found.shape == tensor.shape
    assert found.tobytes() == tensor.tobytes()


def test_a_tensor_is_kept_once(artifacts: Store) -> None:
    commit(artifacts)
    commit(artifacts, key=keys.digest("another"))
    assert len(list(artifacts.root.glob("blobs/*/*"))) == 2


def test_equal_content_has_equal_output_whatever_its_key(artifacts: Store) -> None:
    first, second = commit(artifacts), commit(artifacts, key=keys.digest("another"))
    assert first.output == second.output
    other = Parts({"module.json": b"{ }"}, PARTS.tensors)
    assert commit(artifacts, other, keys.digest("third")).output != first.output


def test_two_stores_hold_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        there = Store(tmp_path / name)
        commit(there)
        files = sorted(p for p in there.root.rglob("*") if p.is_file())
        texts.append([(p.relative_to(there.root), p.read_bytes()) for p in files])
    assert texts[0] == texts[1]
    assert not any(str(tmp_path).encode() in data for _, data in texts[0])


def test_an_absent_artifact_is_no_error(artifacts: Store) -> None:
    assert artifacts.manifest("importing", KEY) is None
    assert not artifacts.has("importing", KEY)


def test_an_artifact_that_was_not_there_a_moment_ago_is_no_damage(artifacts: Store) -> None:
    manifest = commit(artifacts)
    data = (artifacts.folder("importing", KEY) / "manifest.json").read_bytes()
    with mock.patch.object(Path, "read_bytes", side_effect=[FileNotFoundError(), data]):
        assert artifacts.manifest("importing", KEY) == manifest


@pytest.mark.parametrize("harm", [broken_manifest, emptied, Path.unlink])
def test_a_damaged_manifest_is_found(artifacts: Store, harm: object) -> None:
    commit(artifacts)
    harm(artifacts.folder("importing", KEY) / "manifest.json")  # type: ignore[operator]
    with pytest.raises(DamagedError, match=r"manifest is (unreadable|missing)"):
        artifacts.manifest("importing", KEY)
    assert not artifacts.has("importing", KEY)


@pytest.mark.parametrize("harm", [emptied, Path.unlink])
def test_damaged_content_is_found_without_reading_it(artifacts: Store, harm: object) -> None:
    manifest = commit(artifacts)
    places = [
        artifacts.folder("importing", KEY) / "files" / "module.json",
        artifacts.blob(manifest.tensors[0].sha256),
    ]
    for place in places:
        harm(place)  # type: ignore[operator]
        assert not artifacts.has("importing", KEY)
        artifacts.discard("importing", KEY)
        commit(artifacts)
        assert artifacts.has("importing", KEY)


def test_a_flipped_bit_is_found_on_reading_and_heals(artifacts: Store) -> None:
    manifest = commit(artifacts)
    blob = artifacts.blob(manifest.tensors[0].sha256)
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    assert artifacts.has("importing", KEY)
    with pytest.raises(DamagedError, match="weights has changed"):
        artifacts.read(manifest)
    artifacts.discard("importing", KEY)
    artifacts.read(commit(artifacts))


def test_all_damage_is_found_and_mended_at_once(artifacts: Store) -> None:
    parts = Parts(PARTS.files, {f"w{n}": np.full(5, n, np.int8) for n in range(9)})
    manifest = commit(artifacts, parts)
    blobs = [artifacts.blob(tensor.sha256) for tensor in manifest.tensors]
    for blob in blobs[::2]:
        flipped(blob)
    with pytest.raises(DamagedError, match=r"w0 has changed since, and 4 more parts are damaged$"):
        artifacts.read(manifest)
    artifacts.discard("importing", KEY)
    artifacts.read(commit(artifacts, parts))


def test_a_blob_that_another_artifact_damaged_unseen_is_not_taken_over(artifacts: Store) -> None:
    flipped(artifacts.blob(commit(artifacts).tensors[0].sha256))
    artifacts.read(commit(artifacts, key=keys.digest("another")))


def _swapped(text: str) -> str:
    return text.replace('"weights"', '"veights"')


@pytest.mark.parametrize("change", [_swapped, lambda _: "3", lambda _: "[]", lambda _: "null"])
def test_a_manifest_that_is_not_as_written_is_damaged(
    artifacts: Store, change: Callable[[str], str]
) -> None:
    commit(artifacts)
    path = artifacts.folder("importing", KEY) / "manifest.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(DamagedError, match="manifest is unreadable"):
        artifacts.manifest("importing", KEY)


def test_what_is_renamed_into_place_was_synced(
    artifacts: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content before its name, and the name before anything that relies on it."""
    done: list[tuple[str, str]] = []
    sync, rename = os.fsync, Path.rename

    def synced(file: int) -> None:
        done.append(("sync", str(Path(f"/proc/self/fd/{file}").readlink())))
        sync(file)

    def renamed(source: Path, target: Path) -> Path:
        done.append(("move", f"{source} {target}"))
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    manifest = commit(artifacts)
    artifacts.write_text(artifacts.root / "roots" / "net.json", "{}")
    moves = [at for at, (what, _) in enumerate(done) if what == "move"]
    assert len(moves) == len(manifest.tensors) + 2
    for at in moves:
        source, target = done[at][1].split(" ")
        assert ("sync", source) in done[:at]
        assert done[at + 1] == ("sync", str(Path(target).parent))
    (artifact,) = (done[at][1].split(" ")[0] for at in moves if "/artifact " in done[at][1])
    for name in ("manifest.json", "files", "files/deep/er/file.bin", "files/deep/er"):
        assert ("sync", f"{artifact}/{name}") in done


def test_a_write_that_fails_names_its_file_and_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "kept"
    target.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            atomic.replace(target, b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value.filename).startswith(str(tmp_path))
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]


def test_a_key_with_the_same_beginning_is_not_taken_for_another(artifacts: Store) -> None:
    commit(artifacts)
    with pytest.raises(DamagedError, match="another key"):
        artifacts.manifest("importing", KEY[:12] + "0" * 52)


def test_a_whole_artifact_is_left_alone_and_a_broken_one_replaced(artifacts: Store) -> None:
    commit(artifacts)
    path = artifacts.folder("importing", KEY) / "files" / "module.json"
    inode = path.stat().st_ino
    commit(artifacts)
    assert path.stat().st_ino == inode
    path.write_bytes(b"[]")
    commit(artifacts)
    assert path.read_bytes() == b"{}"


def _race(root: Path, rounds: int) -> None:
    there = Store(root)
    for number in range(rounds):
        key = keys.digest(str(number))
        manifest = commit(there, Parts({"f": bytes([number]) * 1000}, PARTS.tensors), key)
        assert there.read(manifest).files["f"] == bytes([number]) * 1000
        there.publish({"a": bytes([number]), "b": bytes([number])}, root / "packages" / "x")


def test_processes_that_commit_the_same_keys_are_all_right(artifacts: Store) -> None:
    context = multiprocessing.get_context("fork")
    racers = [context.Process(target=_race, args=(artifacts.root, 40)) for _ in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    assert [racer.exitcode for racer in racers] == [0] * 4
    for number in range(40):
        assert artifacts.has("importing", keys.digest(str(number)))
    shown = artifacts.root / "packages" / "x"
    assert (shown / "a").read_bytes() == (shown / "b").read_bytes()
    assert not list((artifacts.root / "tmp").iterdir())


def test_what_is_in_the_way_may_be_gone_at_once(
    artifacts: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another build may take it away before this one can."""
    rename, failures = Path.rename, [errno.ENOTEMPTY]

    def late(source: Path, target: Path) -> Path:
        if failures:
            raise OSError(failures.pop(), "in the way")
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", late)
    artifacts.publish({"a": b"1"}, artifacts.root / "packages" / "net")
    assert (artifacts.root / "packages" / "net" / "a").read_bytes() == b"1"
    failures.append(errno.EACCES)
    with pytest.raises(PermissionError):
        artifacts.publish({"a": b"2"}, artifacts.root / "packages" / "net")


def test_publishing_replaces_the_folder_and_marks_programs(artifacts: Store) -> None:
    target = artifacts.root / "packages" / "net"
    artifacts.publish({"net": b"\x7fELF", "net.h": b"old", "gone": b""}, target)
    artifacts.publish({"net": b"\x7fELF", "net.h": b"new"}, target)
    assert sorted(path.name for path in target.iterdir()) == ["net", "net.h"]
    assert (target / "net.h").read_bytes() == b"new"
    assert os.access(target / "net", os.X_OK) and not os.access(target / "net.h", os.X_OK)


def test_a_package_that_was_imported_is_not_published_again(artifacts: Store) -> None:
    target, files = artifacts.root / "packages" / "net", {"net.py": b"A = 1"}
    artifacts.publish(files, target)
    before = target.stat().st_ino
    (target / "__pycache__").mkdir()
    (target / "__pycache__/net.cpython-311.pyc").write_bytes(b"")
    artifacts.publish(files, target)
    assert target.stat().st_ino == before
    (target / "more").write_bytes(b"")
    artifacts.publish(files, target)
    assert [path.name for path in target.iterdir()] == ["net.py"]


def test_what_a_dead_build_left_is_removed_after_a_while(artifacts: Store) -> None:
    commit(artifacts)
    fresh, old, ours = (artifacts.root / "tmp" / name for name in ("1-x", "0-y", "z"))
    ours = artifacts.root / "tmp" / f"{os.getpid()}-z"
    dead = multiprocessing.get_context("fork").Process(target=int)
    dead.start()
    dead.join()
    fresh, old = (artifacts.root / "tmp" / f"{dead.pid}-{name}" for name in ("x", "y"))
    for folder in (fresh, old, ours):
        folder.mkdir()
    an_hour_ago = time.time() - 3600
    for folder in (old, ours):
        os.utime(folder, (an_hour_ago, an_hour_ago))
    commit(artifacts, key=keys.digest("next"))
    assert fresh.exists() and ours.exists() and not old.exists()
