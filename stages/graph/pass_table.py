"""A stage's passes as a table, and what runs it.

    model = run_passes(PASSES, model)

An observer gets each pass once it has run: its name, how many bindings it rewrote, how long it
took, and the model it gave. `doit show passes=all` prints these, `doit verify passes=all` runs each
model. A stage that nobody observes only makes the models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from stages.kinds import Model


class Runnable(Protocol):
    """A pass on its model: a `Pass`, or what runs as one."""

    rewrites: int
    redefined: set[str]

    def run(self) -> Model:
        """The new model."""


Make = Callable[[Model], Runnable]
"""A class of passes, or `functools.partial` of one with what else it takes."""


@dataclass(frozen=True)
class PassRow:
    """One row of a stage's table."""

    make: Make
    does: str
    """What becomes of the graph, in a line."""
    because: str
    """Why the pass stands at this place, in a line."""

    @property
    def name(self) -> str:
        """The name of the class, which is verb and object."""
        made = self.make.func if isinstance(self.make, partial) else self.make
        return str(getattr(made, "__name__", made))


Passes = tuple[PassRow, ...]


@dataclass(frozen=True)
class Applied:
    """A pass that has run."""

    row: PassRow
    rewrites: int
    """Bindings that did not stay as they were."""
    redefined: frozenset[str]
    """Layers whose value now means something else."""
    seconds: float
    model: Model

    @property
    def name(self) -> str:
        """The name of the pass."""
        return self.row.name


Observer = Callable[[Applied], None]


def run_passes(passes: Sequence[PassRow], model: Model, observe: Observer | None = None) -> Model:
    """What the passes make of a model, one after the other; `observe` gets each of them."""
    for row in passes:
        started = time.monotonic()
        work = row.make(model)
        model = work.run()
        if observe is not None:
            seconds, redefined = time.monotonic() - started, frozenset(work.redefined)
            observe(Applied(row, work.rewrites, redefined, seconds, model))
    return model
