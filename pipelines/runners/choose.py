"""Chooses how a package can run on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np

from hw.profile import Hardware
from pipelines.runners.emulated import EmulatedRunner
from pipelines.runners.native import NativeRunner
from pipelines.runners.package import Package, open_package


class Runner(Protocol):
    """Something that runs a package's library."""

    package: Package
    how: str
    """How it runs, as an adverb: natively, emulated."""

    def run(self, inputs: Mapping[str, np.ndarray], threads: int = 1) -> dict[str, np.ndarray]:
        """Run one inference; inputs and outputs by name, in the package's shapes and dtypes."""

    def close(self) -> None:
        """End what was started."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def choose(folder: Path, machine: Hardware) -> Runner:
    """Return a runner for the package in `folder` on this machine: native if it can be."""
    package = open_package(folder)
    if package.architecture == machine.architecture:
        return NativeRunner(package)
    return EmulatedRunner(package)
