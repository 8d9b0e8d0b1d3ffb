"""Recipes and stages over a Dask cluster: the same bytes, whoever dies, and whom it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

pytest.importorskip("distributed", reason="no distributed: pip install -e '.[cluster]'")
pytest.importorskip("fsspec", reason="no fsspec: no store can be shared")
pytest.importorskip("cryptography", reason="no cryptography: nothing can be signed")

from pipelines import ci_builds, execute, plan
from pipelines.caching.remote import Remote
from pipelines.errors import UserError
from pipelines.execute import Workshop
from pipelines.load import load_recipe
from pipelines.spreading import address, cluster, finishing, joining, likeness, orders, worker
from pipelines.spreading.cluster import Cluster, unmeasured
from pipelines.spreading.outcome import Outcome
from pipelines.store import Store
from tests.pipelines.caching.stores import new_key, remote_of, share
from tests.pipelines.fake_clone import Clone

RECIPES = {
    "broken": "extends: toy\nlayers: [{match: conv2, algorithm: mac8}]\n",
    "filed": "extends: toy\nmodel: {zoo: null, file: net.onnx}\nquantization: null\n",
    "other": "extends: toy\nhardware: rpi4\n",
}
"""Beside `toy`: one that fails, one of a file, one for another board."""
STAGES = ("zoo", "importing", "golden", "legalizing", "packaging")


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


def results(clone: Clone) -> dict[tuple[str, str], str]:
    """Stage and key of each artifact in a clone's store → the digest of what it holds."""
    found = [json.loads(path.read_text()) for name in STAGES for path in clone.manifests(name)]
    return {(each["stage"], each["key"]): each["output"] for each in found}


def with_recipes(clone: Clone) -> Clone:
    for name, text in RECIPES.items():
        clone.write(f"recipes/{name}.yaml", text)
    clone.write("recipes/net.onnx", "net 1 0 ")
    return clone


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


def test_a_cluster_makes_the_same_bytes_though_a_worker_is_killed(tmp_path: Path) -> None:
    one, four = (with_recipes(Clone(tmp_path / name)) for name in ("one", "four"))
    built = [name for name in ("toy", *RECIPES) if name != "broken"]
    with started(tmp_path) as machines:
        for name in ("w0", "w1", "w2"):
            clone = machines.clone(name)
            clone.environment["FAKE_SLEEP"] = "0.7"
            machines.join(name, clone)
        client = with_recipes(machines.clone("client"))

        for _ in waited("three workers did not join"):
            if machines.has(machines.workers):
                break
        process = client.start("ci", "json=ci.json", *machines.words)
        killed = busy(machines)
        dead = machines.end(killed)
        out, err = process.communicate(timeout=120)

        assert dead is not None
        assert process.returncode == 1, out + err
        assert "3 verified, 0 built and not run, 1 failed" in out
        assert "FAULT: legalizing: conv2: no 8-bit kernel; use algorithm: bitserial" in out
        rows = {row["recipe"]: row for row in json.loads((client.root / "ci.json").read_text())}
        assert {rows[name]["package"] for name in built} == {"built"}
        assert "broken" in rows and "legalizing: conv2" in rows["broken"]["output"]
        assert client.runs() == {}, "nothing was built here"
        # What several recipes need is built once, but for what the dead worker was at.
        assert machines.runs()["zoo"] == 1 and machines.runs()["legalizing"] <= 5

        for name in built:
            one.doit("build", f"recipe={name}")
            four.doit("-n", "4", "build", f"recipe={name}")
            assert client.package(name) == one.package(name) == four.package(name), name
        assert results(client) == results(one) == results(four)

        # One recipe by itself: what is here is shared, and workers that come back are used.
        for name in list(machines.workers):
            machines.end(name)
        machines.join(killed, dead)
        other = "quantization.weights.bits=2"
        out, err = client.doit("build", "recipe=toy", other, *machines.words)
        one.doit("build", "recipe=toy", other)
        assert err == "" and client.runs() == {} and out.count(f", on {killed}") == len(STAGES)
        assert results(client) == results(one)
        machines.end(killed)
        refused(machines, client, dead)


