"""The cluster as the one who builds sees it: connecting, orders, and what may go wrong with both.

Dask keeps the graph of orders. It carries out equal ones once, and those of a worker that died on
another one. What they gave is in the shared store, so nothing is lost with a cluster.
"""

from __future__ import annotations

import functools
import logging
import operator
import os
import pkgutil
import secrets
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pipelines import execute, exit_status
from pipelines.caching.backend import UnreachableError
from pipelines.caching.entry import LONGEST, BadEntryError, checked, opened
from pipelines.caching.remote import entry_path
from pipelines.errors import UserError, cut, printable
from pipelines.execute import Workshop
from pipelines.manifest import Manifest, render
from pipelines.plan import MEASURING, Plan, Step
from pipelines.spreading import likeness, orders, outcome, worker
from pipelines.spreading.orders import Order
from pipelines.spreading.outcome import Outcome

if TYPE_CHECKING:
    from pipelines.caching.remote import Remote

SECONDS = 8.0
"""That a scheduler may take for an answer."""
WITHOUT_WORKERS = 30.0
"""Seconds that a cluster may be without any worker."""
_GLANCE = 1.0
"""Seconds between looks at whether there are workers."""
INSTALL = "pip install -e '.[cluster]'"
_BUILD = (pkgutil.resolve_name, "pipelines.spreading.worker:build")
"""What a worker calls, by its name alone: a scheduler reads all tasks, and needs no bitkiln."""
_GOES_ON = "what was built is in the shared store, and the same command goes on there"


class Cluster:
    """A cluster whose workers would make the same bytes as this machine. Safe to share by threads.

    Raises UserError for a scheduler that does not answer, for no worker, and for one that differs.
    """

    def __init__(self, scheduler: str) -> None:
        self._scheduler = scheduler
        self._remote = _remote()
        self._client = _connected(scheduler)
        self._wait_for_workers()
        self._alike = self._checked()
        self._lock = threading.Lock()
        self._ordered: dict[str, Any] = {}
        """Key of an order → Dask's future of it: it is kept, so that nobody orders it again."""
        self._offered: set[str] = set()
        self._alone_since: float | None = None

    def order(self, plan: Plan) -> dict[str, Any]:
        """Order all steps of a plan that are not here, and return their futures by name.

        Those whose choices are yet to be measured are left out.
        """
        workshop = Workshop(plan)
        futures: dict[str, Any] = {}
        left_out = _unmeasured(plan)
        for step in plan.steps:
            if step.name in left_out:
                continue
            producers = [producer for _, producer in plan.producers(step) if producer is not None]
            above = [futures[each.name] for each in producers if each.name in futures]
            made = orders.order(plan, step, self._alike)
            if above or made.key in self._ordered or workshop.find(step) is None:
                futures[step.name] = self._future(made, above)
        if futures:
            self._offer(workshop)
        return futures

    def outcome(self, future: Any) -> Outcome:
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
                return Outcome(step, str(last), "failed", 0.0, why, exit_status.MISTAKE)
            except Exception as error:
                if _is_cancelled(error):
                    raise UserError(f"{self._scheduler}: was lost; {_GOES_ON}") from None
                step = future.key.split("-")[1]
                said = f"{step}: {type(error).__name__}: {error}"
                return Outcome(step, "?", "failed", 0.0, said, exit_status.FAULT)

    def cancel(self) -> None:
        """Take back what no worker has begun."""
        with self._lock:
            self._client.cancel(list(self._ordered.values()))
            self._ordered.clear()

    def _future(self, made: Order, above: list[Any]) -> Any:
        with self._lock:
            if made.key not in self._ordered:
                for key, files in made.files.items():
                    self._send(key, files)
                task = (operator.call, _BUILD, made.text, *above)
                (future,) = self._client.get({made.key: task}, [made.key], sync=False)
                self._ordered[made.key] = future
            return self._ordered[made.key]

    def _send(self, key: str, files: Any) -> None:
        """Put files that a recipe names into the shared store, unless they are there."""
        if key in self._offered:
            return
        where = entry_path(orders.ORIGINALS, key)
        with _reached(self._remote):
            if self._remote.backend.size(where) is None:
                data = {name: path.read_bytes() for name, path in files.items()}
                execute.keep_table(orders.ORIGINALS, key, data, {})
                self._check_names(key)
                if self._remote.backend.size(where) is None:
                    raise UserError(
                        f"the files that the recipe names ({', '.join(list(files)[:3])}) travel to "
                        f"workers by {self._remote.settings.shown}, which is not written from "
                        "here; the cache file needs `sign: FILE`, and no http"
                    )
        self._offered.add(key)

    def _check_names(self, key: str) -> None:
        manifest = execute.STORE.manifest(orders.ORIGINALS, key)
        try:
            assert manifest is not None, "it was just kept"
            checked(render(manifest).encode())
        except BadEntryError as error:
            raise UserError(f"the files that the recipe names cannot be sent: {error}") from None

    def _offer(self, workshop: Workshop) -> None:
        """Share what is here of a recipe, so that workers need not build it."""
        for step in workshop.plan.steps:
            if workshop.is_current(step) and (manifest := workshop.current(step)) is not None:
                self._share(manifest)

    def _share(self, manifest: Manifest) -> None:
        where = entry_path(manifest.stage, manifest.key)
        if where not in self._offered and self._remote.settings.writes:
            self._offered.add(where)
            with _reached(self._remote):
                if self._remote.backend.size(where) is None:
                    self._remote.offer(execute.STORE, [manifest])

    def _wait_for_workers(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=WITHOUT_WORKERS)
        except TimeoutError:
            raise self._without_workers() from None

    def _look_at_workers(self) -> None:
        """UserError if the cluster has been without workers for long."""
        with self._lock:
            if self._client.scheduler_info(n_workers=-1)["workers"]:
                self._alone_since = None
                return
            now = time.monotonic()
            self._alone_since = self._alone_since or now
            if now - self._alone_since > WITHOUT_WORKERS:
                raise self._without_workers()

    def _without_workers(self) -> UserError:
        return UserError(
            f"{self._scheduler}: has had no worker for {WITHOUT_WORKERS:g} s; start some with "
            f"`dask worker {self._scheduler} --nthreads 1`; {_GOES_ON}"
        )

    def _checked(self) -> str:
        """Return the digest of what decides bytes here; UserError names each worker that differs,
        or whose results would not arrive here."""
        asked = secrets.token_hex(16)
        found = self._client.run(worker.describe, asked, on_error="return")
        faults = [_fault(address, said, asked, self._remote) for address, said in found.items()]
        self._client.run(worker.forget, asked, on_error="ignore")
        if any(faults):
            lines = (f"  {fault}" for fault in sorted(filter(None, faults)))
            raise UserError("\n".join([f"{self._scheduler}: not all workers can build", *lines]))
        return likeness.digest(likeness.at_start())


