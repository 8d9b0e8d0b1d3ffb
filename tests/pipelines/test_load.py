"""Recipe files to checked recipes: parents, paths, boards, and where each value came from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipelines.documents.board_files import BOARDS, list_boards, load_board
from pipelines.documents.positions import Node, parse
from pipelines.errors import Fault, Source, Span, UserError
from pipelines.recipe.load import find_recipe, list_recipes, load_recipe
from pipelines.work_folder import CODE

QUANTIZATION = "quantization: {activations: {bits: 2}, weights: {bits: 1}}\n"
ZOO = "model: {zoo: residual_block}\n" + QUANTIZATION


def shipped() -> list[str]:
    """Return the recipes that belong to the clone; a user's own may lie beside them."""
    listed = subprocess.run(
        ["git", "ls-files", "recipes"], cwd=CODE, capture_output=True, text=True
    )
    tracked = {Path(line).relative_to("recipes") for line in listed.stdout.splitlines()}
    names = [name for name, _ in list_recipes()]
    return [name for name in names if not tracked or Path(f"{name}.yaml") in tracked]


NAMES = shipped()


def tree_of(text: str) -> Node:
    faults: list[Fault] = []
    node = parse(text, Source("test.yaml", Path("/"), tuple(text.splitlines())), faults)
    assert not faults, faults
    assert node is not None
    return node


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_here_loads(name: str) -> None:
    found = load_recipe(name)
    assert found.name == Path(name).name
    assert found.recipe.description
    assert set(found.values()) == set(found.origins)
    stated = found.recipe.hardware
    assert found.hardware.name == stated


def test_recipes_are_named_for_what_they_build() -> None:
    stems = [Path(name).name for name in NAMES]
    assert len(set(stems)) == len(stems), "a name is unique: it names what is built"
    for name in NAMES:
        found = load_recipe(name)
        assert found.name.endswith(f"_{found.hardware.name}"), name
        if found.recipe.quantization is not None:
            precision = found.recipe.quantization
            bits = f"a{precision.activations.bits}w{precision.weights.bits}"
            assert f"_{'int8' if bits == 'a8w8' else bits}_" in found.name, name


def test_base_is_no_recipe_of_its_own() -> None:
    assert "base" not in NAMES
    assert {"resnet18_a2w1_rpi3", "ci/residual_block_a2w1_host"} <= set(NAMES)


def test_every_value_has_an_origin() -> None:
    origins = load_recipe("resnet18_a2w1_rpi3").origins
    assert origins["model.zoo"] == "resnet18_a2w1_rpi3.yaml:4"
    assert origins["package.formats"] == "base.yaml:7"
    assert origins["quantization.stem"] == "default"


def test_the_child_wins_field_by_field(tmp_path: Path) -> None:
    write(
        tmp_path,
        "parent.yaml",
        "extends: base\n" + ZOO + "layers: [{match: a, algorithm: mac8}]\n"
        "evaluation: {data: digits.npz}\n",
    )
    child = write(
        tmp_path,
        "deep/child.yaml",
        "extends: ../parent.yaml\nquantization: {weights: {bits: 3}}\n"
        "layers: [{match: b, algorithm: bitserial}]\npackage: {formats: [static]}\n"
        "evaluation: {data: mine.npz}\nhardware: rpi4\n",
    )
    found = load_recipe(child)
    precision = found.recipe.quantization
    assert precision is not None
    assert (precision.activations.bits, precision.weights.bits) == (2, 3)
    assert [layer.match for layer in found.recipe.layers] == ["b"]
    assert found.recipe.package.formats == ("static",)
    assert found.recipe.evaluation is not None
    assert found.recipe.evaluation.data == tmp_path / "deep" / "mine.npz"
    assert found.origins["quantization.activations.bits"] == "parent.yaml:3"
    assert found.origins["schedule.trials"] == "base.yaml:6"


