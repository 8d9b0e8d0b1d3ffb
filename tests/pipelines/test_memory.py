"""How much memory a build takes beside its model file."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.pipelines.fake_clone import ROOT

MOST = 4.0
"""Bytes in memory a byte of the model file, at most."""
DEPTHS = {"small": 64, "large": 1536}
LAYERS = 4

BUILD = """
import resource, sys
from pathlib import Path
from pipelines.builds import plan
from pipelines.recipe import load
from pipelines.builds.publication import package_step
from pipelines.builds.plan_execution import PlanExecution
from pipelines.store.store import Store

recipe = Path(sys.argv[1])
made = plan.of(load.load_recipe(str(recipe)))
execution = PlanExecution(made, Store(recipe.with_suffix(".store")))
files = execution.content(package_step(execution.plan))
execution.store.publish(files, recipe.with_suffix(".package"))
print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux", reason="reads Linux's counts"
)
def test_a_build_holds_few_copies_of_its_model(tmp_path: Path) -> None:
    """More than a small network of the same form takes, whatever tools are imported."""
    onnx = pytest.importorskip("onnx")
    recipes, sizes = [], []
    for name, depth in DEPTHS.items():
        model, recipe = tmp_path / f"{name}.onnx", tmp_path / f"{name}.yaml"
        rng = np.random.default_rng(0)
        kinds = [
            onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4, depth])
            for n in ("x0", f"x{LAYERS}")
        ]
        nodes = [
            onnx.helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"])
            for i in range(LAYERS)
        ]
        weights = [
            onnx.numpy_helper.from_array(rng.normal(size=(depth, depth)).astype("float32"), f"w{i}")
            for i in range(LAYERS)
        ]
        graph = onnx.helper.make_graph(nodes, "net", kinds[:1], kinds[1:], weights)
        opset = [onnx.helper.make_opsetid("", 17)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), model)
        recipe.write_text(f"extends: {ROOT}/recipes/base.yaml\nmodel: {{file: {model}}}\n")
        recipes.append(str(recipe))
        sizes.append(model.stat().st_size)
    command = [sys.executable, "-c", BUILD]
    builds = [
        subprocess.Popen([*command, recipe], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for recipe in recipes
    ]
    small, large = (int(build.communicate(timeout=300)[0].split()[-1]) for build in builds)
    assert large - small < MOST * (sizes[1] - sizes[0]), (small, large)
