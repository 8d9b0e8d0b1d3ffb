"""Keys depend on what matters and on nothing else."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.store import keys, python_sources
from stages import STAGES

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(PLAIN.filter(lambda value: "Infinity" not in json.dumps(value)))
def test_canonical_text_says_the_same_value(value: object) -> None:
    assert json.loads(keys.canonical(value)) == value


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_canonical_text_does_not_depend_on_order(value: dict[str, int]) -> None:
    assert keys.canonical(dict(reversed(value.items()))) == keys.canonical(value)


@pytest.mark.parametrize("value", [{1: 2}, b"", {"a": [set()]}, Path("x"), math.nan, math.inf])
def test_what_json_would_change_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        keys.canonical(value)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "stages/__init__.py": "STAGES = ()",
        "stages/first/__init__.py": "from stages.first.inner import f\nimport json",
        "stages/first/inner.py": "def f():\n    from stages import shared\n    return shared",
        "stages/first/runtime/pool.c": "int x;",
        "stages/second/__init__.py": "X = 1",
        "stages/shared.py": "from hw import profile",
        "hw/__init__.py": "",
        "hw/profile.py": '"""Text."""\n\nA = 1',
        "hw/boards/rpi3.yaml": "a: 1",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_code_is_the_closure_of_imports_and_the_stages_data(tree: Path) -> None:
    found = keys.code_ingredients("stages.first", tree)
    assert list(found) == [
        "hw/profile.py",
        "stages/first/__init__.py",
        "stages/first/inner.py",
        "stages/first/runtime/pool.c",
        "stages/shared.py",
    ]


def test_comments_and_docstrings_are_no_code(tree: Path) -> None:
    before = keys.code_ingredients("stages.first", tree)
    (tree / "hw/profile.py").write_text('"""Other text."""\n# a comment\nA  =  1\n"""About A."""\n')
    (tree / "stages/first/inner.py").write_text(
        'def f():\n    """Say."""\n    from stages import shared\n\n    return shared  # why\n'
    )
    assert keys.code_ingredients("stages.first", tree) == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hw/profile.py", "A = 2"),
        ("stages/first/runtime/pool.c", "int y;"),
        ("stages/first/inner.py", "def f():\n    return 1"),
    ],
)
def test_code_that_changed_is_named(tree: Path, name: str, text: str) -> None:
    before = keys.code_ingredients("stages.first", tree)
    (tree / name).write_text(text)
    after = keys.code_ingredients("stages.first", tree)
    assert after.get(name) != before[name]


@pytest.mark.parametrize(
    "name", ["stages/__init__.py", "stages/second/__init__.py", "hw/boards/rpi3.yaml"]
)
def test_code_elsewhere_does_not_matter(tree: Path, name: str) -> None:
    before = keys.code_ingredients("stages.first", tree)
    (tree / name).write_text("Y = 5")
    assert keys.code_ingredients("stages.first", tree) == before


def test_pages_are_no_code(tree: Path) -> None:
    """A stage's README can be edited without running the stage again."""
    before = keys.code_ingredients("stages.first", tree)
    (tree / "stages/first/README.md").write_text("# First\n")
    (tree / "stages/first/runtime/README.md").write_text("# The runtime\n")
    assert keys.code_ingredients("stages.first", tree) == before


def test_every_word_of_what_packages_hold_is_code(tree: Path) -> None:
    """Python that is not run here, but shipped: its comments are a package's bytes."""
    (tree / "stages/first/shipped").mkdir()
    path = tree / "stages/first/shipped/loader.py"
    path.write_text("A = 1\n")
    before = keys.code_ingredients("stages.first", tree)
    path.write_text("A = 1  # one\n")
    after = keys.code_ingredients("stages.first", tree)
    assert before["stages/first/shipped/loader.py"] != after["stages/first/shipped/loader.py"]


def test_no_stage_has_a_page_among_its_code() -> None:
    found = keys.code_ingredients("stages.synthesizing")
    assert any(name.startswith("stages/kernels/") for name in found)
    assert not [name for name in found if name.endswith(".md")]