def test_null_unsets_what_a_parent_states(tmp_path: Path) -> None:
    write(tmp_path, "parent.yaml", ZOO)
    write(tmp_path, "net.onnx", "")
    child = write(
        tmp_path,
        "child.yaml",
        "extends: parent\nmodel: {zoo: null, file: net.onnx}\nquantization: null\n",
    )
    found = load_recipe(child)
    assert found.recipe.model.file == tmp_path / "net.onnx"
    assert found.recipe.quantization is None
    assert found.origins["quantization"] == "child.yaml:3"


def test_a_path_is_relative_to_the_file_that_states_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "models/net.onnx", "")
    write(tmp_path, "parents/parent.yaml", "model: {file: ../models/net.onnx}\n")
    write(tmp_path, "child.yaml", "extends: parents/parent.yaml\n")
    monkeypatch.chdir(tmp_path / "models")
    found = load_recipe("../child.yaml")
    assert found.recipe.model.file == tmp_path / "models" / "net.onnx"
    assert found.path == tmp_path / "child.yaml"


def test_a_name_may_mean_a_neighbour_or_a_recipe_here(tmp_path: Path) -> None:
    child = write(tmp_path, "child.yaml", "extends: resnet18_a2w1_rpi3\nmodel: {seed: 3}\n")
    assert load_recipe(child).recipe.model.seed == 3
    write(tmp_path, "resnet18_a2w1_rpi3.yaml", ZOO)
    assert load_recipe(child).recipe.model.zoo == "residual_block"


