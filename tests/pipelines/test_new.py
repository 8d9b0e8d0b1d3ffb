"""A folder of one's own: all commands run there, and nothing is written where bitkiln lies."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from pipelines.new_folder import folder_files, requirement
from tests import warm
from tests.pipelines.fake_clone import TOY, Clone, tree

RECIPE = "extends: toy\ndescription: mine\nlayers: [{match: conv1, weights: {bits: 2}}]\n"


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    made = Clone(tmp_path / "clone")
    (made.root / "recipes" / "schema.json").write_text("{}\n")
    made.write("recipes/digits_a2w2_host.yaml", TOY)
    return made


def doit(clone: Clone, *arguments: str, cwd: Path, expect: int = 0) -> tuple[str, str]:
    """doit in a folder beside the clone, of whose code it knows by PYTHONPATH."""
    environment = {**os.environ, "FAKE_LOG": str(clone.log), "PYTHONPATH": str(clone.root)}
    process = warm.start(*arguments, cwd=cwd, env=environment)
    out, err = process.communicate(timeout=120)
    assert process.returncode == expect, f"exit {process.returncode}\n{out}\n{err}"
    return out, err


def files_of(clone: Clone) -> dict[str, bytes]:
    """What lies in the clone, but for Python's own files and the log that the stages write."""
    found = tree(clone.root)
    return {n: d for n, d in found.items() if "__pycache__" not in n and n != clone.log.name}


def test_all_commands_run_in_a_folder_of_ones_own(clone: Clone, tmp_path: Path) -> None:
    own = tmp_path / "networks"
    before = files_of(clone)
    out, _ = clone.doit("new", str(own))
    assert "written: .github/workflows/bitkiln.yaml" in out and "dodo.py" in out
    assert f"next: cd {own}; " in out

    out, _ = doit(clone, "build", "recipe=digits", cwd=own)
    assert "artifacts/packages/digits" in out
    assert (own / "artifacts" / "packages" / "digits" / "manifest.json").is_file()
    (own / "recipes" / "mine.yaml").write_text(RECIPE)
    doit(clone, "build", "recipe=mine", cwd=own)
    assert "no packages" not in doit(clone, "clean", "recipe=digits", cwd=own)[0]
    assert not (own / "artifacts" / "packages" / "digits").exists()

    listed, _ = doit(clone, "recipes", cwd=own)
    names = [line.split()[0] for line in listed.splitlines()[2:]]
    assert names == ["digits", "mine", "digits_a2w2_host", "toy"], "one's own come first"
    out, _ = doit(clone, "ci", cwd=own)
    assert [line.split()[0] for line in out.splitlines()[2:4]] == ["digits", "mine"]
    assert "\n2 verified, 0 built and not run, 0 failed\n" in out, "one's own, and no more"
    out, _ = doit(clone, "show", "recipe=mine", cwd=own)
    assert "mine.yaml:3" in out and "toy.yaml:" in out
    out, _ = doit(clone, "help", cwd=own)
    assert out.startswith("bitkiln turns a quantized neural network")
    _, err = doit(clone, "check", cwd=own, expect=3)
    assert "doit check tests bitkiln itself, in a clone of it" in err
    _, err = doit(clone, "build", "recipe=digit", cwd=own, expect=3)
    assert "did you mean 'digits'?" in err
    assert files_of(clone) == before


def test_artifacts_are_those_of_the_clone(clone: Clone, tmp_path: Path) -> None:
    own = tmp_path / "networks"
    clone.doit("new", str(own))
    doit(clone, "build", "recipe=toy", cwd=own)
    clone.doit("build", "recipe=toy")
    theirs, ours = tree(clone.root / "artifacts"), tree(own / "artifacts")
    assert ours == theirs, "keys hold no paths"


