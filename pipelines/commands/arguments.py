"""What commands read from the variables of the command line."""

from __future__ import annotations

from pathlib import Path

from pipelines.errors import UserError
from pipelines.paths import expanded
from pipelines.recipe.overrides import Variables


def threads(variables: Variables) -> int | None:
    """Return threads=N, or None."""
    return _count(variables, "threads", 256)


def samples(variables: Variables) -> int | None:
    """Return samples=N, or None for all."""
    return _count(variables, "samples", 10**9)


def repeat(variables: Variables) -> int | None:
    """Return repeat=N, or None."""
    return _count(variables, "repeat", 100_000)


def jobs(variables: Variables) -> int | None:
    """Return jobs=N, or None."""
    return _count(variables, "jobs", 256)


def required_path(variables: Variables, name: str, example: str) -> Path:
    """Return the path of a variable that the command cannot do without."""
    text = variables.command.get(name)
    if not text:
        raise UserError(f"{name}= is missing; for example: {example}")
    return expanded(text)


def _count(variables: Variables, name: str, most: int) -> int | None:
    text = variables.command.get(name)
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise UserError(f"{name}={text}: not a whole number from 1 to {most}")
    return int(text)
