"""What of a model file cannot be imported: collected over the whole file, reported at once.

The sentences that every format needs stand here, so that one fault has one sentence whatever file
it is in. They continue the operator's name: "Conv (1x: first): has pads ...".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stages.errors import StageError


class UnsupportedError(Exception):
    """Why a node cannot be imported; the sentence continues the node's name ("has pads ...")."""


NO_CONVERTER = "there is no converter for it"
CONTROL_FLOW = "control flow is not supported; export the model for inference"
ONLY_LAST = (
    "it is supported only as the last operator behind others, where it is left to the caller"
)
"""Why a ranking or softmax is refused elsewhere."""
MISFIT = "has operands or attributes of the wrong number, shape or kind"
MISFITS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What Python, NumPy and TVM raise of operands and attributes that nobody would write."""
CONSTANT_OUTPUT = "is a constant; no input reaches it"
MISSING_OUTPUT = "is given by no operator"
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

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, op: str, why: str, layer: str) -> None:
        """Note that a node of `op` at `layer` cannot be imported."""
        self._found.setdefault((op, why), []).append(layer)

    @contextmanager
    def noted(self, op: str, layer: str) -> Iterator[None]:
        """Note an UnsupportedError raised inside as one of this operator at this layer."""
        try:
            yield
        except UnsupportedError as error:
            self.add(op, str(error), layer)

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
