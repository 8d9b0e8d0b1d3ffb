"""What runs on a worker: it says what it is, and builds a step into the shared store.

Dask calls these by name, so a worker runs its own bitkiln, which must be as the sender's; it is
given texts of plain data. A worker's store is the work folder that it was started in.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pipelines import exit_status
from pipelines.builds import plan_execution
from pipelines.caching.remote_files import UnreachableError
from pipelines.cluster import build_environment, orders
from pipelines.cluster.outcome import FAILED, Outcome
from pipelines.errors import UserError, of_disk
from pipelines.store import keys
from pipelines.store.manifest import Manifest, output_digest
from pipelines.store.store import Store
from stages.errors import StageError

if TYPE_CHECKING:
    from pipelines.caching.remote import Remote

PROBE = "probing"
"""An entry that a worker writes so that the one who asked finds it, and removes again."""
NO_STORE = "has no shared store: name its cache file by BITKILN_CACHE, or call it cache.yaml"
NOT_WRITTEN = "does not write to its shared store: its cache file needs `sign: FILE`, and no http"
STALE = "was started before its code changed: start it again"
_one_at_a_time = threading.Lock()
"""Stages are not made to run beside each other in one process."""


class WorkerRefusedError(Exception):
    """This worker would not build what was asked for."""


class DaskWorker(Protocol):
    """What we read of Dask's own object of a worker."""

    name: object


def describe(asked: str, dask_worker: DaskWorker) -> dict[str, Any]:
    """Say what decides bytes here, and what is wrong; write the probe of a number.

    `wrong` is empty where the worker can build for those who find the probe. Dask hands its own
    object of the worker in.
    """
    name = str(dask_worker.name)
    try:
        wrong = (
            STALE
            if build_environment.now() != build_environment.at_start()
            else _probed(asked, name)
        )
    except UserError as error:
        wrong = str(error)
    return {"worker": name, "likeness": build_environment.at_start(), "wrong": wrong}


def forget(asked: str, dask_worker: DaskWorker) -> None:
    """Remove the probe of a number."""
    from pipelines.caching.remote import entry_path

    if (remote := plan_execution.shared()) is not None:
        try:
            remote.backend.remove(entry_path(PROBE, probe_key(asked, str(dask_worker.name))))
        except (UnreachableError, OSError):
            return  # gc removes it some day


def probe_key(asked: str, worker: str) -> str:
    """Return the key of the probe that a worker writes for a number."""
    return keys.digest(f"{asked} {worker}")


def build(text: str, *above: Mapping[str, object]) -> dict[str, object]:
    """Build the step of an order into the shared store; `above` is what came of steps above it."""
    failed = next((each for each in above if each["status"] != exit_status.DONE), None)
    if failed is not None:
        return dict(failed)
    with _one_at_a_time:
        return _built(text).to_plain()


def _built(text: str) -> Outcome:
    started = time.monotonic()
    name = "an order"
    status = exit_status.MISTAKE
    try:
        name, environment = orders.step_and_digest_of(text)
        _refuse_other_environment(environment)
        remote = _writable()
        plan, step = orders.plan_of(text)
        manifest, origin = plan_execution.PlanExecution(plan).produce(step)
        _share(remote, plan_execution.STORE, manifest)
        return Outcome(name, _name(), origin, _since(started))
    except StageError as error:
        why = f"{name}: {error}"
    except (UserError, WorkerRefusedError) as error:
        why = f"{name}: worker {_name()}: {error}"
    except Exception as error:
        said = of_disk(error) if isinstance(error, OSError) else None
        if said is None:
            said = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            status = exit_status.FAULT
        why = f"{name}: worker {_name()}: {said}"
    return Outcome(name, _name(), FAILED, _since(started), why, status)


def _refuse_other_environment(environment: str) -> None:
    """Raise WorkerRefusedError where this worker has other code or tools than those of an order."""
    here = build_environment.now()
    if here != build_environment.at_start():
        raise WorkerRefusedError(STALE)
    if build_environment.digest(here) != environment:
        raise WorkerRefusedError(
            "joined later, and has other code or tools; the next command says which"
        )


def _writable() -> Remote:
    """Return the shared store, or raise WorkerRefusedError."""
    remote = plan_execution.shared()
    if remote is None:
        raise WorkerRefusedError(NO_STORE)
    if not remote.settings.writes:
        raise WorkerRefusedError(NOT_WRITTEN)
    # A build leaves a remote alone for the rest of its run: for a worker that is one order.
    remote.is_down = False
    return remote


def _share(remote: Remote, store: Store, manifest: Manifest) -> None:
    """See to it that an artifact is in the shared store; WorkerRefusedError if it cannot be."""
    from pipelines.caching.remote import entry_path

    try:
        where = entry_path(manifest.stage, manifest.key)
        if remote.backend.size(where) is None:
            remote.share(store, [manifest])
            if remote.backend.size(where) is None:
                raise WorkerRefusedError(
                    f"cannot write to {remote.settings.shown}; its own output says why"
                )
    except UnreachableError as error:
        raise WorkerRefusedError(f"cannot reach {remote.settings.shown}: {error}") from error


def _probed(asked: str, name: str) -> str:
    """Write a probe; return why that cannot be, or nothing."""
    key = probe_key(asked, name)
    manifest = Manifest(PROBE, key, "table", output_digest("table", (), ()), {}, (), ())
    try:
        _share(_writable(), plan_execution.STORE, manifest)
    except WorkerRefusedError as error:
        return str(error)
    return ""


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)


def _name() -> str:
    from distributed import get_worker

    return str(get_worker().name)
