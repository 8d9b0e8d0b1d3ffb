"""A clone of the project with small stages of its own, driven through doit as a user would."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from tests import warm
from tests.pipelines.fake_stages import COUNTING, REPLAY, RUNNERS, STAGES

ROOT = Path(__file__).resolve().parents[2]


TOY = """
description: a toy
model: {zoo: residual_block}
quantization: {activations: {bits: 2}, weights: {bits: 1}}
hardware: rpi3
"""


def doit(*arguments: str) -> subprocess.CompletedProcess[str]:
    """doit in the project itself; whatever it ends with."""
    return warm.run(*arguments, cwd=ROOT)


COPIED = ("pipelines", "hw")


@functools.cache
def _compiled() -> Path:
    """The folders of the project that a clone has as they are, compiled once for all clones."""
    folder = warm.scratch("clone")
    ignored = shutil.ignore_patterns("artifacts", "runners", "__pycache__", ".*")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    warm.compile_all(folder)
    return folder


class Clone:
    """A folder like a user's clone, with fake stages and recipes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in COPIED:
            shutil.copytree(_compiled() / folder, root / folder)
        shutil.copy(ROOT / "pyproject.toml", root)
        shared = ("options", "layer_options", "errors", "kinds", "artifacts", "stage", "rooms",
                  "image_layout")  # fmt: skip
        for name in (f"{module}.py" for module in shared):
            self.write(f"stages/{name}", (ROOT / "stages" / name).read_text())
        for name, text in STAGES.items():
            self.write(f"stages/{name}", text)
        self.write("pipelines/builds/work_count.py", COUNTING)
        self.write("pipelines/runners/__init__.py", RUNNERS)
        self.write("pipelines/runners/replay.py", REPLAY)
        self.write("pipelines/runners/package.py", "Tensor = object\n")
        self.write("recipes/toy.yaml", TOY)
        self.log = root / "log.txt"
        self.environment: dict[str, str] = {}

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def start(self, *arguments: str) -> warm.Process:
        environment = {**os.environ, "FAKE_LOG": str(self.log), **self.environment}
        environment.pop("PYTHONPATH", None)
        return warm.start(*arguments, cwd=self.root, env=environment)

    def doit(self, *arguments: str, expect: int = 0) -> tuple[str, str]:
        """Run doit to its end; its exit code must be `expect`."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        assert process.returncode == expect, f"exit {process.returncode}\n{out}\n{err}"
        return out, err

    def counted(self, *arguments: str, expect: int = 0) -> dict[str, int]:
        """Run doit and return how often each stage and item was built meanwhile."""
        self.log.unlink(missing_ok=True)
        self.doit(*arguments, expect=expect)
        return self.runs()

    def runs(self) -> dict[str, int]:
        return dict(Counter(self.log.read_text().split())) if self.log.exists() else {}

    def package(self, recipe: str = "toy") -> dict[str, bytes]:
        folder = self.root / "artifacts" / "packages" / recipe
        files = (path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    def manifests(self, stage: str) -> list[Path]:
        return sorted((self.root / "artifacts" / stage).glob("*/manifest.json"))


def tree(folder: Path) -> dict[str, bytes]:
    """Return what a store holds but for doit's database, the lock and Python's own files."""
    skipped: Any = (".doit.db", ".lock", ".code.json")
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in skipped
    }
