"""What README.md and the pages of the rooms say holds.

Their commands, recipes, files and links exist; what they show of files is the files; the board and
the instruction work; README is short enough to be read. How pages are taken apart is in
`tests/pages.py`.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from hw.isa.arrays import array_lanes, registers
from hw.isa.instruction import Vector, call, pairs
from hw.isa.neon import AARCH64
from pipelines import menu
from pipelines.command_line import VARIABLES
from pipelines.commands.importing import described, recipe_name
from pipelines.documents import fields
from pipelines.evaluation import comparison
from pipelines.recipe import load, overrides
from pipelines.recipe.recipe import Recipe
from recipes.models import exported
from stages import STAGES, importing
from stages.dialect.float_linear import departure
from stages.importing import zoo
from stages.importing.onnx.onnx_converters import CONVERTERS, QONNX_CONVERTERS
from stages.layer_options import LayerOverride
from stages.options import ZooOptions
from tests.pages import PAGES, ROOT, anchors, block, commands, links, paths, section

README = PAGES["README.md"]
MOST_WORDS = 1500
RECIPE = "resnet18_a2w1_rpi3"
TASKS = {*menu.COMMAND_NAMES, "list", "help", "info"}
WRITTEN_BY_READERS = ("hw/boards/rock5b.yaml", "recipes/model.yaml")


def test_readme_is_short() -> None:
    """For all later work, too: what is longer belongs to the page of a room."""
    assert len(README.split()) <= MOST_WORDS  # as `wc -w` counts


def test_every_page_can_be_found_from_readme() -> None:
    seen, todo = set(), ["README.md"]
    while todo:
        page = todo.pop()
        seen.add(page)
        found = {resolved(page, target) for target, _ in links(page)} & PAGES.keys()
        todo += sorted(found - seen)
    assert seen == PAGES.keys()


def test_commands_are_tasks_and_their_variables_are_known() -> None:
    found = [words for page in PAGES for words in commands(page)]
    assert len(commands("README.md")) > 15 and len(found) > 40
    for words in found:
        if all(word in ("-h", "--help") for word in words):
            continue  # these alone print a page
        task = next(w for i, w in enumerate(words) if w[0] != "-" and words[i - 1] != "-n")
        assert task in TASKS, words
        given = [w for w in words if "=" in w and "[" not in w and not w.startswith("field=")]
        overrides.parse([task, *given], VARIABLES)


def test_every_command_has_its_row() -> None:
    rows = re.findall(r"^\| `doit (\w+)", section("README.md", "Commands"), re.MULTILINE)
    assert rows and set(rows) == set(menu.COMMAND_NAMES)


def test_recipes_it_names_exist() -> None:
    known = {name for name, _ in load.list_recipes()} | exported.NETWORKS.keys()
    for page, text in PAGES.items():
        names = {n for n in re.findall(r"recipe=(\w+)", text) if "_" in n}
        assert names <= known, page
        assert names or page != "README.md"


def test_recipe_is_the_file() -> None:
    shown = block("recipes/README.md", "yaml", "# yaml")
    assert shown == (ROOT / f"recipes/{RECIPE}.yaml").read_text(encoding="utf-8")


def test_recipes_for_a_file_are_accepted(tmp_path: Path) -> None:
    text = block("recipes/README.md", "yaml", "model: {file: ")
    text += block("recipes/README.md", "yaml", "evaluation: ")
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(text, encoding="utf-8")
    stated = yaml.safe_load(text)
    for path in (stated["model"]["file"], stated["evaluation"]["data"]):
        (tmp_path / str(path)).write_bytes(b"")
    (tmp_path / "photos").mkdir()
    found = load.load_recipe(str(recipe)).recipe
    assert found.calibration is not None and found.evaluation is not None


def test_recipe_that_import_writes() -> None:
    """For a file of 8 bits, as ONNX Runtime's quantizer writes them; comments are left out."""
    shown = block("README.md", "yaml", "description: ")
    path = yaml.safe_load(shown)["model"]["file"]
    source = zoo.build(options=ZooOptions(name="resnet8", format="qdq"))
    name = recipe_name(Path(path))
    text = importing.starter_recipe(described(source), path, name)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    assert lines == shown.splitlines()


def test_every_field_has_its_row() -> None:
    """Rows are the leaves of a recipe; those of mappings stand for all names."""
    rows = re.findall(
        r"^\| `([\w.<>\[\]]+)` ", section("recipes/README.md", "All fields"), re.MULTILINE
    )
    entries = [f"layers[].{name}" for name in fields.dotted(LayerOverride) if name]
    names = [*(name for name in fields.dotted(Recipe) if name != "layers"), *entries]
    leaves = [n for n in names if not any(other.startswith(f"{n}.") for other in names)]
    assert sorted(rows) == sorted(leaves)


def test_boards_are_the_files() -> None:
    bits = {"aarch64": "64", "x86_64": "64", "armv7": "32", None: "its own"}
    files = sorted((ROOT / "hw/boards").glob("*.yaml"))
    boards = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}
    rows = re.findall(
        r"^\| `(\w+)` \| (.+) \| (.+) \|$", section("hw/README.md", "Boards"), re.MULTILINE
    )
    assert rows == [
        (name, board["description"], bits[board.get("architecture")])
        for name, board in boards.items()
    ]
    (line,) = [line for line in README.splitlines() if "[Boards](" in line]
    assert {f"`{name}`" for name in boards if name.startswith("rpi")} <= set(
        re.findall(r"`\w+`", line)
    )


