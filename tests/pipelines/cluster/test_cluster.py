"""Recipes and stages over a Dask cluster: the same bytes, whoever dies, and whom it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="no distributed: pip install -e '.[cluster]'")
pytest.importorskip("fsspec", reason="no fsspec: no store can be shared")
pytest.importorskip("cryptography", reason="no cryptography: nothing can be signed")

from pipelines.cluster import scheduler_address
from pipelines.errors import UserError
from tests.pipelines.caching.stores import new_key
from tests.pipelines.cluster.machines import Machines, busy, started, waited
from tests.pipelines.fake_clone import Clone

RECIPES = {
    "broken": "extends: toy\nlayers: [{match: conv2, algorithm: mac8}]\n",
    "filed": "extends: toy\nmodel: {zoo: null, file: net.onnx}\nquantization: null\n",
    "other": "extends: toy\nhardware: rpi4\n",
}
"""Beside `toy`: one that fails, one of a file, one for another board."""
STAGES = ("zoo", "importing", "golden", "legalizing", "packaging")


def results(clone: Clone) -> dict[tuple[str, str], str]:
    """Stage and key of each artifact in a clone's store → the digest of what it holds."""
    found = [json.loads(path.read_text()) for name in STAGES for path in clone.manifests(name)]
    return {(each["stage"], each["key"]): each["output"] for each in found}


def with_recipes(clone: Clone) -> Clone:
    for name, text in RECIPES.items():
        clone.write(f"recipes/{name}.yaml", text)
    clone.write("recipes/net.onnx", "net 1 0 ")
    return clone


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
        scheduler_address.scheduler(executor, scheduler)


def test_without_a_store_to_meet_in_nothing_is_built(clone: Clone) -> None:
    assert (
        scheduler_address.scheduler("processes", None)
        is scheduler_address.scheduler(None, None)
        is None
    )
    for command in (("build", "recipe=toy"), ("ci",)):
        words = ("executor=dask", "scheduler=tcp://127.0.0.1:9")
        out, err = clone.doit(*command, *words, expect=3)
        assert err.startswith("ERROR: executor=dask needs a store that this machine and all")
        assert clone.runs() == {} and out == "" and err.count("ERROR") == 1
