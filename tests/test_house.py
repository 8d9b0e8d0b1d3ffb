"""The order of the house: who may import whom, and what may not be imported at all."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pipelines.store.keys import BY_NAME
from stages.rooms import ROOMS

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ("pipelines", "stages", "hw")
ALLOWED = {"pipelines": {"pipelines", "stages", "hw"}, "stages": {"stages", "hw"}, "hw": {"hw"}}
HEAVY = {"tvm", "tvm_ffi", "onnx", "onnxruntime", "torch", "unicorn"}
# Words that sibling stages share; everything else below stages/ belongs to one stage.
SHARED = {*ROOMS, "kinds", "options", "errors", "artifacts", "codegen", "rooms"}
BESIDE_ROOMS = {"errors", "kinds", "layer_options", "nodes", "options"}
"""Files of stages/ itself that rooms import."""
FILES = sorted(path for name in HOUSE for path in (ROOT / name).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, package: str, *, top_level_only: bool) -> Iterator[tuple[str, int]]:
    """Yield the full name of each import and its line; `from a import b` yields a and a.b."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield base, node.lineno
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)
        elif top_level_only and is_deferred(node):
            continue
        else:
            yield from imported(node, package, top_level_only=top_level_only)


def is_deferred(node: ast.AST) -> bool:
    """Whether what stands below a node is not run when its module is imported."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def package_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).parent.parts)


@cache
def imports_of(path: Path, top_level_only: bool) -> tuple[tuple[str, int], ...]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tuple(imported(tree, package_of(path), top_level_only=top_level_only))


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0]
    for name, line in imports_of(path, False):
        head = name.split(".")[0]
        if head in (*HOUSE, "tests"):
            assert head in ALLOWED[own], (
                f"{path.relative_to(ROOT)}:{line} imports {name}; "
                f"{own} may import {', '.join(sorted(ALLOWED[own]))} only"
            )


@pytest.mark.parametrize("path", sorted((ROOT / "stages").rglob("*.py")), ids=module_name)
def test_sibling_stages_do_not_import_each_other(path: Path) -> None:
    parts = module_name(path).split(".")
    own = parts[1] if len(parts) > 1 else ""
    for name, line in imports_of(path, False):
        target = name.split(".")
        if target[0] != "stages" or len(target) < 2 or not (ROOT / "stages" / target[1]).is_dir():
            continue
        assert target[1] in SHARED or target[1] == own, (
            f"{path.relative_to(ROOT)}:{line} imports {name}; a stage may import itself and "
            f"{', '.join(sorted(SHARED))}: what two stages share belongs in one of these rooms"
        )


@pytest.mark.parametrize("room", ROOMS)
def test_shared_rooms_import_one_way(room: str) -> None:
    """A room imports itself and those before it, and no stage."""
    allowed = {*ROOMS[: ROOMS.index(room) + 1], *BESIDE_ROOMS}
    files = sorted((ROOT / "stages" / room).rglob("*.py"))
    assert files
    for path in files:
        for name, line in imports_of(path, False):
            target = name.split(".")
            if target[0] == "stages" and len(target) > 1:
                assert target[1] in allowed, (
                    f"{path.relative_to(ROOT)}:{line} imports {name}; stages/{room} may import "
                    f"{', '.join(sorted(allowed))} only"
                )


@pytest.mark.parametrize("room", ROOMS)
def test_a_shared_room_is_small_and_has_a_door(room: str) -> None:
    """Its page has a row for each file, so that a reader sees what is in it."""
    names = {path.name for path in (ROOT / "stages" / room).glob("*.py")}
    page = (ROOT / "stages" / room / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`|]+)`", page, re.MULTILINE)
    assert sorted(rows) == sorted(names)
    assert len(names) < 40


def test_operators_are_found_by_name_through_one_file() -> None:
    """By that file keys know a stage that may run any operator."""
    for path in FILES:
        reads = "stages.dialect.registry.ROWS" in {name for name, _ in imports_of(path, False)}
        assert not reads or path == ROOT / BY_NAME, path


def test_no_file_of_pipelines_shadows_the_standard_library() -> None:
    names = {path.stem for path in (ROOT / "pipelines").glob("*") if path.suffix in ("", ".py")}
    shadowing = names & (sys.stdlib_module_names - {"__init__"})
    assert not shadowing, f"pipelines/ is on sys.path ahead of the standard library: {shadowing}"


def reach(path: Path) -> dict[str, str]:
    """Return what importing a file imports in turn, each with the file that imports it."""
    found: dict[str, str] = {}
    todo = [path]
    seen = set()
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        for name, _line in imports_of(here, True):
            found.setdefault(name, module_name(here))
            parts = name.split(".")
            for end in range(1, len(parts) + 1):  # importing a.b runs a/__init__.py too
                target = ROOT.joinpath(*parts[:end])
                for file in (target.with_suffix(".py"), target / "__init__.py"):
                    if parts[0] in HOUSE and file.is_file():
                        todo.append(file)
    return found


MODULES = {module_name(path): path for path in FILES}


def modules_imported(path: Path) -> Iterator[str]:
    """Yield the modules of the house that a file imports, in functions too.

    `from a import b` imports b where that is a module of a, and else a.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = (f"{node.module}.{alias.name}" for alias in node.names)
            named = {name if name in MODULES else node.module for name in full}
            yield from named & MODULES.keys()


