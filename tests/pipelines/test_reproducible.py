"""Packages are the same bytes whoever builds them, and wherever: none of it shows in a file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stages.packaging.compiling.linker import default_cache
from tests import warm
from tests.pages import ROOT

RECIPE = "ci/residual_block_a2w1_rpi3"
FORMATS = "package.formats=[shared,static,executable,source,wheel]"


Package = dict[str, tuple[int, bytes]]
"""Name → mode and content of each file."""


def built(folder: Path, code: Path, umask: int, **environment: str) -> Package:
    """A package that is built in a folder without artifacts."""
    own = folder / "own"
    own.mkdir(parents=True)
    (own / "dodo.py").write_text("from pipelines.dodo import *\n")
    home = Path(environment["HOME"])
    (home / ".cache" / "bitkiln").mkdir(parents=True)
    # The compiler's libraries take long to make; the path to them differs all the same.
    default_cache().mkdir(parents=True, exist_ok=True)
    (home / ".cache" / "bitkiln" / "zig").symlink_to(default_cache())
    done = subprocess.run(
        [sys.executable, "-m", "doit", "build:publishing", f"recipe={RECIPE}", FORMATS],
        cwd=own,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(code), **environment},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (package,) = (own / "artifacts" / "packages").iterdir()
    return {
        path.relative_to(package).as_posix(): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in package.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_nobody_shows_in_a_package(tmp_path: Path) -> None:
    other = tmp_path / "a clone of another name"
    for folder in ("pipelines", "stages", "hw", "recipes"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, other / folder, ignore=ignored)
    warm.compile_all(other)
    ann = {"HOME": str(tmp_path / "ann"), "USER": "ann", "LC_ALL": "C", "TZ": "UTC0"}
    bob = {"HOME": str(tmp_path / "bob"), "USER": "bob", "LC_ALL": "C.UTF-8", "TZ": "JST-9"}
    here = built(tmp_path / "here", ROOT, 0o022, **ann, PYTHONHASHSEED="1")
    there = built(tmp_path / "there" / "deep", other, 0o077, **bob, PYTHONHASHSEED="2")
    assert here.keys() == there.keys()
    assert [name for name in here if here[name] != there[name]] == []
    for name, (_, data) in here.items():
        assert str(tmp_path).encode() not in data and str(ROOT).encode() not in data, name
