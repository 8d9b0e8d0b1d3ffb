"""Cache keys: canonical JSON, digests, the code a stage runs, and the versions of its tools."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from importlib import metadata
from pathlib import Path

from pipelines import work_folder
from pipelines.store import python_sources
from stages.rooms import ROOMS

ROOT = work_folder.CODE
"""First-party modules are found below it."""

FIRST_PARTY = ("stages", "hw")
"""Packages whose code can influence an artifact; pipelines only carries things about."""

BY_NAME = "stages/dialect/operators.py"
"""The file by which operators of all rooms are found by name."""


def canonical(value: object) -> str:
    """Return the one JSON text of plain data: sorted keys, no spaces, no NaN.

    Raises TypeError or ValueError for what JSON cannot hold, or would silently change.
    """
    _check_plain(value, "$")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(data: bytes | str) -> str:
    """Return the SHA-256 of bytes, or of a text as UTF-8, in hex."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, which need not fit memory, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def code_ingredients(
    module: str, root: Path = ROOT, packages: tuple[str, ...] = FIRST_PARTY
) -> dict[str, str]:
    """Return path → digest for each file of the code `module` runs, paths relative to root.

    These are its imports inside `packages`, read from the syntax tree without executing anything,
    comments and docstrings aside. A package under stages/ also contributes its data files
    (runtime sources, and in `shipped/` Python with all its words), since its code reads them, but
    not its pages, which people read.
    """
    files = _closure(module, root, packages)
    found = {str(path.relative_to(root)): python_sources.read(path, root).digest for path in files}
    for folder in {path.parent for path in files if path.name == "__init__.py"}:
        if folder.parent == root / "stages":
            found |= {str(p.relative_to(root)): digest(p.read_bytes()) for p in _data_files(folder)}
    return dict(sorted(found.items()))


@functools.cache
def code_at_start(module: str) -> dict[str, str]:
    """Return `code_ingredients` of a module as they were when this process first asked.

    A stage imports its code once; whoever keeps a result compares again when it is there, so that
    a file edited meanwhile is never taken for the code that ran.
    """
    return code_ingredients(module)


@functools.cache
def installed_version(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def tool_version(distribution: str) -> str:
    """Return the installed version of a distribution, or 'absent'."""
    return installed_version(distribution) or "absent"


def _check_plain(value: object, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: key {key!r} is not a string")
            _check_plain(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_plain(item, f"{where}[{index}]")
    elif value is not None and type(value) not in (str, bool, int, float):
        raise TypeError(f"{where}: {type(value).__name__} has no canonical JSON form")


def _data_files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and (path.suffix not in (".py", ".pyc", ".md") or _is_shipped(path))
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _is_shipped(path: Path) -> bool:
    """Whether a Python file is a text that packages hold: its comments are theirs, too."""
    return path.suffix == ".py" and path.parent.name == "shipped"


def _closure(module: str, root: Path, packages: tuple[str, ...]) -> set[Path]:
    """Return the files of a module and of all it imports, transitively, inside `packages`.

    Who finds operators by name may run those of all shared rooms, imported or not.
    """
    seen: set[Path] = set()
    asked: set[str] = set()
    folders = _Folders(root)
    todo = [module]
    while todo:
        name = todo.pop()
        if name in asked:
            continue
        asked.add(name)
        path = folders.find(name)
        if path is not None and path not in seen:
            seen.add(path)
            todo += _imports(path, root, packages)
            if path == root / BY_NAME:
                todo += _shared_modules(root)
    return seen


def _shared_modules(root: Path) -> list[str]:
    """Return every module of the rooms that stages share, any of which may register operators."""
    files = [path for room in ROOMS for path in (root / "stages" / room).glob("*.py")]
    return [f"stages.{path.parent.name}.{path.stem}" for path in files]


class _Folders:
    """Folders below a root, each listed once: most of what is imported by name is no module."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._listed: dict[str, frozenset[str]] = {}

    def find(self, module: str) -> Path | None:
        """Return the file of a module or package, or None."""
        above, _, last = module.rpartition(".")
        if f"{last}.py" in self._names(above):
            path = self._folder(above) / f"{last}.py"
            if path.is_file():
                return path
        if last in self._names(above) and "__init__.py" in self._names(module):
            path = self._folder(module) / "__init__.py"
            if path.is_file():
                return path
        return None

    def _names(self, package: str) -> frozenset[str]:
        if package not in self._listed:
            names: list[str] = []
            with contextlib.suppress(OSError):
                names = [path.name for path in self._folder(package).iterdir()]
            self._listed[package] = frozenset(names)
        return self._listed[package]

    def _folder(self, package: str) -> Path:
        return self.root.joinpath(*package.split("."))


def _imports(path: Path, root: Path, packages: tuple[str, ...]) -> list[str]:
    """Return the first-party modules a file may import; some may turn out to be attributes."""
    package = path.relative_to(root).parent.parts
    names: list[str] = [".".join(package)] if len(package) > 1 else []
    for base, level, attributes in python_sources.read(path, root).imports:
        above = package[: len(package) - level + 1] if level else ()
        full = ".".join((*above, base) if base else above)
        names += [full, *(f"{full}.{name}" for name in attributes)]
    return [
        parent for name in names if name.split(".")[0] in packages for parent in _with_parents(name)
    ]


def _with_parents(module: str) -> list[str]:
    """Return a module and the packages above it, without the outermost.

    stages/__init__.py lists all stages: a change to one row must not touch the others' keys.
    """
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(2, len(parts) + 1)]
