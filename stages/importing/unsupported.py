"""What of a model file cannot be imported: collected over the whole file, reported at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stages.errors import StageError


class UnsupportedError(Exception):
    """Why a node cannot be imported; the sentence continues the node's name ("has pads ...")."""


ONLY_LAST = (
    "it is supported only as the last operator behind others, where it is left to the caller"
)
"""Why a ranking or softmax is refused elsewhere."""
MISFITS = (IndexError, KeyError, ValueError, TypeError, OverflowError)
"""What Python raises of operands that a converter was not made for: too few, of another rank."""


NO_INPUT = "the model has no input; a package computes its outputs from inputs"


@dataclass(frozen=True)
class Unsupported:
    """Nodes of one operator that cannot be imported for one reason."""

    op: str
    why: str
    layers: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.layers[:3]) + (", ..." if len(self.layers) > 3 else "")
        return f"{self.op} ({len(self.layers)}x: {shown}): {self.why}"


class Problems:
    """What was found unsupported so far, nodes of one operator and reason together."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[str]] = {}

    def add(self, op: str, why: str, layer: str) -> None:
        """Note that a node of `op` at `layer` cannot be imported."""
        self._found.setdefault((op, why), []).append(layer)

    def listed(self) -> tuple[Unsupported, ...]:
        """Everything noted, in order of first appearance."""
        return tuple(Unsupported(op, why, tuple(at)) for (op, why), at in self._found.items())


def refusal(problems: Iterable[Unsupported]) -> StageError:
    """One error that lists everything unsupported."""
    listed = "\n".join(f"  {item}" for item in problems)
    return StageError(f"these operators cannot be imported:\n{listed}")


def without_outputs() -> StageError:
    """The error of a file whose graph gives nothing."""
    return StageError(
        "the graph has no outputs, and a package computes at least one",
        hint="declare the tensors you want as its outputs, and save it again",
    )
