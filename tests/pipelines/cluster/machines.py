"""A cluster on loopback: processes of Dask, each worker with a clone of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.pipelines.caching.stores import new_key, share
from tests.pipelines.fake_clone import Clone


class Machines:
    """A scheduler and workers, each a process with a clone of its own, on loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key, self.public = new_key(folder)
        self.cache = f"remote: file://{folder / 'remote'}\nsign: {self.key}\n"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.words = ("executor=dask", f"scheduler={self.address}")
        self.workers: dict[str, Clone] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        where = ("--host", "127.0.0.1", "--port", str(self.port))
        self._start("scheduler", folder, {}, "scheduler", *where)

    def clone(self, name: str) -> Clone:
        """A clone that shares the store."""
        made = Clone(self.folder / name)
        share(made, self.cache)
        return made

    def has(self, names: Iterable[str]) -> bool:
        """Whether workers have joined."""
        return all("Registered to" in (self.folder / f"{n}.err").read_text() for n in names)

    def join(self, name: str, clone: Clone, cache: str = "") -> Clone:
        """Start a worker in a clone."""
        self.workers[name] = clone
        given = {**clone.environment, "FAKE_LOG": str(clone.log), "PYTHONPATH": str(clone.root)}
        if cache:
            given["BITKILN_CACHE"] = str(clone.write(f"{name}.yaml", cache))
        flags = ("--nthreads", "1", "--no-nanny", "--name", name, "--host", "127.0.0.1")
        self._start(name, clone.root, given, "worker", self.address, *flags)
        return clone

    def _start(self, name: str, folder: Path, given: dict[str, str], *words: str) -> None:
        self.processes[name] = subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"distributed.cli.dask_{words[0]}",
                *words[1:],
                "--no-dashboard",
            ],
            cwd=folder,
            env={**os.environ, "DASK_CONFIG": str(self.folder / "config"), **given},
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / f"{name}.err").open("wb"),
        )

    def end(self, name: str) -> Clone | None:
        """Kill a process at once; return the clone it ran in."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes.pop(name).wait(20)
        return self.workers.pop(name, None)

    def runs(self) -> Counter[str]:
        """How often each stage ran on any worker that there has been."""
        logs = self.folder.glob("w*/log.txt")
        return Counter(word for log in logs for word in log.read_text().split())


@contextmanager
def started(folder: Path) -> Iterator[Machines]:
    made = Machines(folder)
    try:
        yield made
    finally:
        for name in list(made.processes):
            made.end(name)


def waited(what: str, seconds: float = 120.0) -> Iterator[None]:
    """Yield until the caller has seen what it waits for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.02)
    raise AssertionError(f"in {seconds} s {what} did not happen")


def busy(machines: Machines) -> str:
    """The first worker that is seen at its slow stage."""
    for _ in waited("no worker began to legalize"):
        for name, clone in machines.workers.items():
            if clone.runs().get("legalizing"):
                return name
    raise AssertionError