def test_a_board_may_live_anywhere(tmp_path: Path) -> None:
    text = (BOARDS / "rpi3.yaml").read_text(encoding="utf-8").replace("threads: 4", "threads: 3")
    write(tmp_path, "boards/mine.yaml", text)
    recipe = write(tmp_path, "net.yaml", ZOO + "hardware: boards/mine.yaml\n")
    found = load_recipe(recipe).hardware
    assert (found.name, found.threads, found.isa) == ("mine", 3, "neon_aarch64")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("isa: neon_aarch64", "isa: avx2", "mine.yaml:2:1: isa avx2 does not exist on aarch64"),
        ("isa: neon_aarch64", "isa: neon", "mine.yaml:8:6: isa: 'neon' is not accepted; accepted:"),
        (
            "threads: 4",
            "treads: 4",
            "mine.yaml:10:1: treads: unknown field; did you mean 'thr",
        ),
        ("cpu: cortex-a53", "name: mine", "mine.yaml:5:1: name: leave it out"),
        ("threads: 4", "threads: 010", "mine.yaml:10:10: threads: '010' is octal in YAML 1.1"),
        ("threads: 4", "detect: true", "mine.yaml:3:1: architecture: unknown field"),
    ],
)
def test_a_faulty_board_is_reported_like_a_recipe(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    text = (BOARDS / "rpi3.yaml").read_text(encoding="utf-8")
    assert old in text
    write(tmp_path, "mine.yaml", text.replace(old, new))
    recipe = write(tmp_path, "net.yaml", ZOO + "hardware: mine.yaml\nmodle: x\n")
    with pytest.raises(UserError) as caught:
        load_recipe(recipe)
    assert says in str(caught.value)
    assert "modle: unknown field" in str(caught.value), "the recipe's own faults are told too"


@pytest.mark.parametrize("target", ["x86_64-windows-gnu", "x86_64-macos", "x86_64-linux-android"])
def test_a_board_of_another_system_is_refused_when_it_is_read(tmp_path: Path, target: str) -> None:
    text = (BOARDS / "x86_64.yaml").read_text()
    write(tmp_path, "mine.yaml", text.replace("x86_64-linux-gnu.2.28", target))
    recipe = write(tmp_path, "net.yaml", ZOO + "hardware: mine.yaml\n")
    with pytest.raises(UserError) as caught:
        load_recipe(str(recipe))
    said, line, caret = str(caught.value).splitlines()
    assert f"zig_target: {target} is for " in said and "packages run on Linux alone as yet" in said
    assert line.endswith(f"zig_target: {target}") and caret.strip(" |") == "^" * len(target)


@pytest.mark.parametrize("name", list_boards())
def test_every_board_here_loads_and_cites_its_sources(name: str) -> None:
    faults: list[Fault] = []
    stated = Span(Source("test.yaml", Path("/"), ()), 1, 1)
    found = load_board(name, stated, faults)
    assert not faults
    assert found is not None
    assert found.description
    assert found.sources or name == "host"


def test_the_host_is_named_features_before_anything_else(tmp_path: Path) -> None:
    found = load_recipe(write(tmp_path, "net.yaml", ZOO)).hardware
    assert found.name == "host"
    assert "detect" not in found.ingredients()
    assert found.isa in str(found.ingredients())


def test_unknown_recipes_are_told_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'resnet18_a2w1_rpi3'"):
        find_recipe("resnet18_a2w1_rpi")
    with pytest.raises(UserError, match=r"accepted: .*resnet18_a2w1_host"):
        find_recipe("zzzz")
    with pytest.raises(UserError, match=r"no recipe file 'absent.yaml'"):
        find_recipe("absent.yaml")
    with pytest.raises(UserError, match="no recipe ''"):
        find_recipe("")


def test_later_steps_can_point_at_a_field(tmp_path: Path) -> None:
    found = load_recipe(write(tmp_path, "net.yaml", ZOO + "evaluation: {data: digits.npz}\n"))
    with pytest.raises(UserError) as caught:
        raise found.error("quantization", "contradicts the file")
    assert "net.yaml:2:1: quantization: contradicts the file\n" in str(caught.value)
    assert found.recipe.evaluation is not None
    with pytest.raises(UserError, match=r"net.yaml:3:20: evaluation.data: the file .* not exist"):
        found.require_file("evaluation.data", found.recipe.evaluation.data)
    with pytest.raises(UserError, match="calibration: is missing"):
        found.require_file("calibration", None)
    write(tmp_path, "digits.npz", "")
    assert found.require_file("evaluation.data", found.recipe.evaluation.data).is_file()


def test_a_list_of_recipes_survives_a_broken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "good.yaml", "description: good\nmodel: {file: x.onnx}\n")
    write(tmp_path, "bad.yaml", "a: [")
    write(tmp_path, "part.yaml", "description: no model\n")
    write(tmp_path, "ghost.yaml", "extends: godo\n")
    write(tmp_path, "typo.yaml", "modle: {file: x.onnx}\n")
    monkeypatch.setattr("pipelines.work_folder.RECIPES", tmp_path)
    monkeypatch.setattr("pipelines.work_folder.SHIPPED", tmp_path)
    listed = dict(list_recipes())
    assert listed["good"] == "good"
    assert listed["bad"].startswith("cannot be read: this is not YAML")
    assert listed["ghost"].startswith("cannot be read: extends: no recipe 'godo'")
    assert listed["typo"] == "cannot be read: modle: unknown field"
    assert set(listed) == {"good", "bad", "ghost", "typo"}


@pytest.mark.parametrize("board", ["rpi3", "rpi3_armv7", "rpi4", "armv8_2_dotprod", "x86_64"])
def test_float16_is_refused_where_no_instruction_multiplies_it(board: str) -> None:
    """The whole message is among tests/bad_recipes."""
    fields = {"model.format": "float", "floats": "float16", "hardware": board}
    with pytest.raises(UserError) as caught:
        load_recipe("resnet18_int8_host", fields)
    assert f"(+fullfp16), and {board} has none; accepted: hardware graviton2, graviton3" in str(
        caught.value
    )


@pytest.mark.parametrize("board", ["rpi5", "graviton2", "graviton3", "graviton4"])
def test_float16_is_accepted_where_one_does(board: str) -> None:
    fields = {"model.format": "float", "floats": "float16", "hardware": board}
    assert load_recipe("resnet18_int8_host", fields).recipe.floats == "float16"
