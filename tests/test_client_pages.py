"""What the page of packaging shows in C and Python works, with a small recipe's package."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hw import host
from pipelines.builds import plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.recipe import load
from stages.options import PACKAGE_FORMATS
from stages.packaging.files.client_files import example_c
from stages.packaging.program.kernel_program import TensorSpec
from tests import warm
from tests.pages import PAGES, ROOT, block

RECIPE = "resnet18_a2w1_rpi3"
SMALL = "residual_block_a2w1_host"
PACKAGING = "stages/packaging/README.md"


def test_c_lines_are_those_of_the_example() -> None:
    """The heart of the file that the package of the page holds."""
    image = TensorSpec("data", "float32", (1, 3, 224, 224))
    scores = TensorSpec("out", "float32", (1, 1000))
    text = example_c(RECIPE, [image], [scores], PACKAGE_FORMATS)
    heart = block(PACKAGING, "c", "    const void *in[]")
    assert heart in text and "_init(" in heart and "_run(" in heart


@pytest.mark.slow
def test_example_gives_the_golden_outputs(tmp_path: Path) -> None:
    """Compiled as its page says, in a small recipe's package, on files of raw floats."""
    try:
        host.detect()
    except ValueError as error:
        pytest.skip(f"needs a package for this machine: {error}")
    resolved = load.load_recipe(f"ci/{SMALL}")
    done = warm.run("build", f"recipe=ci/{SMALL}", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.copytree(ROOT / "artifacts/packages" / SMALL, tmp_path, dirs_exist_ok=True)
    (line,) = re.findall(r"^cc .*$", PAGES[PACKAGING], re.MULTILINE)
    compiler = [sys.executable, "-m", "ziglang", "cc", "-Wall", "-Wextra", "-Werror"]
    line = line.replace(RECIPE, SMALL)
    subprocess.run([*compiler, *line.split()[1:]], cwd=tmp_path, check=True)
    execution = PlanExecution(plan.of(resolved))
    golden = execution.load(execution.plan.step("golden"))
    for image, scores in zip(golden.inputs["data"], golden.outputs["out"], strict=True):
        (tmp_path / "image").write_bytes(image.tobytes())
        command = [tmp_path / "example", tmp_path / "image"]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        label, *printed = ran.stdout.split()
        assert label == "out_0:"
        assert np.array_equal(np.array(printed, np.float32), scores.reshape(-1)[:10])


@pytest.mark.slow
def test_python_lines_run(tmp_path: Path) -> None:
    """Those of the page, for a small recipe's package, without bitkiln."""
    try:
        host.detect()
    except ValueError as error:
        pytest.skip(f"needs a package for this machine: {error}")
    done = warm.run("build", f"recipe=ci/{SMALL}", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.copytree(ROOT / "artifacts/packages" / SMALL, tmp_path, dirs_exist_ok=True)
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    (taken,) = manifest["inputs"]
    shape, code = tuple(taken["shape"]), block(PACKAGING, "python", "import numpy")
    code = code.replace(RECIPE, SMALL).replace("(1, 3, 224, 224)", str(shape))
    code = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{code}"
    ran = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert 0 <= int(ran.stdout) < np.prod(manifest["outputs"][0]["shape"])
