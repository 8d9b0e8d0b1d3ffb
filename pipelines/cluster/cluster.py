"""The cluster as the one who builds sees it: connecting, orders, and what may go wrong with both.

Dask keeps the graph of orders. It carries out equal ones once, and those of a worker that died on
another one. What they gave is in the shared store, so nothing is lost with a cluster.
"""

from __future__ import annotations

import operator
import os
import pkgutil
import threading
import time
from typing import TYPE_CHECKING, Any

from pipelines import exit_status
from pipelines.builds.plan import MEASUREMENTS, Plan, Step
from pipelines.builds.plan_execution import PlanExecution
from pipelines.cluster import membership, orders, outcome
from pipelines.cluster.orders import Order
from pipelines.cluster.outcome import FAILED, KILLED, Outcome
from pipelines.cluster.sender import Sender
from pipelines.errors import UserError

if TYPE_CHECKING:
    from distributed import Future

_GLANCE = 1.0
"""Seconds between looks at whether there are workers."""
_BUILD = (pkgutil.resolve_name, "pipelines.cluster.worker:build")
"""What a worker calls, by its name alone: a scheduler reads all tasks, and needs no bitkiln."""


class Cluster:
    """A cluster whose workers would make the same bytes as this machine. Safe to share by threads.

    Raises UserError for a scheduler that does not answer, for no worker, and for one that differs.
    """

    def __init__(self, scheduler: str) -> None:
        self._scheduler = scheduler
        shared = membership.remote()
        self._client = membership.connected(scheduler)
        membership.wait_for_workers(self._client, scheduler)
        self._alike = membership.check(self._client, scheduler, shared)
        self._sender = Sender(shared)
        self._lock = threading.Lock()
        self._ordered: dict[str, Any] = {}
        """Key of an order → Dask's future of it: it is kept, so that nobody orders it again."""
        self._alone_since: float | None = None

    def order(self, plan: Plan, *, again: bool = False) -> dict[str, Any]:
        """Order all steps of a plan that are not here, and return their futures by name.

        Those whose choices are yet to be measured are left out. Orders that failed are given once
        more if that is asked.
        """
        execution = PlanExecution(plan)
        left_out = unmeasured(plan)
        wanted: dict[str, tuple[Order, set[str]]] = {}
        for step in plan.steps:
            if step.name in left_out:
                continue
            producers = {each.name for _, each in plan.producers(step) if each is not None}
            above = producers & wanted.keys()
            made = orders.order(plan, step, self._alike)
            if above or made.key in self._ordered or execution.find(step) is None:
                wanted[step.name] = made, above
        if wanted:
            self._sender.artifacts(execution)
        futures: dict[str, Any] = {}
        for name, (made, above) in wanted.items():
            futures[name] = self._future(made, [futures[each] for each in sorted(above)], again)
        return futures

    def is_ordered(self, plan: Plan, step: Step) -> bool:
        """Whether a step was ordered before."""
        return orders.order(plan, step, self._alike).key in self._ordered

    def outcome(self, future: Future) -> Outcome:
        """Wait for an order; UserError if the cluster is lost meanwhile."""
        from distributed import KilledWorker

        while True:
            try:
                return outcome.of(future.result(timeout=_GLANCE))
            except TimeoutError:
                self._look_at_workers()
            except KilledWorker as error:
                step = future.key.split("-")[1]
                last = getattr(error.last_worker, "name", "?")
                why = f"{step}: workers died of it again and again, {last} the last; out of memory?"
                return Outcome(step, str(last), KILLED, 0.0, why, exit_status.MISTAKE)
            except Exception as error:
                if _is_cancelled(error):
                    raise UserError(f"{self._scheduler}: was lost; {membership.GOES_ON}") from None
                step = future.key.split("-")[1]
                said = f"{step}: {type(error).__name__}: {error}"
                return Outcome(step, "?", FAILED, 0.0, said, exit_status.FAULT)

    def cancel(self) -> None:
        """Take back what no worker has begun."""
        with self._lock:
            self._client.cancel(list(self._ordered.values()))
            self._ordered.clear()

    def _future(self, made: Order, above: list[Future], again: bool) -> Future:
        with self._lock:
            name = made.key
            if again and name in self._ordered and self._ordered[name].status == "error":
                name += "-again"
            if name not in self._ordered:
                for key, files in made.files.items():
                    self._sender.files(key, files)
                task = (operator.call, _BUILD, made.text, *above)
                (self._ordered[name],) = self._client.get({name: task}, [name], sync=False)
            return self._ordered[name]

    def _look_at_workers(self) -> None:
        """UserError if the cluster has been without workers for long."""
        with self._lock:
            if self._client.scheduler_info(n_workers=-1)["workers"]:
                self._alone_since = None
                return
            now = time.monotonic()
            self._alone_since = self._alone_since or now
            if now - self._alone_since > membership.WITHOUT_WORKERS:
                raise membership.without_workers(self._scheduler)


_joined: dict[tuple[str, int], Cluster] = {}


def of(scheduler: str) -> Cluster:
    """Return the cluster of a scheduler, joined once a process: connections outlive no fork."""
    who = scheduler, os.getpid()
    if who not in _joined:
        _joined[who] = Cluster(scheduler)
    return _joined[who]


def is_ordered(plan: Plan, step: Step, scheduler: str) -> bool:
    """Whether this process has ordered a step."""
    cluster = _joined.get((scheduler, os.getpid()))
    return cluster is not None and cluster.is_ordered(plan, step)


def build(plan: Plan, step: Step, scheduler: str) -> Outcome | None:
    """Have a step built, and order all steps of its plan; None if this one was not to be ordered.

    Raises UserError where the cluster cannot, or where building it here would.
    """
    cluster = of(scheduler)
    try:
        future = cluster.order(plan).get(step.name)
        found = None if future is None else cluster.outcome(future)
    except KeyboardInterrupt:
        cluster.cancel()
        raise
    if found is not None and found.status == exit_status.FAULT:
        raise WorkerFaultError(found.why)
    if found is not None and not found.is_fine:
        raise UserError(found.why)
    return found


class WorkerFaultError(Exception):
    """A fault of bitkiln's on a worker; the message holds the traceback from there."""


def unmeasured(plan: Plan) -> set[str]:
    """Return the steps that wait for trials which are yet to be run here."""
    from pipelines.tuning import finished_trials

    if plan.measured_choices.trials == 0 or finished_trials.is_measured(plan):
        return set()
    found: set[str] = set()
    for step in plan.steps:
        above = {producer.name for _, producer in plan.producers(step) if producer is not None}
        if MEASUREMENTS in step.stage.takes.values() or above & found:
            found.add(step.name)
    return found


def _is_cancelled(error: Exception) -> bool:
    """Whether an error says that an order was taken back: Dask does so when a scheduler is lost."""
    from concurrent.futures import CancelledError

    from distributed.comm import CommClosedError

    return isinstance(error, CancelledError | CommClosedError)
