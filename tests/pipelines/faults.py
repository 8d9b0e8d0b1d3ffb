"""A disk that refuses: what a clone's `pipelines/__init__.py` may hold instead of nothing."""

from __future__ import annotations

from tests.pipelines.fake_clone import Clone

FAULTS = '''
"""Refuse what FAKE_DISK says, below artifacts/."""
import errno
import io
import os

CODE = getattr(errno, os.environ.get("FAKE_DISK", ""), None)


def refusing(function, is_refused=lambda *_a, **_k: True):
    """Return the function, refused for files of the store."""

    def guarded(path, *arguments, **named):
        is_ours = isinstance(path, (str, os.PathLike)) and "artifacts" in str(path).split("/")
        if is_ours and is_refused(*arguments, **named):
            raise OSError(CODE, os.strerror(CODE), str(path))
        return function(path, *arguments, **named)

    return guarded


left = int(os.environ.get("FAKE_ROOM", "0"))
sync = os.fsync


def full(file):
    """Refuse when FAKE_ROOM syncs were made, as a write does: without a name."""
    global left
    left -= 1
    if left < 0:
        raise OSError(CODE, os.strerror(CODE))
    sync(file)


if CODE in (errno.ENOSPC, errno.EDQUOT):
    os.fsync = full
elif CODE is not None:
    for name in ("mkdir", "rename", "replace", "unlink", "rmdir"):
        setattr(os, name, refusing(getattr(os, name)))
    io.open = refusing(io.open, lambda mode="r", *_a, **_k: set(mode) & set("wax+"))
'''


def put_on_a_disk(clone: Clone) -> None:
    """Let the environment of a clone's commands say what its disk refuses: FAKE_DISK=EROFS."""
    clone.write("pipelines/__init__.py", FAULTS)