def refused(machines: Machines, client: Clone, clone: Clone) -> None:
    """Workers with other code, or whose results would not be used, are named; and none is used."""
    odd = machines.clone("odd")
    odd.edit("stages/packaging/__init__.py", "* 100", "* 101")
    machines.join("odd", odd)
    key, public = new_key(machines.folder, "other.key")
    remote = machines.folder / "remote"
    machines.join("stranger", clone, f"remote: file://{remote}\nsign: {key}\n")
    for _ in waited("two workers did not join"):
        if machines.has(machines.workers):
            break
    before = clone.runs()
    words = ("build", "recipe=toy", "quantization.weights.bits=3", *machines.words)
    _, told = client.doit(*words, expect=3)
    first, differs, stranger = told.splitlines()
    assert first == f"ERROR: {machines.address}: not all workers can build"
    assert "odd at tcp://" in differs
    assert "differs in stages/packaging/__init__.py; it needs the same bitkiln" in differs
    assert f"signed by {public[:12]}…, whom `trust` does not name" in stranger
    assert not list((remote / "entries" / "probing").rglob("*/*")), "probes are removed"
    assert odd.runs() == {} and clone.runs() == before
    machines.end("scheduler")
    _, told = client.doit(*words, expect=3)
    assert told.startswith(f"ERROR: {machines.address}: no scheduler answers (Connection refused)")


def test_workers_whose_results_would_not_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = new_key(tmp_path)
    here, apart = (remote_of(tmp_path / name, key) for name in ("here", "apart"))
    monkeypatch.setattr(execute, "STORE", Store(tmp_path / "store"))
    host = SimpleNamespace(name="w")
    reader = Remote(here.settings.model_copy(update={"write": False}))
    for shared, says in (
        (here, ""),
        (apart, "w at tcp://w: what it writes is not in file://"),
        (reader, "w at tcp://w: does not write to its shared store: its cache file needs `sign:"),
        (None, "w at tcp://w: has no shared store: name its cache file by BITKILN_CACHE"),
    ):
        monkeypatch.setattr(execute, "shared", lambda shared=shared: shared)
        found = worker.describe("1", host)
        assert joining.fault("tcp://w", found, "1", here).startswith(says)
        assert bool(says) == bool(joining.fault("tcp://w", found, "1", here))
        worker.forget("1", host)
    with monkeypatch.context() as patched:
        patched.setattr(likeness, "now", lambda: {**likeness.at_start(), "stages/a.py": "edited"})
        edited = worker.describe("1", host)
        assert "its code changed: start it again" in joining.fault("tcp://w", edited, "1", here)
    unlike = {**worker.describe("2", host), "likeness": {**likeness.at_start(), "numpy": "1.0"}}
    assert "differs in numpy 1.0 (here " in joining.fault("tcp://w", unlike, "2", here)
    stopped = ModuleNotFoundError("No module named 'pipelines'")
    assert "is bitkiln there?" in joining.fault("tcp://w", stopped, "2", here)