def test_relative_imports_are_followed(tree: Path) -> None:
    (tree / "stages/first/__init__.py").write_text("from . import inner\nfrom ..shared import x")
    assert "stages/shared.py" in keys.code_ingredients("stages.first", tree)
    assert "stages/first/inner.py" in keys.code_ingredients("stages.first", tree)


def test_operators_that_are_found_by_name_are_code(tree: Path) -> None:
    for room in ("dialect", "numerics"):
        (tree / "stages" / room).mkdir()
    (tree / "stages/dialect/operators.py").write_text("OPERATORS = {}")
    (tree / "stages/numerics/layers.py").write_text("from stages.second import X")
    assert "stages/numerics/layers.py" not in keys.code_ingredients("stages.first", tree)
    (tree / "stages/shared.py").write_text("from stages.dialect.operators import OPERATORS")
    found = keys.code_ingredients("stages.first", tree)
    assert {"stages/numerics/layers.py", "stages/second/__init__.py"} <= found.keys()


NUMERICS = {str(path.relative_to(keys.ROOT)) for path in keys.ROOT.glob("stages/numerics/*.py")}
"""Files that say how a framework rounds."""
ROUNDING_MODES = "stages/dialect/rounding_modes.py"
"""QONNX's, which the dialect quantizes by."""
CHANGING = {
    "stages.bitpacking", "stages.calibrating", "stages.canonicalizing", "stages.importing",
    "stages.importing.zoo", "stages.legalizing", "stages.packaging", "stages.quantizing",
}  # fmt: skip
"""The stages whose keys change with a framework's rounding: all that may run its operators."""


def test_a_frameworks_rounding_is_in_no_key_of_kernels() -> None:
    """Candidates, bodies and schedules of kernels stay; whoever may run operators runs again."""
    modules = {stage.entry.partition(":")[0] for stage in STAGES}
    found = {module: keys.code_ingredients(module).keys() for module in modules}
    for name in sorted({*NUMERICS, ROUNDING_MODES}):
        assert {module for module in modules if name in found[module]} == CHANGING, name
    assert modules - CHANGING == {"stages.synthesizing", "stages.scheduling"}


def test_what_is_in_no_such_key_finds_no_operator_by_name() -> None:
    """Tables of `elementwise.py` hold all rooms' operators; `float_linear.py` reads its own."""
    tables = {"ARITHMETIC", "ELEMENTWISE", "WHOLE", "WIDENED"}
    found = keys.code_ingredients("stages.synthesizing") | keys.code_ingredients(
        "stages.scheduling"
    )
    reading = {
        name
        for name in found
        for base, _, names in python_sources.read(keys.ROOT / name, keys.ROOT).imports
        if base == "stages.dialect.elementwise" and tables & set(names)
    }
    assert reading == {"stages/dialect/float_linear.py"}


@pytest.mark.parametrize("text", ["", "{", '{"format": 1}', '{"files": {"hw/profile.py": 3}}'])
def test_what_is_kept_about_files_may_be_damaged(tree: Path, text: str) -> None:
    before = python_sources.read(tree / "hw/profile.py", tree)
    python_sources._keep(tree)
    assert not (tree / "artifacts").exists()
    (tree / "artifacts").mkdir()
    python_sources._keep(tree)
    python_sources._known.cache_clear()
    assert python_sources.read(tree / "hw/profile.py", tree) == before
    kept = tree / "artifacts" / ".code.json"
    kept.write_text(text)
    python_sources._known.cache_clear()
    assert python_sources.read(tree / "hw/profile.py", tree) == before


def test_what_is_kept_about_a_file_ends_with_any_change_to_it(tree: Path) -> None:
    path = tree / "hw/profile.py"
    stat = path.stat()
    before = python_sources.read(path, tree)
    text = path.read_text()
    path.write_text(text.replace("1", "2"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert python_sources.read(path, tree) != before
    path.write_text(text)
    assert python_sources.read(path, tree) == before
