"""Joining a cluster, orders as plain data, and what is made of what Dask says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

pytest.importorskip("distributed", reason="no distributed: pip install -e '.[cluster]'")
pytest.importorskip("fsspec", reason="no fsspec: no store can be shared")
pytest.importorskip("cryptography", reason="no cryptography: nothing can be signed")

from pipelines.builds import ci_builds, plan, plan_execution
from pipelines.builds.plan_execution import PlanExecution
from pipelines.caching.remote import Remote
from pipelines.cluster import build_environment, cluster, many_recipes, membership, orders, worker
from pipelines.cluster.cluster import Cluster, unmeasured
from pipelines.cluster.outcome import Outcome
from pipelines.errors import UserError
from pipelines.recipe.load import load_recipe
from pipelines.store.store import Store
from tests.pipelines.caching.stores import new_key, remote_of


def test_workers_whose_results_would_not_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = new_key(tmp_path)
    here, apart = (remote_of(tmp_path / name, key) for name in ("here", "apart"))
    monkeypatch.setattr(plan_execution, "STORE", Store(tmp_path / "store"))
    host = SimpleNamespace(name="w")
    reader = Remote(here.settings.model_copy(update={"write": False}))
    for shared, says in (
        (here, ""),
        (apart, "w at tcp://w: what it writes is not in file://"),
        (reader, "w at tcp://w: does not write to its shared store: its cache file needs `sign:"),
        (None, "w at tcp://w: has no shared store: name its cache file by BITKILN_CACHE"),
    ):
        monkeypatch.setattr(plan_execution, "shared", lambda shared=shared: shared)
        found = worker.describe("1", host)
        assert membership.fault("tcp://w", found, "1", here).startswith(says)
        assert bool(says) == bool(membership.fault("tcp://w", found, "1", here))
        worker.forget("1", host)
    with monkeypatch.context() as patched:
        patched.setattr(
            build_environment,
            "now",
            lambda: {**build_environment.at_start(), "stages/a.py": "edited"},
        )
        edited = worker.describe("1", host)
        assert "its code changed: start it again" in membership.fault("tcp://w", edited, "1", here)
    other = {
        **worker.describe("2", host),
        "likeness": {**build_environment.at_start(), "numpy": "1.0"},
    }
    assert "differs in numpy 1.0 (here " in membership.fault("tcp://w", other, "2", here)
    stopped = ModuleNotFoundError("No module named 'pipelines'")
    assert "is bitkiln there?" in membership.fault("tcp://w", stopped, "2", here)


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
        order = orders.order(given, step, "digest")
        for key, files in order.files.items():
            (arrived / key).mkdir(parents=True, exist_ok=True)
            for name, path in files.items():
                (arrived / key / name).write_bytes(path.read_bytes())
        assert orders.step_and_digest_of(order.text) == (step.name, "digest")
        there, same = orders.plan_of(order.text)
        assert PlanExecution(there).ingredients(same) == PlanExecution(given).ingredients(step)
        assert str(tmp_path) not in order.text, "an order is the same wherever its files lie"


def test_recipes_share_the_orders_that_are_alike() -> None:
    plans = [plan.of(load_recipe(name)) for name in ("resnet8_int8_rpi3", "resnet8_int8_host")]
    keys = [{orders.order(p, p.steps[i], "digest").key for p in plans} for i in (0, -1)]
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
        ci_builds,
        "build",
        lambda name: ci_builds.parse_output(name, "rpi3", 2.0, "verifying built  fine"),
    )
    (row,) = many_recipes.build_all(["resnet8_int8_rpi3"], 1, "tcp://h:1")
    assert Stub.asked == [False, True]
    assert (row.is_fine, row.verified, row.seconds) == (True, "fine", 3.0)


def test_what_is_yet_to_be_measured_is_not_ordered() -> None:
    made = plan.of(load_recipe("digits_a2w2_host", {"schedule.trials": "3"}))
    assert {"legalizing", "bitpacking", "packaging"} <= unmeasured(made)
    assert unmeasured(made).isdisjoint({"importing", "quantizing", "enumerating"})
    assert unmeasured(plan.of(load_recipe("digits_a2w2_host"))) == set()
