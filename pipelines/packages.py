"""The published package of a recipe, opened to be run in whatever way this machine can."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hw import host
from pipelines.errors import UserError
from pipelines.execute import STORE
from pipelines.plan import Plan
from pipelines.runners import Package, choose

Array = np.ndarray[Any, Any]


class UnavailableError(UserError):
    """This machine cannot run the package: another processor, or something is not installed."""


@dataclass(frozen=True)
class Opened:
    """A package ready to run; `how` says in which way."""

    package: Package
    how: str
    run: Callable[[Mapping[str, Array]], dict[str, Array]]


def folder(plan: Plan) -> Path:
    """Return where the package of a recipe is published."""
    return STORE.root / "packages" / plan.recipe


@contextlib.contextmanager
def opened(plan: Plan, *, threads: int = 1) -> Iterator[Opened]:
    """Give the package of a recipe, or raise UnavailableError."""
    with contextlib.ExitStack() as stack:
        try:
            runner = stack.enter_context(choose(folder(plan), host.detect()))
        except (UserError, ValueError) as error:
            raise UnavailableError(str(error)) from error
        yield Opened(runner.package, runner.how, lambda inputs: runner.run(inputs, threads=threads))
