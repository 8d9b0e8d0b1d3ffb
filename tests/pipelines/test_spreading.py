"""Recipes and stages over a Dask cluster: the same bytes, whoever dies, and whom it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="no distributed: pip install -e '.[cluster]'")
pytest.importorskip("fsspec", reason="no fsspec: no store can be shared")
pytest.importorskip("cryptography", reason="no cryptography: nothing can be signed")

from pipelines import plan
from pipelines.calibration import Data
from pipelines.execute import Workshop
from pipelines.load import load_recipe
from pipelines.recipe import Calibration, InputSpec
from pipelines.spreading import orders
from pipelines.spreading.cluster import _unmeasured
from tests.pipelines.caching.stores import new_key, share
from tests.pipelines.fake_clone import ROOT, Clone

RECIPES = {
    "again": "extends: toy\n",
    "broken": "extends: toy\nlayers: [{match: conv2, algorithm: mac8}]\n",
    "filed": "extends: toy\nmodel: {zoo: null, file: net.onnx}\nquantization: null\n",
    "other": "extends: toy\nhardware: rpi4\n",
}
"""Beside `toy`: one of the same stages, one that fails, one with a file, and one for another board."""
STAGES = ("zoo", "importing", "golden", "legalizing", "packaging")


class Cluster:
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

    def clone(self, name: str, cache: str = "") -> Clone:
        """A clone that shares the store."""
        made = Clone(self.folder / name)
        share(made, cache or self.cache)
        return made

    def join(self, name: str, clone: Clone) -> Clone:
        """Start a worker in a clone."""
        self.workers[name] = clone
        given = {**clone.environment, "FAKE_LOG": str(clone.log), "PYTHONPATH": str(clone.root)}
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

    def end(self, name: str) -> None:
        """Kill a process at once."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes.pop(name).wait(20)
        self.workers.pop(name, None)

    def runs(self) -> Counter[str]:
        """How often each stage ran on any worker that there has been."""
        logs = self.folder.glob("w*/log.txt")
        return Counter(word for log in logs for word in log.read_text().split())


@contextmanager
def started(folder: Path) -> Iterator[Cluster]:
    made = Cluster(folder)
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


