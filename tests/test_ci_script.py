"""`.ci/run` runs README's second command in a clean copy, and installs emulators where it may."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT

README = PAGES["README.md"]


def test_ci_runs_the_second_command_in_a_clean_copy(tmp_path: Path) -> None:
    """.ci/run, with a README that asks for something else, so that it ends soon."""
    after = README.split("\nThis passes the tests:\n\n```sh\n")[1]
    command = after.split("\n```\n")[0]
    assert "venv" in command and "'.[test]'" in command and command.endswith("doit check")
    clone = tmp_path / "clone"
    (clone / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci/run", clone / ".ci/run")
    harmless = 'pwd; ls -A; echo "$BITKILN_REALDATA"; exit 7'
    (clone / "README.md").write_text(README.replace(command, harmless), encoding="utf-8")
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=clone, check=True)
    (clone / "forgotten.py").write_text("")
    (tmp_path / "shared/realdata").mkdir(parents=True)
    environment = {k: v for k, v in os.environ.items() if k != "BITKILN_REALDATA"}
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 7, done.stderr
    said, folder, *files, data = done.stdout.splitlines()
    assert said == f"in a clean copy: {harmless}"
    assert files == [".ci", "README.md"]
    assert data == str(tmp_path / "shared/realdata")
    assert Path(folder) != clone and not Path(folder).exists()


@pytest.mark.parametrize("is_test", (False, True))
@pytest.mark.parametrize("works", (False, True))
def test_ci_installs_emulators_quietly_where_it_may(
    is_test: bool, works: bool, tmp_path: Path
) -> None:
    """As root, with an apt-get that notes what it is asked; from a test never."""
    clone, tools, log = tmp_path / "clone", tmp_path / "tools", tmp_path / "log"
    (clone / ".ci").mkdir(parents=True)
    tools.mkdir()
    shutil.copy(ROOT / ".ci/run", clone / ".ci/run")
    command = README.split("\nThis passes the tests:\n\n```sh\n")[1].split("\n```\n")[0]
    (clone / "README.md").write_text(README.replace(command, "true"), encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=clone, check=True)
    subprocess.run(["git", "add", "."], cwd=clone, check=True)
    noisy = f'echo noise; echo "$@" >> {log}; exit {0 if works else 100}'
    for name, text in {"apt-get": noisy, "dpkg": "exit 1", "id": "echo 0"}.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if is_test or k != "PYTEST_CURRENT_TEST"}
    environment["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "in a clean copy: true\n"), done.stderr
    packages = "qemu-user libc6-arm64-cross libc6-armhf-cross"
    asked = ["update", f"install -y --no-install-recommends {packages}"]
    assert (log.read_text().splitlines() if log.exists() else []) == ([] if is_test else asked)
    said = f"without {packages}: apt-get did not install them\n"
    assert done.stderr == ("" if is_test or works else said)
