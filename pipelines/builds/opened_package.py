"""The published package of a recipe, opened to be run in whatever way this machine can."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hw import host
from pipelines.builds.plan import Plan
from pipelines.builds.publication import package_folder_of
from pipelines.errors import UserError
from pipelines.machine import is_here
from pipelines.remote.transport import Transport
from pipelines.runners import Package, choose, open_package, replay
from pipelines.runners.replay import Replay

Array = np.ndarray[Any, Any]


class UnavailableError(UserError):
    """This machine cannot run the package: another processor, or something is not installed."""


@dataclass(frozen=True)
class Opened:
    """A package ready to run; `how` says in which way."""

    package: Package
    how: str
    run: Callable[[Mapping[str, Array], int], dict[str, Array]]
    """Inputs by name and the number of threads → outputs by name."""


def is_native(plan: Plan) -> bool:
    """Whether the package is for this machine's kind of processor."""
    try:
        return is_here(open_package(package_folder_of(plan)).architecture)
    except ValueError:
        return False


def threads(plan: Plan, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of threads, of those wanted, that the library can run with here."""
    return counts if is_native(plan) else (1,)  # the emulator has one


@contextlib.contextmanager
def opened(plan: Plan, board: Transport | None = None) -> Iterator[Opened]:
    """Give the package of a recipe, here or on a board.

    UnavailableError if this machine cannot run it; UserError if the board cannot.
    """
    if board is not None:
        from pipelines.remote.remote_package import RemoteRunner

        with RemoteRunner(board, open_package(package_folder_of(plan))) as remote:
            yield Opened(remote.package, remote.how, remote.run)
        return
    with contextlib.ExitStack() as stack:
        try:
            runner = stack.enter_context(choose(package_folder_of(plan), host.detect()))
        except (UserError, ValueError) as error:
            raise UnavailableError(str(error)) from error
        yield Opened(runner.package, runner.how, runner.run)


def replays(plan: Plan, threads: int, board: Transport | None = None) -> tuple[Replay, str]:
    """Run the package's own program on its golden vectors; return what it said, and how it ran.

    Raises UnavailableError if there is no program or this machine cannot run it; UserError if the
    board cannot.
    """
    if board is not None:
        from pipelines.remote.remote_package import replay as replay_on

        said = replay_on(board, open_package(package_folder_of(plan)), threads)
        return said, f"on {board.board.name}"
    try:
        package = open_package(package_folder_of(plan))
        if package.architecture == host.detect().architecture:
            return replay.replay(package, threads), "natively"
        return replay.qemu_replay(package, threads), "under qemu"
    except (UserError, ValueError) as error:
        raise UnavailableError(str(error)) from error