def waited(what: str, seconds: float = 30.0) -> Iterator[None]:
    """Yield until the caller has seen what it waits for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.02)
    raise AssertionError(f"in {seconds} s {what} did not happen")


def busy(cluster: Cluster) -> str:
    """The first worker that is seen at its slow stage."""
    for _ in waited("no worker began to legalize"):
        for name, clone in cluster.workers.items():
            if clone.runs().get("legalizing"):
                return name
    raise AssertionError


def test_a_cluster_makes_the_same_bytes_though_a_worker_is_killed(tmp_path: Path) -> None:
    one, four = (with_recipes(Clone(tmp_path / name)) for name in ("one", "four"))
    built = [name for name in ("toy", *RECIPES) if name != "broken"]
    with started(tmp_path) as cluster:
        for name in ("w0", "w1", "w2"):
            clone = cluster.clone(name)
            clone.environment["FAKE_SLEEP"] = "0.7"
            cluster.join(name, clone)
        client = with_recipes(cluster.clone("client"))

        process = client.start("ci", "json=ci.json", *cluster.words)
        killed = busy(cluster)
        cluster.end(killed)
        out, err = process.communicate(timeout=60)

        assert process.returncode == 1, out + err
        assert "4 verified, 0 built and not run, 1 failed" in out
        assert "FAULT: legalizing: conv2: no 8-bit kernel; use algorithm: bitserial" in out
        rows = {row["recipe"]: row for row in json.loads((client.root / "ci.json").read_text())}
        assert {rows[name]["package"] for name in built} == {"built"}
        assert "broken" in rows and "legalizing: conv2" in rows["broken"]["output"]
        assert client.runs() == {}, "nothing was built here"
        # What several recipes need is built once, but for what the dead worker was at.
        assert cluster.runs()["zoo"] == 1 and cluster.runs()["legalizing"] <= 5

        for name in built:
            one.doit("build", f"recipe={name}")
            four.doit("-n", "4", "build", f"recipe={name}")
            assert client.package(name) == one.package(name) == four.package(name), name
        assert results(client) == results(one) == results(four)

        # One recipe by itself: what is here is shared, and workers that come are used.
        cluster.join("w3", cluster.clone("w3"))
        out, err = client.doit("build", "recipe=toy", "golden.seed=5", *cluster.words)
        one.doit("build", "recipe=toy", "golden.seed=5")
        assert err == "" and client.runs() == {}
        assert "on w" in out and results(client) == results(one)

        refused(cluster, client)


def refused(cluster: Cluster, client: Clone) -> None:
    """Workers with other code, and with keys that nobody trusts, are named; and none is used."""
    for name in list(cluster.workers):
        cluster.end(name)
    odd = cluster.clone("odd")
    odd.edit("stages/packaging/__init__.py", "* 100", "* 101")
    cluster.join("odd", odd)
    _key, other = new_key(cluster.folder, "other.key")
    strange = f"remote: file://{cluster.folder / 'remote'}\nsign: {_key}\n"
    cluster.join("stranger", cluster.clone("stranger", strange))
    cluster.join("apart", cluster.clone("apart", cluster.cache.replace("remote\n", "far\n")))
    cluster.join("reader", cluster.clone("reader", cluster.cache + "write: false\n"))
    told = ""
    for _ in waited("four workers were not refused"):
        _, told = client.doit("build", "recipe=toy", "golden.seed=6", *cluster.words, expect=3)
        if len(told.splitlines()) == 5:
            break
    apart, differs, reader, stranger = sorted(told.splitlines()[1:])
    assert "not all workers can build" in told and "Traceback" not in told
    assert "odd at tcp://" in differs
    assert "differs in stages/packaging/__init__.py; it needs the same bitkiln" in differs
    assert "apart at" in apart and "is its store another?" in apart
    assert "reader at" in reader and "needs `sign: FILE`" in reader
    assert "stranger at" in stranger and f"signed by {other[:12]}…, whom `trust`" in stranger
    assert odd.runs() == {}
    cluster.end("scheduler")
    _, told = client.doit("build", "recipe=toy", "golden.seed=6", *cluster.words, expect=3)
    assert told.startswith(f"ERROR: {cluster.address}: no scheduler answers (Connection refused)")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("executor=dusk", "executor=dusk: there is no such executor; did you mean 'dask'?"),
        ("executor=dask", "executor=dask needs the address of a scheduler"),
        ("scheduler=tcp://h:1", "scheduler=tcp://h:1: is for executor=dask; add that"),
        ("executor=dask scheduler=http://h:1", "is no address of a scheduler; accepted: tcp://"),
        ("executor=dask scheduler=tcp://h:99999", "is no address of a scheduler"),
        ("executor=dask scheduler=tcp://127.0.0.1:9", "needs a store that this machine and all"),
    ],
)
def test_bad_words_are_refused(clone: Clone, words: str, says: str) -> None:
    for command in (("build", "recipe=toy"), ("ci",)):
        out, err = clone.doit(*command, *words.split(), expect=3)
        assert says in err and err.count("ERROR") == 1 and "Traceback" not in err
        assert clone.runs() == {} and out == ""


def test_an_order_says_all_that_decides_an_artifact_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan and what its orders say of it have the same ingredients, also with data."""
    data = tmp_path / "samples"
    data.mkdir()
    (data / "a.npy").write_bytes(b"1")
    inputs = {"x": InputSpec(shape=(1, 3), mean=(0.5,))}
    resolved = load_recipe(str(ROOT / "recipes/resnet8_int8_rpi3.yaml"))
    made = plan.of(resolved)
    given = plan.Plan(made.recipe, made.steps, None, Data(Calibration(data=data), inputs))
    monkeypatch.setattr(orders, "_fetched", lambda key: data)
    for step in given.steps:
        order = orders.order(given, step, "alike")
        assert orders.told(order.text) == (step.name, "alike")
        arrived, same = orders.plan_of(order.text)
        assert Workshop(arrived).ingredients(same) == Workshop(given).ingredients(step)
        assert str(tmp_path) not in order.text, "an order is the same wherever its files lie"
    other = plan.of(load_recipe(str(ROOT / "recipes/resnet8_int8_host.yaml")))
    keys = [{orders.order(p, p.steps[i], "alike").key for p in (made, other)} for i in (0, -1)]
    assert [len(each) for each in keys] == [1, 2], "recipes share what is alike"


def test_what_is_yet_to_be_measured_is_not_ordered() -> None:
    made = plan.of(load_recipe("digits_a2w2_host", {"schedule.trials": "3"}))
    assert {"legalizing", "bitpacking", "packaging"} <= _unmeasured(made)
    assert _unmeasured(made).isdisjoint({"importing", "quantizing", "offering"})
    assert _unmeasured(plan.of(load_recipe("digits_a2w2_host"))) == set()