@pytest.mark.parametrize(
    ("executor", "scheduler", "says"),
    [
        ("dusk", None, "executor=dusk: there is no such executor; did you mean 'dask'?"),
        ("dask", None, "executor=dask needs the address of a scheduler"),
        (None, "tcp://h:1", "scheduler=tcp://h:1: is for executor=dask; add that"),
        ("processes", "tcp://h:1", "is for executor=dask"),
        ("dask", "http://h:1", "is no address of a scheduler; accepted: tcp://"),
        ("dask", "tcp://h:99999", "is no address of a scheduler"),
        ("dask", "tcp://h", "is no address of a scheduler"),
    ],
)
def test_words_that_name_no_cluster(executor: str, scheduler: str, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        address.scheduler(executor, scheduler)


def test_without_a_store_to_meet_in_nothing_is_built(clone: Clone) -> None:
    assert address.scheduler("processes", None) is address.scheduler(None, None) is None
    for command in (("build", "recipe=toy"), ("ci",)):
        words = ("executor=dask", "scheduler=tcp://127.0.0.1:9")
        out, err = clone.doit(*command, *words, expect=3)
        assert err.startswith("ERROR: executor=dask needs a store that this machine and all")
        assert clone.runs() == {} and out == "" and err.count("ERROR") == 1


def test_an_order_says_all_that_decides_an_artifact_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan and what its orders say of it have the same ingredients, also with files."""
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "a.npy").write_bytes(b"1")
    (tmp_path / "net.onnx").write_bytes(b"2")
    (tmp_path / "mine.yaml").write_text(
        "model: {file: net.onnx}\ninputs: {x: {mean: [0.5]}}\ncalibration: {data: samples}\n"
        "hardware: rpi3\n"
    )
    given = plan.of(load_recipe(str(tmp_path / "mine.yaml")))
    arrived = tmp_path / "arrived"
    monkeypatch.setattr(orders, "_fetched", lambda key: arrived / key)
    for step in given.steps:
        order = orders.order(given, step, "alike")
        for key, files in order.files.items():
            (arrived / key).mkdir(parents=True, exist_ok=True)
            for name, path in files.items():
                (arrived / key / name).write_bytes(path.read_bytes())
        assert orders.told(order.text) == (step.name, "alike")
        there, same = orders.plan_of(order.text)
        assert Workshop(there).ingredients(same) == Workshop(given).ingredients(step)
        assert str(tmp_path) not in order.text, "an order is the same wherever its files lie"


def test_recipes_share_the_orders_that_are_alike() -> None:
    plans = [plan.of(load_recipe(name)) for name in ("resnet8_int8_rpi3", "resnet8_int8_host")]
    keys = [{orders.order(p, p.steps[i], "alike").key for p in plans} for i in (0, -1)]
    assert [len(each) for each in keys] == [1, 2]
    assert len({orders.order(plans[0], plans[0].steps[0], each).key for each in "ab"}) == 2


def test_what_dask_says_of_the_dead_becomes_a_row_and_of_a_lost_cluster_an_error() -> None:
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    made = Cluster.__new__(Cluster)
    made._scheduler = "tcp://h:1"

    def future(error: Exception) -> SimpleNamespace:
        def result(timeout: float) -> None:
            raise error

        return SimpleNamespace(key="bitkiln-packaging-1", result=result)

    dead = made.outcome(future(KilledWorker("t", SimpleNamespace(name="w1"), 3)))
    assert (dead.step, dead.origin, dead.status) == ("packaging", "killed", 3)
    assert dead.why.startswith("packaging: workers died of it again and again, w1 the last")
    with pytest.raises(UserError, match="tcp://h:1: was lost; what was built is in the shared"):
        made.outcome(future(FutureCancelledError("t", "scheduler-connection-lost")))
    odd = made.outcome(future(ModuleNotFoundError("no module")))
    assert (odd.why, odd.status) == ("packaging: ModuleNotFoundError: no module", 2)


def test_a_recipe_that_deaths_are_blamed_on_is_tried_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stub:
        asked: ClassVar[list[bool]] = []

        def order(self, steps: object, *, again: bool = False) -> dict[str, bool]:
            self.asked.append(again)
            return {"zoo": again}

        def outcome(self, is_second: bool) -> Outcome:
            origin, status = ("built", 0) if is_second else ("killed", 3)
            return Outcome("zoo", "w", origin, 1.0, "", status)

        def cancel(self) -> None: ...

    monkeypatch.setattr(cluster, "of", lambda *given: Stub())
    monkeypatch.setattr(
        ci_builds, "build", lambda name: ci_builds.told(name, "rpi3", 2.0, "verifying built  fine")
    )
    (row,) = finishing.build_all(["resnet8_int8_rpi3"], 1, "tcp://h:1")
    assert Stub.asked == [False, True]
    assert (row.is_fine, row.verified, row.seconds) == (True, "fine", 3.0)


def test_what_is_yet_to_be_measured_is_not_ordered() -> None:
    made = plan.of(load_recipe("digits_a2w2_host", {"schedule.trials": "3"}))
    assert {"legalizing", "bitpacking", "packaging"} <= unmeasured(made)
    assert unmeasured(made).isdisjoint({"importing", "quantizing", "offering"})
    assert unmeasured(plan.of(load_recipe("digits_a2w2_host"))) == set()
