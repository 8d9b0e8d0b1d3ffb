"""`doit bench`: package and float32 twin in turns; nothing is said of how long they take."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hw import host
from pipelines import packages
from pipelines.commands import bench
from pipelines.errors import UserError
from pipelines.overrides import Variables
from tests.pipelines.fake_clone import ROOT

RECIPE = "ci/residual_block_a2w1_host"


def doit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "doit", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_bench_of_the_small_recipe(threads: int, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    target = tmp_path / "r.json"
    done = doit("bench", f"recipe={RECIPE}", f"threads={threads}", "repeat=3", f"json={target}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(target.read_text())
    assert (found["threads"], found["repeat"]) == (threads, 3)
    assert found["processor"] == bench.processor() and found["processor"] in done.stdout
    assert {name: len(times) for name, times in found["seconds"].items()} == {
        "package": 3,
        "float32 twin": 3,
    }
    medians = {row["what"]: row["median_ms"] for row in found["rows"]}
    assert medians["package"] > 0
    assert found["ratio"] == pytest.approx(medians["float32 twin"] / medians["package"])
    lines = done.stdout.splitlines()
    title = f"residual_block_a2w1_host: {found['processor']}, {threads} thread"
    (start,) = [index for index, line in enumerate(lines) if line.startswith(title)]
    assert "package" in lines[start + 2] and "float32 twin, ONNX Runtime" in lines[start + 3]
    assert lines[start + 4].startswith("the package is ") and "float32 twin" in lines[start + 4]


@pytest.mark.slow
def test_another_processors_package_is_not_timed() -> None:
    if host.detect().architecture == "aarch64":
        pytest.skip("this machine is of the package's architecture")
    done = doit("bench", "recipe=ci/residual_block_a2w1_rpi3")
    assert done.returncode == 1
    assert done.stderr == (
        "ERROR: residual_block_a2w1_rpi3 is for rpi3, and bench times this machine's own "
        "processor; try: doit bench recipe=residual_block_a2w1_rpi3 hardware=host\n"
    )


def run(resolved: Any = None) -> None:
    plan: Any = SimpleNamespace(recipe="toy")
    bench.run(plan=plan, resolved=resolved, variables=Variables({}, {}))


def test_onnxruntime_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[[str], Any] = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else find(name)
    )
    with pytest.raises(UserError) as error:
        run()
    assert error.value.message == (
        "onnxruntime is not installed, and times are only shown beside another's; "
        "run: pip install -e '.[test]'"
    )


def test_turns_alternate_and_the_first_run_of_each_is_not_counted() -> None:
    log: list[tuple[str, int]] = []

    def side(name: str, seconds: float) -> bench.Timed:
        def timed(count: int) -> float:
            log.append((name, count))
            return seconds

        return timed

    times = bench._alternate({"a": side("a", 1e-3), "b": side("b", 1.0)}, 3)
    assert times == {"a": [1e-3] * 3, "b": [1.0] * 3}
    a, b = [("a", 1), ("a", 2)], [("b", 1), ("b", 1)]
    assert log == [("a", 1), ("b", 1), *a, *b, *b, *a, *a, *b]


def test_medians_spread_and_ratio() -> None:
    times = {bench.PACKAGE: [1.0, 2.0, 9.0], bench.TWIN: [8.0, 4.0, 9.0]}
    found = bench._compared(times)
    assert [row["median_ms"] for row in found["rows"]] == [2000.0, 8000.0]
    assert found["rows"][0]["quartiles_ms"] == [1500.0, 5500.0]
    assert found["ratio"] == 4.0
    assert found["ratio_quartiles"] == list(np.percentile([8.0, 2.0, 1.0], [25, 75]))


def test_a_package_of_another_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.setattr(packages, "is_native", lambda plan: False)
    resolved = SimpleNamespace(name="toy", hardware=SimpleNamespace(name="rpi3"))
    with pytest.raises(UserError, match=r"^toy is for rpi3, and bench times this machine's own"):
        run(resolved)
