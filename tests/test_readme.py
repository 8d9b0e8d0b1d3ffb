"""What README.md says holds: its commands exist, its files are the files, its C program works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from hw import host
from hw.isa.arrays import array_lanes, registers
from hw.isa.instruction import Vector, call, pairs
from hw.isa.neon import AARCH64
from pipelines import graph, load, overrides, plan
from pipelines.execute import Workshop
from pipelines.front import VARIABLES
from stages import STAGES

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
RECIPE = "resnet18_a2w1_rpi3"
SMALL = "residual_block_a2w1_host"
TASKS = {*graph.COMMAND_NAMES, "list"}


def blocks(language: str) -> list[str]:
    pairs = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [text for name, text in pairs if name == language]


def block(language: str, start: str) -> str:
    """The one block of a language that begins like this."""
    (found,) = [text for text in blocks(language) if text.startswith(start)]
    return found


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands() -> list[list[str]]:
    """The words behind each `doit` in README: its shell blocks, and what it quotes."""
    quoted = re.findall(r"`((?:\.venv/bin/)?doit [^`]+)`", TEXT)
    lines = [part for text in blocks("sh") for part in re.split(r"\n|&&", text)]
    given = [line.strip().removeprefix(".venv/bin/") for line in [*lines, *quoted]]
    return [line.split()[1:] for line in given if line.startswith("doit ")]


def test_commands_are_tasks_and_their_variables_are_known() -> None:
    found = commands()
    assert len(found) > 15
    for words in found:
        task = next(w for i, w in enumerate(words) if w[0] != "-" and words[i - 1] != "-n")
        assert task in TASKS, words
        given = [w for w in words if "=" in w and "[" not in w and not w.startswith("field=")]
        overrides.parse([task, *given], VARIABLES)


def test_every_command_has_its_row() -> None:
    rows = re.findall(r"^\| `doit (\w+)", section("Commands"), re.MULTILINE)
    assert rows and set(rows) == set(graph.COMMAND_NAMES)


def test_recipes_it_names_exist() -> None:
    names = {n for n in re.findall(r"recipe=(\w+)", TEXT) if "_" in n}
    assert names and names <= {name for name, _ in load.list_recipes()}


def test_recipe_is_the_file() -> None:
    assert block("yaml", "# yaml") == (ROOT / f"recipes/{RECIPE}.yaml").read_text(encoding="utf-8")


def test_stages_are_in_order_in_the_output_and_in_the_table() -> None:
    names = [*(stage.name for stage in STAGES), "publishing", "verifying"]
    output = block("", "zoo ")
    # Only a recipe with calibration data has that stage.
    built = [name for name in names if name != "calibrating"]
    assert [line.split()[0] for line in output.splitlines()] == built
    assert re.findall(r"^\| `(\w+)` ", section("The stages"), re.MULTILINE) == names


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:recipes|hw|tests)/[\w./]+)`", TEXT))))
def test_paths_exist(path: str) -> None:
    if path != "hw/boards/rpi_zero2w.yaml":
        assert (ROOT / path).exists()


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (ROOT / target).exists(), target


def test_board_can_be_added(tmp_path: Path) -> None:
    text = block("yaml", "description: Raspberry Pi Zero")
    assert len(yaml.safe_load(text)) == len(text.splitlines()) == 10
    (tmp_path / "rpi_zero2w.yaml").write_text(text, encoding="utf-8")
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"extends: {ROOT / 'recipes' / RECIPE}.yaml\nhardware: ./rpi_zero2w.yaml\n")
    assert load.load_recipe(str(recipe)).hardware.name == "rpi_zero2w"


def test_layer_overrides_are_accepted(tmp_path: Path) -> None:
    found = []
    for line in re.findall(r"`(layers: \[.*?\])`", TEXT):
        recipe = tmp_path / "mine.yaml"
        recipe.write_text(f"extends: {ROOT / 'recipes' / RECIPE}.yaml\n{line}\n", encoding="utf-8")
        found.append(load.load_recipe(str(recipe)).recipe.layers[0])
    assert [(layer.match, layer.algorithm) for layer in found] == [
        ("layer4.*", None),
        ("*", "mac8"),
    ]


def test_instruction_is_a_row() -> None:
    source = block("python", "call(")
    row = eval(source, {"call": call, "Vector": Vector, "pairs": pairs})
    (same,) = [item for item in AARCH64.instructions() if item.name == row.name]
    assert replace(row, meaning=same.meaning) == same
    (kind,) = row.operands
    lanes = array_lanes(np.arange(kind.lanes * 16, dtype=np.uint8).reshape(16, kind.lanes))
    expected = registers(same.execute([lanes]))
    np.testing.assert_array_equal(registers(row.execute([lanes])), expected)


def test_ci_runs_the_second_command_in_a_clean_copy(tmp_path: Path) -> None:
    """.ci/run, with a README that asks for something else, so that it ends soon."""
    after = TEXT.split("\nThis passes the tests:\n\n```sh\n")[1]
    command = after.split("\n```\n")[0]
    assert "venv" in command and "'.[test]'" in command and command.endswith("doit check")
    clone = tmp_path / "clone"
    (clone / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci/run", clone / ".ci/run")
    harmless = 'pwd; ls -A; echo "$BITKILN_REALDATA"; exit 7'
    (clone / "README.md").write_text(TEXT.replace(command, harmless), encoding="utf-8")
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


@pytest.mark.slow
def test_c_program_gives_the_golden_outputs(tmp_path: Path) -> None:
    """Compiled as README says, beside the package of a small recipe, reading and writing floats."""
    try:
        host.detect()
    except ValueError as error:
        pytest.skip(f"needs a package for this machine: {error}")
    resolved = load.load_recipe(f"ci/{SMALL}")
    doit = [sys.executable, "-m", "doit", "build", f"recipe=ci/{SMALL}"]
    done = subprocess.run(doit, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.copytree(ROOT / "artifacts/packages" / SMALL, tmp_path, dirs_exist_ok=True)
    program = block("c", "#include")
    assert len(program.split("int main(void) {\n")[1].split("\n}")[0].splitlines()) <= 10
    (tmp_path / "classify.c").write_text(for_small(program), encoding="utf-8")
    (line,) = re.findall(r"^cc .*$", TEXT, re.MULTILINE)
    compiler = [sys.executable, "-m", "ziglang", "cc", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*compiler, *for_small(line).split()[1:]], cwd=tmp_path, check=True)
    workshop = Workshop(plan.of(resolved))
    golden = workshop.load(workshop.plan.step("golden"))
    for image, scores in zip(golden.inputs["data"], golden.outputs["out"], strict=True):
        ran = subprocess.run(
            [tmp_path / "classify"], input=image.tobytes(), capture_output=True, check=True
        )
        assert np.array_equal(np.frombuffer(ran.stdout, np.float32), scores.reshape(-1))
    short = subprocess.run([tmp_path / "classify"], input=b"few", check=False)
    assert short.returncode == 2


def for_small(text: str) -> str:
    """README's text about one package as it reads for the small one."""
    return text.replace(RECIPE, SMALL).replace(RECIPE.upper(), SMALL.upper())
