"""The store of artifacts: content-addressed tensors, one folder a key, committed by renaming.

Below its root lie `blobs/` (tensors as .npy, by digest), `<stage>/<key[:12]>/` (a manifest and
small files) and `roots/` (which keys a recipe last used). Everything is first written below
`tmp/`, synced and renamed into place, so a reader sees all of an artifact or none, and of two
builds that commit the same key one wins and both are right. What is read is hashed: damage is
found.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.store import atomic, keys
from pipelines.store.content_bytes import (
    digest,
    holds_exactly,
    is_elf,
    is_file_of,
    kept,
    npy_of,
    sound_bytes,
    tensor_of,
    write,
)
from pipelines.store.manifest import (
    Content,
    DamagedError,
    Manifest,
    Parts,
    output_digest,
    parse,
    render,
)
from pipelines.store.workspace import move_folder, workspace

if TYPE_CHECKING:
    # NumPy takes a good part of the second that `doit list` may take.
    import numpy as np


RUN = f"{os.getpid()}-{time.time_ns()}"
"""This run of doit, which the processes that it forks for `-n` are part of; no key holds it."""
_SHORT = 12


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
            data = _manifest_bytes(folder)
            if data is None:
                return None
            manifest = parse(data)
        except FileNotFoundError:
            raise DamagedError(f"{self._name(folder)}: its manifest is missing") from None
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
        files = {c.name: sound_bytes(c, folder / c.name, damaged) for c in manifest.files}
        tensors: dict[str, np.ndarray] = {}
        by_digest: dict[str, np.ndarray] = {}
        for content in manifest.tensors:
            # One by one: the bytes of all tensors beside these would be the model a second time.
            if content.sha256 not in by_digest:
                data = sound_bytes(content, self.blob(content.sha256), damaged)
                if data is None:
                    continue
                by_digest[content.sha256] = tensor_of(data)
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
                kept(target / "files" / name, name, data) for name, data in sorted(given.items())
            )
            tensors = tuple(self._put_blob(work, n, t) for n, t in parts.tensors.items())
            output = output_digest(kind, files, tensors)
            manifest = Manifest(stage, key, kind, output, ingredients, files, tensors, items)
            atomic.write(target / "manifest.json", render(manifest).encode())
            move_folder(target, self.folder(stage, key), work, stays=self._is_whole)
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
        move_folder(target, self.folder(manifest.stage, manifest.key), work, stays=self._is_whole)

    def has_blob(self, content: Content) -> bool:
        """Whether a tensor is there, and is what its digest says."""
        return is_file_of(self.blob(content.sha256), content.sha256)

    def discard(self, stage: str, key: str) -> None:
        """Remove an artifact, damaged or not; its tensors stay, others may use them."""
        self.remove(self.folder(stage, key))

    def publish(self, files: Mapping[str, bytes | Path], target: Path) -> None:
        """Make `target` hold exactly these files, replacing the folder as a whole if it differs."""
        if holds_exactly(target, {name: digest(data) for name, data in files.items()}):
            return
        with self.workspace() as work:
            for name, data in files.items():
                write(work / "new" / name, data)
                # Whatever the umask is: packages are given away. Folders keep what it says.
                (work / "new" / name).chmod(0o755 if is_elf(work / "new" / name) else 0o644)
            move_folder(work / "new", target, work)

    def is_published(self, manifest: Manifest, target: Path) -> bool:
        """Whether `target` holds exactly the files of an artifact."""
        return holds_exactly(target, {content.name: content.sha256 for content in manifest.files})

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

    def workspace(self) -> contextlib.AbstractContextManager[Path]:
        """Give a private folder on the store's own file system; what a killed build left goes."""
        return workspace(self.root / "tmp")

    def _put_blob(self, work: Path, name: str, tensor: np.ndarray) -> Content:
        data = npy_of(tensor)
        content = Content(name, keys.digest(data), len(data))
        path = self.blob(content.sha256)
        if not is_file_of(path, content.sha256):
            if path.is_dir():
                path.rename(work / "in the way")
            atomic.replace(path, data, through=work / "blob")
        return content

    def _is_whole(self, folder: Path) -> bool:
        try:
            manifest = parse((folder / "manifest.json").read_bytes())
            self.read(manifest)
        except (DamagedError, ValueError, OSError):
            return False
        return True


def _manifest_bytes(folder: Path) -> bytes | None:
    """The manifest in an artifact's folder; None if there is no folder, FileNotFoundError if there
    is one without it.

    Another build may move the folder into place just after it was not found: then it is read.
    """
    for _ in range(2):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return (folder / "manifest.json").read_bytes()
        if not folder.exists():
            return None
    raise FileNotFoundError(folder)
