"""Many recipes over a cluster: workers build their stages, and each is then finished here.

Finishing is a `doit build` of its own: it fetches what workers gave, puts the package where a
reader looks for it, and runs that on the golden samples.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import TYPE_CHECKING

from pipelines import exit_status
from pipelines.builds import ci_builds, plan
from pipelines.builds.ci_builds import ERROR, PACKAGING, Built
from pipelines.cluster import cluster
from pipelines.cluster.cluster import Cluster
from pipelines.cluster.outcome import BUILT, KILLED, Outcome
from pipelines.errors import UserError
from pipelines.recipe import load

if TYPE_CHECKING:
    from distributed import Future

_ORDERING = 8
"""Recipes that are looked up in the shared store at a time."""


def build_all(recipes: Sequence[str], jobs: int, scheduler: str) -> Iterator[Built]:
    """Build recipes, all at once on the workers, and finish so many at a time; yield each then.

    Raises UserError where there is no cluster, or where it is lost.
    """
    spread = _Spread(cluster.of(scheduler), jobs)
    with ThreadPoolExecutor(max(1, len(recipes))) as pool:
        waiting = [pool.submit(spread.build, recipe) for recipe in recipes]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            spread.stop()
            pool.shutdown(wait=True, cancel_futures=True)


class _Spread:
    """Recipes under way, each in a thread of its own that mostly waits."""

    def __init__(self, workers: Cluster, jobs: int) -> None:
        self._workers = workers
        self._ordering = threading.Semaphore(_ORDERING)
        self._suspecting = threading.Lock()
        self._finishing = threading.Semaphore(jobs)
        self._is_stopped = False

    def stop(self) -> None:
        """Take back what no worker has begun, and finish no more recipes."""
        self._is_stopped = True
        self._workers.cancel()

    def build(self, recipe: str) -> Built:
        """Have a recipe's stages built, and finish it."""
        board = None
        try:
            resolved = load.load_recipe(recipe)
            board = resolved.recipe.hardware
            steps = plan.of(resolved)
            with self._ordering:
                futures = self._workers.order(steps)
        except UserError as error:
            return ci_builds.failed(recipe, board, exit_status.MISTAKE, 0.0, f"{ERROR}{error}\n")
        outcomes = self._wait(futures)
        if any(each.origin == KILLED for each in outcomes):
            # Dask blames a worker's death on all that waited there. One recipe at a time, it is
            # seen whose fault it was.
            with self._suspecting:
                outcomes = self._wait(self._workers.order(steps, again=True))
        lines = "".join(f"{each.line()}\n" for each in outcomes if each.is_fine)
        seconds = sum(each.seconds for each in outcomes if each.origin == BUILT)
        if wrong := next((each for each in outcomes if not each.is_fine), None):
            said = f"{lines}{ERROR}{wrong.why}\n"
            return ci_builds.failed(recipe, board, wrong.status, seconds + wrong.seconds, said)
        with self._finishing:
            if self._is_stopped:
                return ci_builds.failed(recipe, board, exit_status.MISTAKE, seconds, lines)
            return _with(ci_builds.build(recipe), outcomes, seconds, lines)

    def _wait(self, futures: Mapping[str, Future]) -> list[Outcome]:
        return [self._workers.outcome(future) for future in futures.values()]


def _with(here: Built, outcomes: Sequence[Outcome], seconds: float, lines: str) -> Built:
    """What a build here says, with what workers did for it: its seconds are those of both."""
    made = {each.step for each in outcomes if each.origin == BUILT}
    package = BUILT if here.is_fine and PACKAGING in made else here.package
    output = f"{lines}{here.output}"
    return replace(here, package=package, seconds=here.seconds + seconds, output=output)
