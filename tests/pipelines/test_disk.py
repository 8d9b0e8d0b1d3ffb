"""A disk that cannot be written: one sentence with the file's name, whatever was asked for."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable

import pytest

from pipelines import errors, guards
from tests.pipelines.fake_clone import Clone, tree
from tests.pipelines.faults import put_on_a_disk

ROOM = "make room and try again"
SAYS = {
    "EROFS": r"the disk is read-only; make it writable and try again",
    "EACCES": r"permission denied; let this user read and write there, and try again",
    "ENOSPC": rf"the disk is full; {ROOM}",
    "EDQUOT": rf"the disk quota is used up; {ROOM}",
}


@pytest.fixture
def on_a_disk(clone: Clone) -> Clone:
    """A clone whose store FAKE_DISK makes refuse."""
    put_on_a_disk(clone)
    return clone


@pytest.mark.parametrize("fault", SAYS)
def test_a_build_that_cannot_be_kept_is_one_sentence(on_a_disk: Clone, fault: str) -> None:
    on_a_disk.environment["FAKE_DISK"] = fault
    _, err = on_a_disk.doit("build", "recipe=toy", expect=3)
    assert re.fullmatch(rf"ERROR: artifacts(/\S+)?: {SAYS[fault]}\n", err)


def test_with_a_store_that_is_read_only_all_runs_that_needs_no_writing(on_a_disk: Clone) -> None:
    on_a_disk.doit("build", "recipe=toy")
    before = tree(on_a_disk.root / "artifacts")
    on_a_disk.environment["FAKE_DISK"] = "EROFS"
    for arguments in (["list"], ["recipes"], ["doctor"], ["show", "recipe=toy"]):
        _, err = on_a_disk.doit(*arguments)
        assert err == ""
    assert on_a_disk.counted("build", "recipe=toy") == {}
    for arguments in (
        ["clean", "recipe=toy"],
        ["build", "recipe=toy", "golden.samples=3"],
        ["run", "recipe=toy", "golden.samples=3", "input=x.npy"],
        ["verify", "recipe=toy", "golden.samples=3"],
    ):
        _, err = on_a_disk.doit(*arguments, expect=3)
        assert re.fullmatch(rf"ERROR: artifacts/\S+: {SAYS['EROFS']}\n", err), arguments
    assert tree(on_a_disk.root / "artifacts") == before
    del on_a_disk.environment["FAKE_DISK"]
    on_a_disk.doit("clean", "recipe=toy")


def test_a_store_that_is_no_folder_is_one_sentence(clone: Clone) -> None:
    clone.write("artifacts", "a file")
    clone.doit("recipes")
    _, err = clone.doit("build", "recipe=toy", expect=3)
    assert err == "ERROR: artifacts: it is in the way; move it elsewhere and try again\n"


@pytest.mark.parametrize("guard", [guards.asked, guards.cleaning, guards.plain_errors])
def test_other_errors_of_the_system_stay_faults(
    guard: Callable[[Callable[[], bool]], Callable[[], bool]],
) -> None:
    def fault() -> bool:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    with pytest.raises(OSError, match="Bad file descriptor"):
        guard(fault)()


def test_room_is_asked_for_only_where_room_is_missing() -> None:
    asking = [code for code, (_, advice) in errors._DISK.items() if "room" in advice]
    assert asking == [errno.ENOSPC, errno.EDQUOT]
