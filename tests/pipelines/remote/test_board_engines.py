"""Engines of others on a board, by the board's own Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from pipelines.builds import agreement, plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.recipe import load
from pipelines.remote.board_engines import BoardEngine, installed
from pipelines.remote.deployment import BoardError
from tests.pipelines.fake_clone import doit
from tests.pipelines.remote.fakes import fake


def have_python(folder: Path, does: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `python3` on boards of this machine be a script."""
    shim = folder / "bin/python3"
    shim.parent.mkdir()
    shim.write_text(f"#!/bin/sh\n{does}\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")


@pytest.mark.slow
def test_onnx_runtime_on_a_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have_python(tmp_path, f'exec {sys.executable} "$@"', monkeypatch)
    to = fake(tmp_path, "pi")
    assert installed(to) == ["onnxruntime", "litert"]
    made = plan.of(load.load_recipe("resnet8_int8_host"))
    execution = PlanExecution(made)
    execution.produce(made.step("golden"))
    golden = execution.load(made.step("golden"))
    inputs = {name: array[0] for name, array in golden.inputs.items()}
    (to.home / ".cache/bitkiln").mkdir(parents=True)
    engine = BoardEngine(to, "onnxruntime", agreement.source(made), inputs, 1)
    try:
        assert engine.title.startswith("ONNX Runtime 1.")
        (wanted,) = (array[0].ravel() for array in golden.outputs.values())
        np.testing.assert_array_equal(engine.outputs[0], wanted)
        assert len(engine.seconds(3)) == 3
    finally:
        engine.close()
    assert not list((to.home / ".cache/bitkiln").iterdir())
    with pytest.raises(BoardError, match="pi: "):
        BoardEngine(to, "litert", b"no model", inputs, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("openvino", "no engine that a board can run; accepted: all, none, onnxruntime, litert"),
        ("litert", "local has no Python with LiteRT and NumPy; run there: pip install ai-edge-"),
    ],
)
def test_engines_that_a_board_has_not(
    name: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_python(tmp_path, "exit 1", monkeypatch)
    done = doit("bench", "recipe=digits_a2w2_host", "board=local", f"peers={name}")
    assert done.returncode and f"ERROR: peers={name}: {sentence}" in done.stderr
