"""The steps of CONTRIBUTING, followed: the operator is added to a copy of the sources and tested;
of other steps the files and what they name in them are there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT, block, blocks, section

PAGE, ANSWERS = ".github/CONTRIBUTING.md", "stages/ANSWERS.md"
COPIED = ("pipelines", "stages", "hw", "recipes", "tests", "pyproject.toml", "README.md", ".github")
NAMED = ("Add a kernel family", "Add a format of model files", "Add a format of packages")


def steps(title: str) -> list[tuple[str, list[str]]]:
    """The numbered steps of a section: the file that each begins with, and names it quotes."""
    found = re.findall(r"^\d+\. `([^`]+)`: (.*)$", section(PAGE, title), re.MULTILINE)
    return [(file, re.findall(r"`(\w+)`", deed)) for file, deed in found]


@pytest.mark.parametrize("title", NAMED)
def test_steps_name_what_is_there(title: str) -> None:
    every = steps(title)
    assert len(every) == len(re.findall(r"^\d+\. ", section(PAGE, title), re.MULTILINE)) > 4
    for file, quoted in every:
        text = (ROOT / file).read_text(encoding="utf-8")
        absent = [name for name in quoted if not re.search(rf"\b{name}\b", text)]
        assert not absent, f"{file} has no {', '.join(absent)}"


def test_answers_name_what_is_there() -> None:
    """Each name that an answer quotes is in a file that the same answer quotes."""
    answers = re.split(r"^## ", PAGES[ANSWERS], flags=re.MULTILINE)[1:]
    assert len(answers) == 6
    for answer in answers:
        files = re.findall(r"`((?:stages|hw|pipelines)/[\w./]+\.py)`", answer)
        text = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
        names = re.findall(r"`([A-Za-z_]+)`", answer)
        assert files and all(re.search(rf"\b{name}\b", text) for name in names), answer


@pytest.mark.slow
def test_an_operator_can_be_added_by_the_steps(tmp_path: Path) -> None:
    """In a copy; onnx's cases of Shrink pass there, and the tests of every operator know it."""
    for name in COPIED:
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            skipped = shutil.ignore_patterns("__pycache__", "results")
            shutil.copytree(source, target, ignore=skipped)
        else:
            shutil.copy(source, target)
    arithmetic, converter = (
        block(PAGE, "python", start) for start in ("@elementwise(", "def shrink(builder")
    )
    row, example = (text for text in blocks(PAGE, "python") if text.startswith("    "))
    append(tmp_path / "stages/numerics/float_elementwise.py", arithmetic)
    append(tmp_path / "stages/importing/onnx/pointwise_operators.py", converter)
    converters = tmp_path / "stages/importing/onnx/onnx_converters.py"
    insert(converters, '    "LeakyRelu": pointwise.leaky_relu,\n', row)
    examples = tmp_path / "tests/stages/numerics/function_examples.py"
    insert(examples, "FUNCTIONS: dict[str, Example] = {\n", example)
    listed = tmp_path / "stages/importing/README.md"
    text = listed.read_text(encoding="utf-8")
    names = re.search(r"^\*\*Other files, ONNX's own domain:.*$", text, re.MULTILINE)
    assert names
    longer = names[0].replace("`Sigmoid`, ", "`Shrink`, `Sigmoid`, ")
    listed.write_text(text.replace(names[0], longer), encoding="utf-8")
    chosen = ("-k", "shrink or has_an_example or operators_are_those", "-p", "no:cacheprovider")
    command = block(PAGE, "sh", "python -m pytest -m")
    _, *words = shlex.split(command)
    known = followed(tmp_path, *words, *chosen)
    assert known.returncode == 0, known.stdout[-3000:]
    passed = followed(tmp_path, "-c", SHRINK)
    assert passed.stdout.split() == ["2", "[]"], passed.stderr[-3000:]


SHRINK = """
from tests.stages.importing.onnx.test_backend_nodes import Tally, cases, run
tally = Tally()
for case in cases():
    if case.name.startswith("test_shrink"):
        run(case, tally)
print(tally.passed, tally.failed)
"""


def followed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in the copy, which finds the copy's code."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def append(file: Path, text: str) -> None:
    """Put a block at the end of a file."""
    file.write_text(f"{file.read_text(encoding='utf-8')}\n\n{text}", encoding="utf-8")


def insert(file: Path, before: str, text: str) -> None:
    """Put a line behind one that is there."""
    source = file.read_text(encoding="utf-8")
    assert source.count(before) == 1, (file, before)
    file.write_text(source.replace(before, before + text), encoding="utf-8")
