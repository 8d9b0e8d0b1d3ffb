"""The store of artifacts: content-addressed tensors, one folder a key, committed by renaming.

Below its root lie `blobs/` (tensors as .npy, by digest), `<stage>/<key[:12]>/` (a manifest and
small files) and `roots/` (which keys a recipe last used). Everything is first written below
`tmp/`, synced and renamed into place, so a reader sees all of an artifact or none, and of two
builds that commit the same key one wins and both are right. What is read is hashed: damage is
found.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.store import atomic, keys
from pipelines.store.manifest import (
    Content,
    DamagedError,
    Manifest,
    Parts,
    output_digest,
    parse,
    render,
)

if TYPE_CHECKING:
    # NumPy takes a good part of the second that `doit list` may take.
    import numpy as np


RUN = f"{os.getpid()}-{time.time_ns()}"
"""This run of doit, which the processes that it forks for `-n` are part of; no key holds it."""
_SHORT = 12
_GRACE_SECONDS = 600
_ELF = b"\x7fELF"
_IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
"""How renaming a folder fails where something is at its new place."""


class Store:
    """Artifacts below one root; the root may vanish at any time."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, stage: str, key: str) -> Path:
        """Return where the artifact of a key lies, or would lie."""
        return self.root / stage / key[:_SHORT]

    def manifest(self, stage: str, key: str) -> Manifest | None:
        """Return the manifest of an artifact, or None where there is none.

        Raises DamagedError when a manifest cannot be read, or a file is missing or of wrong size.
        Content is hashed on `read`, not here: this must stay cheap.
        """
        folder = self.folder(stage, key)
        try:
            manifest = parse((folder / "manifest.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            if folder.exists():
                raise DamagedError(f"{self._name(folder)}: its manifest is missing") from None
            return None
        except (ValueError, OSError) as error:
            raise DamagedError(f"{self._name(folder)}: its manifest is unreadable") from error
        if (manifest.stage, manifest.key) != (stage, key):
            raise DamagedError(f"{self._name(folder)}: its manifest belongs to another key")
        for content, path in self.places(manifest):
            try:
                size = path.stat().st_size
            except OSError:
                raise DamagedError(f"{self._name(folder)}: {content.name} is missing") from None
            if size != content.size:
                raise DamagedError(
                    f"{self._name(folder)}: {content.name} has {size} bytes, "
                    f"not the {content.size} it was written with"
                )
        return manifest

    def has(self, stage: str, key: str) -> bool:
        """Whether an artifact is there and looks whole."""
        try:
            return self.manifest(stage, key) is not None
        except DamagedError:
            return False

    def read(self, manifest: Manifest) -> Parts:
        """Return an artifact's content, each part checked against its digest, or DamagedError.

        All damage is found at once: a tensor may be shared, and whoever rebuilds the artifact must
        find no bad one.
        """
        damaged: list[str] = []
        self._note_use(manifest)
        folder = self.folder(manifest.stage, manifest.key) / "files"
        files = {c.name: _sound(c, folder / c.name, damaged) for c in manifest.files}
        tensors: dict[str, np.ndarray] = {}
        by_digest: dict[str, np.ndarray] = {}
        for content in manifest.tensors:
            # One by one: the bytes of all tensors beside these would be the model a second time.
            if content.sha256 not in by_digest:
                data = _sound(content, self.blob(content.sha256), damaged)
                if data is None:
                    continue
                by_digest[content.sha256] = _tensor(data)
            tensors[content.name] = by_digest[content.sha256]
        self._refuse(manifest, damaged)
        return Parts({name: data for name, data in files.items() if data is not None}, tensors)

    def files(self, manifest: Manifest) -> dict[str, Path]:
        """Return where an artifact's files lie, each checked against its digest, or DamagedError.

        They need not fit memory.
        """
        folder = self.folder(manifest.stage, manifest.key) / "files"
        damaged: list[str] = []
        for content in manifest.files:
            try:
                if keys.digest_of(folder / content.name) != content.sha256:
                    damaged.append(f"{content.name} has changed since")
            except OSError:
                damaged.append(f"{content.name} is missing")
        self._refuse(manifest, damaged)
        return {content.name: folder / content.name for content in manifest.files}

    def _note_use(self, manifest: Manifest) -> None:
        """Let the time of an artifact's manifest be that of its last use, for gc."""
        with contextlib.suppress(OSError):
            os.utime(self.folder(manifest.stage, manifest.key) / "manifest.json")

    def _refuse(self, manifest: Manifest, damaged: list[str]) -> None:
        """Raise DamagedError if anything of an artifact is damaged."""
        if damaged:
            more = f", and {len(damaged) - 1} more parts are damaged" if damaged[1:] else ""
            name = self._name(self.folder(manifest.stage, manifest.key))
            raise DamagedError(f"{name}: {damaged[0]}{more}")

    def commit(
        self,
        stage: str,
        key: str,
        kind: str,
        parts: Parts,
        ingredients: dict[str, Any],
        items: tuple[str, ...] = (),
    ) -> Manifest:
        """Write an artifact and return its manifest; an equal one that is there already stays."""
        with self.workspace() as work:
            target = work / "artifact"
            held = {name: data.path for name, data in parts.held.items()}
            given: dict[str, bytes | Path] = {**parts.files, **held}
            files = tuple(
                _kept(target / "files" / name, name, data) for name, data in sorted(given.items())
            )
            tensors = tuple(self._put_blob(work, n, t) for n, t in parts.tensors.items())
            output = output_digest(kind, files, tensors)
            manifest = Manifest(stage, key, kind, output, ingredients, files, tensors, items)
            atomic.write(target / "manifest.json", render(manifest).encode())
            self._move(target, self.folder(stage, key), work)
        return manifest

    def adopt(self, manifest: Manifest, work: Path) -> None:
        """Commit an artifact whose contents lie in a workspace by digest, hashed already.

        Of tensors those may lack that the store has.
        """
        target = work / "artifact"
        for content in manifest.files:
            atomic.copy(work / content.sha256, target / "files" / content.name)
        for content in manifest.tensors:
            path = self.blob(content.sha256)
            if (work / content.sha256).exists():
                if path.is_dir():
                    path.rename(work / "in the way")
                atomic.copy(work / content.sha256, work / "blob")
                atomic.make_folder(path.parent)
                atomic.move(work / "blob", path)
        atomic.write(target / "manifest.json", render(manifest).encode())
        self._move(target, self.folder(manifest.stage, manifest.key), work)

    def has_blob(self, content: Content) -> bool:
        """Whether a tensor is there, and is what its digest says."""
        return _is_file_of(self.blob(content.sha256), content.sha256)

    def discard(self, stage: str, key: str) -> None:
        """Remove an artifact, damaged or not; its tensors stay, others may use them."""
        self.remove(self.folder(stage, key))

    def publish(self, files: Mapping[str, bytes | Path], target: Path) -> None:
        """Make `target` hold exactly these files, replacing the folder as a whole if it differs."""
        if _holds(target, {name: _digest(data) for name, data in files.items()}):
            return
        with self.workspace() as work:
            for name, data in files.items():
                _write(work / "new" / name, data)
                # Whatever the umask is: packages are given away. Folders keep what it says.
                (work / "new" / name).chmod(0o755 if _is_elf(work / "new" / name) else 0o644)
            self._move(work / "new", target, work, replace=True)

    def is_published(self, manifest: Manifest, target: Path) -> bool:
        """Whether `target` holds exactly the files of an artifact."""
        return _holds(target, {content.name: content.sha256 for content in manifest.files})

    def remove(self, path: Path) -> None:
        """Remove a folder of the store as a whole, if it is there."""
        if path.exists():
            with contextlib.suppress(FileNotFoundError), self.workspace() as work:
                path.rename(work / "removed")

    @contextlib.contextmanager
    def lock(self, *, exclusive: bool = False) -> Iterator[None]:
        """Hold the store: builds share it, cleaning has it alone. The system frees a dead one's."""
        atomic.make_folder(self.root)
        with (self.root / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield

    def write_text(self, path: Path, text: str) -> None:
        """Replace a small file of the store at once."""
        with self.workspace() as work:
            if path.is_dir():
                path.rename(work / "in the way")
            atomic.replace(path, text.encode(), through=work / "text")

    def blob(self, sha256: str) -> Path:
        """Return where a tensor of this digest lies."""
        return self.root / "blobs" / sha256[:2] / sha256

    def places(self, manifest: Manifest) -> Iterator[tuple[Content, Path]]:
        """Yield each content of an artifact and where it lies."""
        files = self.folder(manifest.stage, manifest.key) / "files"
        yield from ((content, files / content.name) for content in manifest.files)
        yield from ((content, self.blob(content.sha256)) for content in manifest.tensors)

    def _name(self, folder: Path) -> str:
        return str(folder.relative_to(self.root))

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """Give a private folder on the store's own file system; what a killed build left goes."""
        atomic.make_folder(self.root / "tmp")
        for left in (self.root / "tmp").iterdir():
            if _is_abandoned(left):
                shutil.rmtree(left, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.root / "tmp"))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _put_blob(self, work: Path, name: str, tensor: np.ndarray) -> Content:
        data = _npy(tensor)
        content = Content(name, keys.digest(data), len(data))
        path = self.blob(content.sha256)
        if not _is_file_of(path, content.sha256):
            if path.is_dir():
                path.rename(work / "in the way")
            atomic.replace(path, data, through=work / "blob")
        return content

    def _move(self, source: Path, target: Path, work: Path, *, replace: bool = False) -> None:
        """Rename a folder into place; one that is there stays if whole, unless told to replace."""
        atomic.make_folder(target.parent)
        atomic.sync_tree(source)
        for attempt in range(100):
            try:
                atomic.move(source, target)
                return
            except OSError as error:
                # Not whether it is there now: another build may just have taken it away.
                if error.errno not in _IN_THE_WAY:
                    raise
            if not replace and self._is_whole(target):
                return
            with contextlib.suppress(FileNotFoundError):  # another build was faster
                target.rename(work / f"replaced{attempt}")
        raise OSError(f"{target} cannot be replaced")

    def _is_whole(self, folder: Path) -> bool:
        try:
            manifest = parse((folder / "manifest.json").read_bytes())
            self.read(manifest)
        except (DamagedError, ValueError, OSError):
            return False
        return True


def _npy(tensor: np.ndarray) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    # Not ascontiguousarray: it turns a scalar tensor into a vector.
    np.lib.format.write_array(buffer, np.asarray(tensor, order="C"), allow_pickle=False)
    return buffer.getvalue()


def _tensor(data: bytes) -> np.ndarray:
    import numpy as np

    array: np.ndarray = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return array


def _sound(content: Content, path: Path, damaged: list[str]) -> bytes | None:
    """Return a part's bytes; None where it is damaged, which is noted, and the part removed."""
    try:
        data = path.read_bytes()
    except OSError:
        damaged.append(f"{content.name} is missing")
        return None
    if keys.digest(data) == content.sha256:
        return data
    path.unlink(missing_ok=True)
    damaged.append(f"{content.name} has changed since")
    return None


def _write(path: Path, data: bytes | Path) -> None:
    if isinstance(data, bytes):
        atomic.write(path, data)
    else:
        atomic.copy(data, path)


def _kept(path: Path, name: str, data: bytes | Path) -> Content:
    """Write a file of an artifact; return its entry in the manifest."""
    _write(path, data)
    return Content(name, _digest(data), path.stat().st_size)


def _digest(data: bytes | Path) -> str:
    return keys.digest(data) if isinstance(data, bytes) else keys.digest_of(data)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_ELF)) == _ELF


def _is_file_of(path: Path, sha256: str) -> bool:
    """Whether a file is there and has this digest."""
    try:
        return keys.digest(path.read_bytes()) == sha256
    except OSError:
        return False


def _holds(folder: Path, wanted: Mapping[str, str]) -> bool:
    """Whether a folder holds exactly these files, by digest; another process may replace it.

    What Python keeps beside a package's loader once it was imported does not count.
    """
    try:
        found = (p.relative_to(folder) for p in folder.rglob("*") if not p.is_dir())
        there = {path.as_posix() for path in found if path.parts[0] != "__pycache__"}
        return there == set(wanted) and all(
            keys.digest_of(folder / name) == sha256 for name, sha256 in wanted.items()
        )
    except OSError:
        return False


def _is_abandoned(workspace: Path) -> bool:
    """Whether the process a temporary folder is named after is gone, and has been for a while.

    The wait is for processes we cannot see: those of another container at the same folder.
    """
    try:
        if time.time() - workspace.stat().st_mtime < _GRACE_SECONDS:
            return False
        os.kill(int(workspace.name.partition("-")[0]), 0)
    except (ProcessLookupError, ValueError):
        return True
    except OSError:
        pass
    return False
