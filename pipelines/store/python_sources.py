"""Python files as keys see them: a digest without comments or docstrings, and what they import.

Parsing every first-party file takes most of a second, so what was found is kept beside the store,
under all that changes when a file is written. Losing that file costs nothing but the second.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import hashlib
import json
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines import work_folder
from pipelines.store import atomic

FORMAT = 3
_NAME = "artifacts/.code.json"

_MODULE = re.compile(r"(stages|hw)(\.\w+)+")

Import = tuple[str, int, tuple[str, ...]]
"""Module as written, level of a relative import, names taken from it."""


@dataclass(frozen=True)
class Source:
    """What a key takes from one file."""

    digest: str
    imports: tuple[Import, ...]


def read(path: Path, root: Path) -> Source:
    """Return what a key takes from a Python file below `root`."""
    stat = path.stat()
    mark = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    known = _known(root)
    name = path.relative_to(root).as_posix()
    with contextlib.suppress(KeyError, TypeError, ValueError):
        entry = known[name]
        if entry["mark"] == mark:
            imports = tuple((base, level, tuple(names)) for base, level, names in entry["imports"])
            return Source(str(entry["digest"]), imports)
    source = parse(path.read_bytes())
    known[name] = {"mark": mark, "digest": source.digest, "imports": source.imports}
    _keep_at_exit(root)
    return source


def parse(text: bytes) -> Source:
    """Return what a key takes from a Python text."""
    tree = ast.parse(text)
    imports: list[Import] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(alias.name, 0, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            imports.append((node.module or "", node.level, names))
        elif _is_module_name(node):
            imports.append((node.value, 0, ()))  # type: ignore[attr-defined]
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [item for item in body if not _is_text(item)]  # type: ignore[attr-defined]
    return Source(hashlib.sha256(ast.dump(tree).encode()).hexdigest(), tuple(imports))


def _is_module_name(node: ast.AST) -> bool:
    """Whether a node is the name of a first-party module as text, as importlib is given it."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_text and _MODULE.fullmatch(node.value) is not None  # type: ignore[attr-defined]


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is a bare string: a docstring, or one beside a field."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@functools.cache
def _known(root: Path) -> dict[str, Any]:
    """Return what an earlier run found in files, if this Python writes syntax trees alike."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        tree = json.loads(_kept(root).read_bytes())
        files = dict(tree["files"])
        if tree["written"] == _written(files):
            return files
    return {}


def _kept(root: Path) -> Path:
    """Return the file that keeps what was found; the code's own folder is only read."""
    return (work_folder.WORK if root == work_folder.CODE else root) / _NAME


def _written(files: dict[str, Any]) -> list[Any]:
    """Return what tells that files are as they were written, and by whom."""
    text = json.dumps(files, sort_keys=True)
    return [FORMAT, platform.python_version(), hashlib.sha256(text.encode()).hexdigest()]


@functools.cache
def _keep_at_exit(root: Path) -> None:
    atexit.register(_keep, root)


def _keep(root: Path) -> None:
    if not _kept(root).parent.is_dir():
        return
    files = _known(root)
    tree = {"written": _written(files), "files": files}
    with contextlib.suppress(OSError):  # a lost second is not worth an error
        atomic.replace(_kept(root), json.dumps(tree).encode())
