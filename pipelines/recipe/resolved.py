"""A recipe with all its values, where each came from, and the hardware it is for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hw.profile import Hardware
from pipelines import paths
from pipelines.documents import fields, validate
from pipelines.documents.positions import Node
from pipelines.errors import CheckError, Fault, Span, UserError, shown
from pipelines.recipe.recipe import Recipe, flatten


@dataclass(frozen=True)
class Resolved:
    """A recipe with all its values, where each came from, and the hardware it is for."""

    name: str
    path: Path
    recipe: Recipe
    hardware: Hardware
    package: str
    """The folder of its package, which tells what the command line changed."""
    board: str
    """The board's name, or the whole path of its file."""
    origins: Mapping[str, str]
    """Field path → 'base.yaml:7', 'command line' or 'default', for every leaf."""
    given: Mapping[str, str]
    """What the command line said: `recipe`, a name or a path, and the fields that it overrides."""
    _tree: Node = field(repr=False, compare=False)

    def arguments(self, **more: str) -> str:
        """Return what names it in the command that a message advises, with `more` fields."""
        return shlex.join(f"{name}={value}" for name, value in {**self.given, **more}.items())

    def values(self) -> dict[str, Any]:
        """Return every leaf of the recipe as plain data, by the same paths as `origins`."""
        return dict(flatten(self.recipe.model_dump(mode="json")))

    def is_stated(self, location: str) -> bool:
        """Whether a leaf was stated, in a file or on the command line, and is not a default."""
        return self.origins.get(location, "default") != "default"

    def error(self, location: str | validate.Location, sentence: str) -> UserError:
        """Return the error of a field with which only a later step could find fault."""
        return self.errors([(location, sentence)])

    def refusal(self, location: str, sentence: str) -> CheckError:
        """Return the error of a field whose demand something that was examined does not meet."""
        return CheckError.of([self._fault(location, sentence)])

    def errors(self, found: Iterable[tuple[str | validate.Location, str]]) -> UserError:
        """Return the one error of several fields, each with a sentence.

        A tuple is for a path whose parts, such as an input's name, may hold dots.
        """
        return UserError.of(self._fault(location, sentence) for location, sentence in found)

    def _fault(self, location: str | validate.Location, sentence: str) -> Fault:
        if isinstance(location, str):
            return Fault(place_of(self._tree, location), location, sentence)
        return Fault(validate.locate(self._tree, location), fields.text(location), sentence)

    def require_file(self, location: str, path: Path | None) -> Path:
        """Return a file the recipe names, or raise a UserError that points at its field."""
        if path is None:
            raise self.error(location, "is missing: this command needs it")
        if not paths.is_file(path):
            raise self.error(location, no_file(path))
        return path

    def require_data(self, location: str, path: Path) -> Path:
        """Return a file or folder the recipe names, or raise a UserError at its field."""
        return path if paths.is_folder(path) else self.require_file(location, path)


def no_file(path: Path) -> str:
    """Return the sentence on a file that is not there."""
    what = "is a folder" if paths.is_folder(path) else "does not exist"
    return f"the file {shown(path)} {what}; paths are relative to what states them"


def place_of(tree: Node, location: str) -> Span:
    """Return where a field stands, by its path as people write it."""
    exact = dict(tree.leaves()).get(location)
    if exact is not None:
        return exact
    parts = re.findall(r"[^.\[\]]+", location)
    return validate.locate(tree, tuple(int(part) if part.isdigit() else part for part in parts))
