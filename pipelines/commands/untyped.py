"""Parameters whose annotation says `Any`, counted a room: types that check nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOUSE = ("pipelines", "stages", "hw")
LIMIT = 0.10
"""The share of parameters that may say `Any`, a room."""


@dataclass(frozen=True)
class Untyped:
    """A room, how many parameters its functions have, and how many of these say `Any`."""

    room: str
    parameters: int
    untyped: int

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return self.untyped / self.parameters if self.parameters else 0.0


def untyped_rooms(root: Path) -> list[Untyped]:
    """A row for each folder right below `pipelines/`, `stages/` and `hw/`, and for the files that
    lie in these three themselves; the folders' own folders count with them."""
    counts: dict[str, tuple[int, int]] = {}
    for top in HOUSE:
        for path in sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root).parts
            room = "/".join(parts[:2]) if len(parts) > 2 else top
            found = [_says_any(each) for each in _parameters(ast.parse(path.read_text("utf-8")))]
            parameters, untyped = counts.get(room, (0, 0))
            counts[room] = parameters + len(found), untyped + sum(found)
    return [Untyped(room, *counts[room]) for room in sorted(counts)]


def _parameters(tree: ast.AST) -> Iterator[ast.arg]:
    """Parameters of all functions in a file, `self` and `cls` aside."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            every = node.args
            named = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
            yield from (each for each in named if each and each.arg not in ("self", "cls"))


def _says_any(parameter: ast.arg) -> bool:
    annotation = parameter.annotation
    names = ast.walk(annotation) if annotation else ()
    return any(isinstance(node, ast.Name) and node.id == "Any" for node in names)
