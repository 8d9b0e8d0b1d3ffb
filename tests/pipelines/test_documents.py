"""YAML as people write it: scalars, trees laid over one another, and texts that are no tree."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.documents.positions import MAX_BYTES, Node, Plain, parse
from pipelines.documents.trees import merge
from pipelines.errors import Fault, Source, UserError, nearest
from pipelines.recipe.load import load_recipe
from pipelines.work_folder import SHIPPED
from tests.pipelines.test_load import ZOO, tree_of, write


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