@cache
def circles() -> tuple[frozenset[str], ...]:
    """The largest sets of modules each of which imports all others, be it through others."""
    reached: dict[str, set[str]] = {}
    direct = {name: set(modules_imported(path)) - {name} for name, path in MODULES.items()}
    for start in MODULES:
        seen: set[str] = set()
        todo = [start]
        while todo:
            found = direct[todo.pop()] - seen
            seen |= found
            todo += found
        reached[start] = seen
    sets = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in MODULES
        if name in reached[name]
    }
    return tuple(sorted(sets, key=sorted))


def test_no_circle_of_imports() -> None:
    """Whoever reads a file can read what it imports first, down to the last one."""
    assert [sorted(circle) for circle in circles()] == []


LIGHT = (".", "documents", "store", "recipe", "builds", "evaluation", "output")
"""What a command line is read and planned by: doit imports it before anything is built."""


@pytest.mark.parametrize(
    "path",
    sorted(path for room in LIGHT for path in (ROOT / "pipelines" / room).glob("*.py")),
    ids=module_name,
)
def test_pipelines_imports_nothing_heavy(path: Path) -> None:
    heavy = {name: by for name, by in reach(path).items() if name.split(".")[0] in HEAVY}
    assert not heavy, f"importing {module_name(path)} imports {heavy}; import inside the function"


EXECUTING = {"eval", "exec", "pickle.load", "pickle.loads", "torch.load", "torch.export.load"}


def test_nothing_is_called_that_executes_what_a_file_holds() -> None:
    for path in FILES:
        calls = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call))
        assert EXECUTING.isdisjoint(ast.unparse(call.func) for call in calls), path


def test_loading_every_recipe_imports_nothing_heavy() -> None:
    code = f"""
import sys
from pipelines.recipe import load, schema
for name, _ in load.list_recipes():
    if name.startswith("ci/"):
        load.load_recipe(name)
print(sorted({HEAVY!r} & sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_checks_see_what_they_forbid() -> None:
    source = "import tvm\ndef f():\n    from stages import importing\nfrom . import b\n"
    tree = ast.parse(source)
    assert {name for name, _ in imported(tree, "stages.x", top_level_only=True)} == {
        "tvm",
        "stages.x",
        "stages.x.b",
    }
    every = {name for name, _ in imported(tree, "stages.x", top_level_only=False)}
    assert {"stages", "stages.importing"} <= every
