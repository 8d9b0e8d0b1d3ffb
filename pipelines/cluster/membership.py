"""Joining a cluster: its scheduler answers, and every worker would make the same bytes as here.

Each worker says what code and tools it has, and writes a probe into the shared store, which must
arrive here: what it builds then does, too.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pipelines.builds import plan_execution
from pipelines.caching.entry import LONGEST, BadEntryError, opened
from pipelines.caching.remote import entry_path
from pipelines.caching.remote_files import UnreachableError
from pipelines.cluster import build_environment, worker
from pipelines.errors import UserError, cut, printable

if TYPE_CHECKING:
    from distributed import Client

    from pipelines.caching.remote import Remote

T = TypeVar("T")
SECONDS = 8.0
"""That a scheduler may take for an answer."""
WITHOUT_WORKERS = 30.0
"""Seconds that a cluster may be without any worker."""
FOR_ALL = 120.0
"""Seconds in which all workers must have said what they are."""
INSTALL = "pip install -e '.[cluster]'"
GOES_ON = "what was built is in the shared store, and the same command goes on there"


def remote() -> Remote:
    """Return the shared store, without which results could not meet."""
    found = plan_execution.shared()
    if found is None:
        raise UserError(
            "executor=dask needs a store that this machine and all workers share, for results to "
            "meet there: BITKILN_CACHE=FILE, or cache.yaml, with `remote:` and `trust:`; workers "
            "also need `sign:`"
        )
    return found


def connected(scheduler: str) -> Any:
    """Return a client of Dask's; UserError if that is not installed, or no scheduler answers."""
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise UserError(
            f"executor=dask needs '{error.name}', which is not installed; run: {INSTALL}"
        ) from None
    # Whatever happens to a cluster is said in sentences of ours.
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    security = distributed.Security()
    if scheduler.startswith("tls:") and security.tls_ca_file is None:
        raise UserError(
            f"{scheduler}: needs certificates, which Dask's configuration names: "
            "distributed.comm.tls.ca-file, and cert and key of tls.client"
        )
    host, _, port = scheduler.partition("://")[2].rpartition(":")

    def connect() -> Any:
        # That of another protocol may accept, and never say a word.
        socket.create_connection((host.strip("[]"), int(port)), SECONDS).close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions that differ where nothing depends on them
            return distributed.Client(
                scheduler, timeout=SECONDS, set_as_default=False, security=security
            )

    try:
        return _within(SECONDS + 1, connect)
    except Exception as error:  # Dask has many for what is no scheduler
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UserError(
            f"{scheduler}: no scheduler answers ({cut(printable(said))}); start one with "
            f"`dask scheduler --port {port}`"
        ) from None


def _within(seconds: float, action: Callable[[], T]) -> T:
    """Return what an action returns; TimeoutError if that takes longer. Dask has no limits of time
    where one that hangs would keep all waiting."""
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(action())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"nothing in {seconds:g} s")
    return results[0]


def wait_for_workers(client: Client, scheduler: str) -> None:
    """Wait for a first worker; UserError if none comes."""
    try:
        client.wait_for_workers(1, timeout=WITHOUT_WORKERS)
    except TimeoutError:
        raise without_workers(scheduler) from None


def without_workers(scheduler: str) -> UserError:
    """Return the error of a cluster that nobody works for."""
    return UserError(
        f"{scheduler}: has had no worker for {WITHOUT_WORKERS:g} s; start some with "
        f"`dask worker {scheduler} --nthreads 1`; {GOES_ON}"
    )


def check(client: Client, scheduler: str, shared: Remote) -> str:
    """Return the digest of what decides bytes here; UserError names each worker that differs, or
    whose results would not arrive here."""
    asked = secrets.token_hex(16)
    found = _run(client, scheduler, worker.describe, asked)
    faults = [fault(address, said, asked, shared) for address, said in found.items()]
    _run(client, scheduler, worker.forget, asked)
    if any(faults):
        lines = (f"  {fault}" for fault in sorted(filter(None, faults)))
        raise UserError("\n".join([f"{scheduler}: not all workers can build", *lines]))
    return build_environment.digest(build_environment.at_start())


def _run(
    client: Client, scheduler: str, function: Callable[..., object], asked: str
) -> dict[str, Any]:
    """Call a function on every worker; return what each gave or raised, by its address."""
    try:
        found: dict[str, Any] = _within(
            FOR_ALL, lambda: client.run(function, asked, on_error="return")
        )
    except TimeoutError:
        raise UserError(
            f"{scheduler}: not all workers said within {FOR_ALL:g} s what they are; look for one "
            "that hangs"
        ) from None
    return found


def fault(address: str, said: object, asked: str, shared: Remote) -> str:
    """Return what keeps a worker from building for this machine, nothing if it can."""
    if not isinstance(said, dict):
        return f"{address}: {type(said).__name__}: {cut(printable(str(said)))}; is bitkiln there?"
    name = said["worker"] if said["worker"] == address else f"{said['worker']} at {address}"
    if different := build_environment.differences(build_environment.at_start(), said["likeness"]):
        return f"{name}: differs in {different}; it needs the same bitkiln and tools"
    if said["wrong"]:
        return f"{name}: {said['wrong']}"
    key = worker.probe_key(asked, said["worker"])
    try:
        data = shared.backend.read(entry_path(worker.PROBE, key), LONGEST)
        if data is None:
            return (
                f"{name}: what it writes is not in {shared.settings.shown}: is its store another?"
            )
        opened(data, worker.PROBE, key, shared.trusted)
    except BadEntryError as error:
        return f"{name}: an entry that it wrote cannot be used: {error}"
    except UnreachableError as error:
        return f"{name}: {shared.settings.shown} cannot be reached from here: {error}"
    return ""
