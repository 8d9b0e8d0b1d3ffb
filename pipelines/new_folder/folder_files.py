"""What a new folder holds: file name → text, out of `templates/` and of what is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines import work_folder
from pipelines.store import atomic

TEMPLATES = Path(__file__).with_name("templates")
_FILES = {
    "dodo.py": "dodo.txt",
    "pyproject.toml": "pyproject.txt",
    "README.md": "README.txt",
    ".gitignore": "gitignore.txt",
    "boards.yaml": "boards.txt",
    "recipes/digits.yaml": "digits.txt",
    ".github/workflows/bitkiln.yaml": "workflow.txt",
}
"""A file of a new folder → the template of it. Templates end in .txt, since the folder's files mean
something to tools that walk through the clone."""


def files(requirement: str) -> dict[str, str]:
    """Return all files of a new folder; `requirement` is the line that installs bitkiln."""
    found = {name: (TEMPLATES / template).read_text("utf-8") for name, template in _FILES.items()}
    found["requirements.txt"] = f"{requirement}\n"
    found["recipes/schema.json"] = (work_folder.SHIPPED / "schema.json").read_text("utf-8")
    return found


def write(folder: Path, texts: dict[str, str]) -> Iterator[tuple[str, bool]]:
    """Write what is not there; yield each name and whether it was written. Nothing is replaced."""
    for name, text in sorted(texts.items()):
        path = folder / name
        is_new = not path.exists() and not path.is_symlink()
        if is_new:
            atomic.make_folder(path.parent)
            atomic.replace(path, text.encode())
        yield name, is_new
