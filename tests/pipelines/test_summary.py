"""The summary of a true build: what is counted is what is known of the network otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.builds import plan, summary, work_count
from pipelines.builds.plan_execution import PlanExecution
from pipelines.recipe import load
from tests.pipelines.fake_clone import ROOT, doit

RECIPE = "recipes/ci/residual_block_a2w1_rpi3.yaml"


def test_work_of_a_true_network(tmp_path: Path) -> None:
    """Products and chosen kernels, as `doit show layer=` lists them; of a batch, of all of it."""
    done = doit("build", f"recipe={RECIPE}")
    assert done.returncode == 0, done.stderr
    made = plan.of(load.load_recipe(str(ROOT / RECIPE)))
    found = work_count.work(made)
    again = doit("build", f"recipe={RECIPE}")
    assert again.stdout.partition("\n\n")[2] == done.stdout.partition("\n\n")[2] != ""
    execution = PlanExecution(made)
    sums = {"conv1": 27 * 64 * 16**2, "3x3": 2 * 9 * 64**2 * 8**2, "1x1": 64**2 * 8**2, "fc": 640}
    assert found["macs"] == work_count.macs(execution) == sum(sums.values())
    target = tmp_path / "rows.json"
    assert doit("show", f"recipe={RECIPE}", "layer=all", f"json={target}").returncode == 0
    rows = json.loads(target.read_text())["kernels"]
    chosen = [row["predicted_cycles"] for row in rows if row["chosen"]]
    assert found["layers"] == len(chosen) > 0
    assert abs(found["cycles"] - sum(chosen)) <= len(chosen)
    both = plan.of(load.load_recipe(str(ROOT / RECIPE), {"model.batch": "2"}))
    done = doit("build", f"recipe={RECIPE}", "model.batch=2")
    assert done.returncode == 0, done.stderr
    twice = work_count.work(both)
    assert twice["macs"] == 2 * found["macs"]
    assert found["cycles"] < twice["cycles"] <= 2 * found["cycles"] + found["layers"]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999_999, "999,999"), (10**6, "1 million"), (1_826_918_400, "1.83 billion")],
)
def test_counts_are_short(number: int, text: str) -> None:
    assert summary._count(number) == text


def test_threads_that_share_pictures_are_not_guessed_at() -> None:
    memory = {"constant_bytes": 1024, "arena_bytes_one_thread": 2048, "scratch_bytes_per_thread": 8}
    for shape, lines in (([2, 3], 2), ([1, 3], 3), ([], 3)):
        found = summary._memory({"memory": memory, "inputs": [{"shape": shape}]}, 4)
        assert len(list(found)) == lines