@functools.cache
def of(scheduler: str, process: int) -> Cluster:
    """Return the cluster of a scheduler, connected once a process: connections outlive no fork."""
    assert process == os.getpid()
    return Cluster(scheduler)


def build(plan: Plan, step: Step, scheduler: str) -> Outcome | None:
    """Have a step built, and order all below it; None if nothing need be built.

    Raises UserError where the cluster cannot, and what building it here would raise.
    """
    if Workshop(plan).find(step) is not None:
        return None
    cluster = of(scheduler, os.getpid())
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


def _fault(address: str, said: Any, asked: str, remote: Remote) -> str:
    """Return what keeps a worker from building for this machine, nothing if it can."""
    if not isinstance(said, dict):
        return f"{address}: {type(said).__name__}: {cut(printable(str(said)))}; is bitkiln there?"
    name = said["worker"] if said["worker"] == address else f"{said['worker']} at {address}"
    if different := likeness.differences(likeness.at_start(), said["likeness"]):
        return f"{name}: differs in {different}; it needs the same bitkiln and tools"
    if said["wrong"]:
        return f"{name}: {said['wrong']}"
    key = worker.probe_key(asked, said["worker"])
    try:
        data = remote.backend.read(entry_path(worker.PROBE, key), LONGEST)
        if data is None:
            return (
                f"{name}: what it writes is not in {remote.settings.shown}: is its store another?"
            )
        opened(data, worker.PROBE, key, remote.trusted)
    except BadEntryError as error:
        return f"{name}: an entry that it wrote cannot be used: {error}"
    except UnreachableError as error:
        return f"{name}: {remote.settings.shown} cannot be reached from here: {error}"
    return ""


def _remote() -> Remote:
    """Return the shared store, without which results could not meet."""
    remote = execute.shared()
    if remote is None:
        raise UserError(
            "executor=dask needs a store that this machine and all workers share, for results to "
            "meet there: BITKILN_CACHE=FILE, or cache.yaml, with `remote:` and `trust:`; workers "
            "also need `sign:`"
        )
    return remote


def _connected(scheduler: str) -> Any:
    """Return a client of Dask's; UserError if that is not installed, or no scheduler answers."""
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise UserError(
            f"executor=dask needs '{error.name}', which is not installed; run: {INSTALL}"
        ) from None
    # Whatever happens to a cluster is said in sentences of ours.
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    host, _, port = scheduler.partition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS).close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions that differ where nothing depends on them
            return distributed.Client(scheduler, timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UserError(
            f"{scheduler}: no scheduler answers ({cut(printable(said))}); start one with "
            f"`dask scheduler --port {port}`"
        ) from None


def _unmeasured(plan: Plan) -> set[str]:
    """Return the steps that wait for trials which are yet to be run here."""
    from pipelines import actions

    if plan.snapshot.trials == 0 or actions.is_measured(plan):
        return set()
    found: set[str] = set()
    for step in plan.steps:
        above = {producer.name for _, producer in plan.producers(step) if producer is not None}
        if MEASURING in step.stage.takes.values() or above & found:
            found.add(step.name)
    return found


def _is_cancelled(error: Exception) -> bool:
    """Whether an error says that an order was taken back: Dask does so when a scheduler is lost."""
    from concurrent.futures import CancelledError

    from distributed.comm import CommClosedError

    return isinstance(error, CancelledError | CommClosedError) or "cancel" in str(error).lower()


@contextmanager
def _reached(remote: Remote) -> Iterator[None]:
    try:
        yield
    except UnreachableError as error:
        raise UserError(f"{remote.settings.shown}: cannot be reached: {error}") from None
