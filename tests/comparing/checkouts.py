"""The files of a commit, or of the working tree, in a folder of their own."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
WORKING_TREE = "."


@dataclass(frozen=True)
class Revision:
    """What the command line names, and the digest of its content: a commit's or of all files."""

    name: str
    digest: str

    @property
    def title(self) -> str:
        """The name with what it stands for."""
        kind = "working tree" if self.name == WORKING_TREE else self.name
        return f"{kind} ({self.digest[:10]})"


def resolve(name: str, root: Path = ROOT) -> Revision:
    """The revision of a name; UserError where git knows no such commit."""
    if name == WORKING_TREE:
        return Revision(name, _digest(root, _tracked(root)))
    done = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if done.returncode:
        raise UserError(
            f"git knows no commit '{name}' in {root}; name a commit, a branch or a tag, or . for "
            "the working tree"
        )
    return Revision(name, done.stdout.decode().strip())


def checked_out(revision: Revision, folder: Path, root: Path = ROOT) -> Path:
    """Write a revision's files to `folder` unless they are there; no git state is left behind."""
    if folder.exists():
        return folder
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if revision.name == WORKING_TREE:
        for file in _tracked(root):
            target = partial / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / file, target, follow_symlinks=False)
    else:
        _extract(revision, partial, root)
    partial.rename(folder)
    return folder


def _extract(revision: Revision, folder: Path, root: Path) -> None:
    command = ["git", "-C", str(root), "archive", "--format=tar", revision.digest]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            archive.extractall(folder, filter="data")
    if process.returncode:
        raise UserError(f"git archive {revision.digest} failed with status {process.returncode}")


def _tracked(root: Path) -> list[str]:
    """What git tracks or would add, as far as it is there."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
    names = sorted({name for name in listed.decode().split("\0") if name})
    return [name for name in names if (root / name).is_file()]


def _digest(root: Path, files: list[str]) -> str:
    total = hashlib.sha256()
    for name in files:
        total.update(f"{name}\0".encode())
        total.update(hashlib.sha256((root / name).read_bytes()).digest())
    return total.hexdigest()


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, check=False
        )
    except FileNotFoundError as error:
        raise UserError("git is not installed; commits cannot be compared without it") from error
