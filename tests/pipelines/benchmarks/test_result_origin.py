"""What a result says about where it comes from."""

from __future__ import annotations

import re
import subprocess
from datetime import date
from pathlib import Path

import pytest

from pipelines.benchmarks.engines import Engine
from pipelines.benchmarks.result_origin import command, origin, revision
from pipelines.machine import core, processor
from pipelines.recipe.overrides import Variables

VARIABLES = Variables(
    {"recipe": "a", "threads": "1", "json": "/home/me/a.json", "peers.larq": "/home/me/python"},
    {"model.format": "float", "layers": '[{match: "*"}]'},
)


def test_the_command_can_be_repeated_elsewhere() -> None:
    assert command(VARIABLES) == (
        "doit bench recipe=a threads=1 peers.larq=PYTHON model.format=float "
        "'layers=[{match: \"*\"}]'"
    )


def test_a_result_names_machine_day_code_and_engines() -> None:
    found = origin(VARIABLES, [Engine("Engine", "1.2", (), lambda *_: NotImplemented)])
    assert (found["processor"], found["core"]) == (processor(), core()) and found["cpus"] >= 1
    assert date.fromisoformat(found["date"]) <= date.max
    assert re.fullmatch(r"[0-9a-f]{7}( with changes)?|version \S+", found["bitkiln"])
    assert found["engines"] == {"Engine": "1.2"}
    assert found["fields"] == dict(VARIABLES.fields)


def git(folder: Path, *words: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


def test_the_commit_of_a_clone(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    commit = revision(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{7}", commit)
    (tmp_path / "file").write_text("2")
    assert revision(tmp_path) == f"{commit} with changes"
    # A folder inside somebody else's clone is none.
    (tmp_path / "inner").mkdir()
    assert revision(tmp_path / "inner").startswith("version ")


def test_without_git_it_is_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert revision().startswith("version ")
