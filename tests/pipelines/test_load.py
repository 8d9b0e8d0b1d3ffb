"""Recipe files to checked recipes: parents, paths, boards, and where each value came from."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.documents.board_files import BOARDS, list_boards, load_board
from pipelines.documents.positions import MAX_BYTES, Node, Plain, parse
from pipelines.documents.trees import merge
from pipelines.errors import Fault, Source, Span, UserError, nearest
from pipelines.places import CODE, SHIPPED
from pipelines.recipe.load import find_recipe, list_recipes, load_recipe

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
    monkeypatch.setattr("pipelines.places.RECIPES", tmp_path)
    monkeypatch.setattr("pipelines.places.SHIPPED", tmp_path)
    listed = dict(list_recipes())
    assert listed["good"] == "good"
    assert listed["bad"].startswith("cannot be read: this is not YAML")
    assert listed["ghost"].startswith("cannot be read: extends: no recipe 'godo'")
    assert listed["typo"] == "cannot be read: modle: unknown field"
    assert set(listed) == {"good", "bad", "ghost", "typo"}


def test_unreadable_files_are_one_sentence(tmp_path: Path) -> None:
    huge = write(tmp_path, "huge.yaml", "a: " + "x" * MAX_BYTES)
    with pytest.raises(UserError, match="is larger than 64 KiB"):
        load_recipe(huge)
    child = write(tmp_path, "child.yaml", "extends: folder.yaml\n")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(UserError, match=r"no recipe 'folder.yaml'"):
        load_recipe(child)
    control = write(tmp_path, "control.yaml", "a: b\nc: \x07\n")
    with pytest.raises(UserError, match=r"control.yaml:2:4: the character U\+0007 may not stand"):
        load_recipe(control)
    if os.geteuid() != 0:
        Path(control).chmod(0)
        with pytest.raises(UserError, match="cannot be read: permission denied"):
            load_recipe(control)


def test_what_a_terminal_would_obey_is_not_printed(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe(write(tmp_path, "net.yaml", ZOO + '"\\e[31mred": 1\n'))
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 5000, "- " * 5000 + "x"])
def test_deep_nesting_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"is nested deeper than 32 levels|not a mapping"):
        load_recipe(write(tmp_path, "deep.yaml", "a:\n  " + text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-1", -1),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("~", None),
        ("null", None),
        ("'on'", "on"),
        ('"010"', "010"),
        ("y", "y"),
        ("2026-01-01", "2026-01-01"),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        (".inf", ".inf"),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    found = tree_of(f"a: {text}").plain()
    assert isinstance(found, dict)
    assert found["a"] == value
    assert type(found["a"]) is type(value)


@pytest.mark.parametrize(
    "text", ["on", "Off", "YES", "no", "010", "-07", "1:30", "1:30:59", "190:20", "1_000", "0b1"]
)
def test_scalars_that_yaml_1_1_reads_otherwise_are_refused(text: str) -> None:
    for written in (f"a: {text}", f"{text}: a"):
        faults: list[Fault] = []
        parse(written, Source("x", Path("/"), (written,)), faults)
        assert [fault for fault in faults if "YAML 1.1" in fault.sentence], written


@pytest.mark.parametrize("text", ["1" * 30, "1e999", "9" * 5000, "!!int x", "!!float on"])
def test_numbers_no_machine_holds_are_refused(text: str) -> None:
    faults: list[Fault] = []
    parse(f"a: {text}", Source("x", Path("/"), (f"a: {text}",)), faults)
    assert len(faults) == 1


PLAIN: st.SearchStrategy[Plain] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["x", "y"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), PLAIN)


def tree_from(value: Plain) -> Node:
    return tree_of(json.dumps(value))


def lay(parent: Plain, child: Plain) -> Plain:
    return merge(tree_from(parent), tree_from(child)).plain()


@given(MAPPINGS)
def test_merging_with_nothing_or_itself_changes_nothing(a: dict[str, Plain]) -> None:
    assert lay(a, {}) == a
    assert lay({}, a) == a
    assert lay(a, a) == a


@given(MAPPINGS, MAPPINGS)
def test_merging_keeps_all_that_the_child_says(a: dict[str, Plain], b: dict[str, Plain]) -> None:
    merged = lay(a, b)
    assert isinstance(merged, dict)
    assert set(merged) == set(a) | set(b)
    for key, value in merged.items():
        if key not in b:
            assert value == a[key]
        elif isinstance(b[key], dict) and isinstance(a.get(key), dict):
            assert value == lay(a[key], b[key])
        else:
            assert value == b[key]
    assert lay(merged, b) == merged


@given(st.text(max_size=60))
def test_any_text_is_a_tree_or_a_fault(text: str) -> None:
    faults: list[Fault] = []
    node = parse(text, Source("x.yaml", Path("/"), tuple(text.splitlines())), faults)
    assert node is not None or faults
    assert str(UserError.of(faults)) or not faults


def test_nearest_prefers_whole_names() -> None:
    known = ("schedule.trials", "golden.samples", "hardware")
    assert nearest("schedule.trails", known) == "schedule.trials"
    assert nearest("sample", known) == "golden.samples"
    assert nearest("zzz", known) is None
    assert SHIPPED.is_dir()


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