def test_nothing_is_replaced(clone: Clone, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine\n")
    (tmp_path / "dodo.py").write_text("def task_mine():\n    return {'actions': []}\n")
    out, _ = clone.doit("new", str(tmp_path))
    assert f"kept: README.md, dodo.py in {tmp_path}" in out
    assert "dodo.py lacks bitkiln's commands; add the line: from pipelines.dodo import *" in out
    assert (tmp_path / "README.md").read_text() == "mine\n"
    again, _ = clone.doit("new", str(tmp_path))
    assert "written" not in again


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "new takes one folder, found none; for example: doit new ~/networks"),
        (("a", "b"), "new takes one folder, found 2: a, b;"),
        (("mine",), "mine lies in bitkiln's own folder, where nothing of yours belongs"),
        (("pyproject.toml/x",), "pyproject.toml/x lies in bitkiln's own folder"),
        (("{log}/x",), "is a file; new takes a folder, there or yet to be made"),
    ],
)
def test_what_is_no_new_folder(
    given: tuple[str, ...], said: str, clone: Clone, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    words = [word.replace("{log}", str(tmp_path / "file")) for word in given]
    _, err = clone.doit("new", *words, expect=3)
    assert said in err and "Traceback" not in err


def test_boards_of_the_folder_are_known_by_name(clone: Clone, tmp_path: Path) -> None:
    own = tmp_path / "networks"
    clone.doit("new", str(own))
    assert yaml.safe_load((own / "boards.yaml").read_text()) == {"boards": []}
    (own / "boards.yaml").write_text("boards:\n  - {name: kitchen, address: nowhere.invalid}\n")
    _, err = doit(clone, "verify", "recipe=toy", "board=kichen", cwd=own, expect=3)
    assert "boards.yaml has no board of this name; did you mean 'kitchen'?" in err


def test_the_workflow_builds_what_the_folder_has() -> None:
    texts = folder_files.files("bitkiln")
    flow = yaml.safe_load(texts[".github/workflows/bitkiln.yaml"])
    steps = flow["jobs"]["build"]["steps"]
    runs = " ".join(step.get("run", "") for step in steps)
    assert "pip install -r requirements.txt" in runs and "doit ci " in runs
    assert all(step["uses"].count("@") == 1 for step in steps if "uses" in step)
    assert texts["requirements.txt"] == "bitkiln\n"


def git(root: Path, *words: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", "-C", str(root), *names, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_bitkiln_is_pinned_at_its_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    commit = git(tmp_path, "rev-parse", "HEAD")
    line, doubts = requirement.line(tmp_path)
    assert line == f"bitkiln[emulator] @ git+file://localhost{tmp_path.resolve()}@{commit}"
    assert "has no remote" in doubts[0]
    git(tmp_path, "remote", "add", "origin", "https://me:secret@example.org/us/bitkiln.git")
    (tmp_path / "code.py").write_text("2\n")
    line, doubts = requirement.line(tmp_path)
    assert line == f"bitkiln[emulator] @ git+https://example.org/us/bitkiln.git@{commit}"
    assert len(doubts) == 2 and "secret" not in line + " ".join(doubts)


@pytest.mark.parametrize(
    ("remote", "url"),
    [
        ("https://token@example.org/a/b", "https://example.org/a/b"),
        ("https://example.org:8443/a/b.git?private=1", "https://example.org:8443/a/b.git"),
        ("git@example.org:a/b.git", "ssh://git@example.org/a/b.git"),
        ("ssh://git:word@example.org/a/b.git", "ssh://git@example.org/a/b.git"),
        ("/srv/git/b", "file://localhost/srv/git/b"),
        ("../b", "file://localhost/srv/b"),
        ("file:///srv/b", "file://localhost/srv/b"),
    ],
)
def test_a_remote_as_pip_takes_it(remote: str, url: str) -> None:
    assert requirement.without_credentials(remote, Path("/srv/code")) == url
    packaging = pytest.importorskip("packaging.requirements")
    assert packaging.Requirement(f"bitkiln[emulator] @ git+{url}@0123abc").url.endswith("@0123abc")