def test_operators_are_those_that_are_converted() -> None:
    text = section("stages/importing/README.md", "ONNX operators")
    found = re.findall(r"^\*\*(QONNX|Other files), (.+?)\*\*(.+)$", text, re.MULTILINE)
    listed = {
        (file, domain.strip("`:")): re.findall(r"`(\w+)`", operators.rsplit(": ", 1)[-1])
        for file, domain, operators in found
    }
    domains = {"": "ONNX's own domain"}
    expected: dict[tuple[str, str], list[str]] = {}
    ways = {"QONNX": QONNX_CONVERTERS, "Other files": CONVERTERS}
    for file, table in ways.items():
        for domain, operator in sorted(table):
            expected.setdefault((file, domains.get(domain, domain)), []).append(operator)
    assert listed == expected


def test_verdicts_allow_what_the_page_says() -> None:
    text = section("pipelines/README.md", "Exact, close, departs")
    assert comparison.CLOSE == 1e-4 and "by at most 1e-4 of its largest value" in text
    assert comparison.CLOSE_OF_BFLOAT16 == 0.05 and "(0.05 with `floats: bfloat16`)" in text
    assert round(departure(1), 4) == 0.0087 and "0.0087 times the root of the number" in text
    assert comparison.RARE == 1e-4 and "at most 1 of 10,000 values" in text


def test_stages_are_in_order_in_the_output_and_in_the_table() -> None:
    names = [*(stage.name for stage in STAGES), "publishing", "verifying"]
    output = block("README.md", "", "zoo ")
    # Only a recipe with calibration data has that stage.
    built = [name for name in names if name != "calibrating"]
    assert [line.split()[0] for line in output.splitlines()] == built
    assert re.findall(r"^\| `(\w+)` ", PAGES["stages/README.md"], re.MULTILINE) == names


@pytest.mark.parametrize("path", sorted({path for page in PAGES for path in paths(page)}))
def test_paths_exist(path: str) -> None:
    if path not in WRITTEN_BY_READERS:
        assert (ROOT / path).exists()


def resolved(page: str, target: str) -> str:
    """The file that a page links to, from the root; without a target it is the page."""
    path = (ROOT / page).parent / target if target else ROOT / page
    return os.path.relpath(path, ROOT)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target, anchor in links(page):
        found = resolved(page, target)
        assert (ROOT / found).exists(), target
        assert not anchor or anchor in anchors(found), f"{target}#{anchor}"


def test_board_can_be_added(tmp_path: Path) -> None:
    text = block("hw/README.md", "yaml", "description: Radxa")
    assert len(yaml.safe_load(text)) == len(text.splitlines()) == 12
    (tmp_path / "rock5b.yaml").write_text(text, encoding="utf-8")
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"extends: {ROOT / 'recipes' / RECIPE}.yaml\nhardware: ./rock5b.yaml\n")
    assert load.load_recipe(str(recipe)).hardware.name == "rock5b"


def test_layer_overrides_are_accepted(tmp_path: Path) -> None:
    found = []
    text = "\n".join(
        PAGES[page] for page in ("recipes/README.md", "stages/synthesizing/algorithms.md")
    )
    for line in dict.fromkeys(re.findall(r"`(layers: \[.*?\])`", text)):
        recipe = tmp_path / "mine.yaml"
        recipe.write_text(f"extends: {ROOT / 'recipes' / RECIPE}.yaml\n{line}\n", encoding="utf-8")
        found.append(load.load_recipe(str(recipe)).recipe.layers[0])
    assert [(layer.match, layer.algorithm) for layer in found] == [
        ("layer4.*", None),
        ("*", "mac8"),
        ("layer3.*", None),
        ("layer[234].*.conv2", None),
    ]


@pytest.mark.parametrize("room", ["stages/synthesizing", "stages/kernels"])
def test_files_that_a_room_quotes_are_there(room: str) -> None:
    pages = [text for page, text in PAGES.items() if str(Path(page).parent) == room]
    quoted = {name for text in pages for name in re.findall(r"`(\w+\.py)`", text)}
    there = {path.name for top in (room, f"tests/{room}") for path in (ROOT / top).glob("*.py")}
    assert quoted <= there
    own = {path.name for path in (ROOT / room).glob("*.py")} - {"__init__.py"}
    assert own <= quoted


def test_instruction_is_a_row() -> None:
    source = block("hw/README.md", "python", "call(")
    row = eval(source, {"call": call, "Vector": Vector, "pairs": pairs})
    (same,) = [item for item in AARCH64.instructions() if item.name == row.name]
    assert replace(row, meaning=same.meaning) == same
    (kind,) = row.operands
    lanes = array_lanes(np.arange(kind.lanes * 16, dtype=np.uint8).reshape(16, kind.lanes))
    expected = registers(same.execute([lanes]))
    np.testing.assert_array_equal(registers(row.execute([lanes])), expected)
