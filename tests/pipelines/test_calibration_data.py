"""A float model through the front door: calibrated on the user's files, built, exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.builds import plan, publication
from pipelines.builds.plan_execution import PlanExecution
from pipelines.errors import UserError
from pipelines.evaluation import verification
from pipelines.evaluation.calibration_data import Data
from pipelines.recipe import load
from pipelines.recipe.sections import Calibration
from pipelines.runners.package import Tensor
from pipelines.store.store import Store
from tests.stages.calibrating.digits import digits, network

RECIPE = """
model: {{file: digits.onnx}}
calibration: {{data: digits.npz, samples: 24{more}}}
{quantization}
hardware: x86_64
"""
INPUT = Tensor("x", "float32", (1, 1, 8, 8), None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("digits")
    (made / "digits.onnx").write_bytes(network())
    np.savez(made / "digits.npz", images=digits()[0][:40])
    return made


def data(path: Path, samples: int = 100, seed: int = 0) -> Data:
    return Data(Calibration(data=path, samples=samples, seed=seed), {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "quantization",
    ["", "quantization: {activations: {bits: 2}, weights: {bits: 2, encoding: signed}}"],
    ids=["int8", "A2W2"],
)
def test_every_stage_equals_the_calibrated_model(
    quantization: str, folder: Path, tmp_path: Path
) -> None:
    path = folder / f"r{len(quantization)}.yaml"
    path.write_text(RECIPE.format(more=", method: mse", quantization=quantization))
    made = plan.of(load.load_recipe(str(path)))
    execution = PlanExecution(made, Store(tmp_path / "artifacts"))
    found = {name: items for name, items, _ in verification.after_stages(execution)}
    assert next(iter(found)) == "calibrating"
    assert {item.verdict for items in found.values() for item in items} == {"exact"}
    assert f"{made.recipe}.h" in execution.load(publication.package_step(made))


def test_the_seed_alone_decides_which_samples_are_used(folder: Path) -> None:
    every = data(folder / "digits.npz").read([INPUT])["x"]
    assert every.shape == (40, 1, 1, 8, 8)
    first, again, other = (
        data(folder / "digits.npz", 5, seed).read([INPUT])["x"] for seed in (1, 1, 2)
    )
    assert len(first) == 5 and np.array_equal(first, again) and not np.array_equal(first, other)


def test_the_digest_follows_the_files(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.full((8, 8), number, np.float32))
    before = data(tmp_path).digest()
    assert data(tmp_path).read([INPUT])["x"].shape == (3, 1, 1, 8, 8)
    assert data(tmp_path, 2).digest() != before
    (tmp_path / "notes.txt").write_text("not a sample")
    assert data(tmp_path).digest() == before
    np.save(tmp_path / "3.npy", np.zeros((8, 8), np.float32))
    assert data(tmp_path).digest() != before


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: (path / "a.txt").write_text("x"), "is not accepted as calibration data"),
        (lambda path: np.savez(path / "a.npz", other=np.zeros(3)), "has no array 'x'"),
        (lambda path: (path / "a").mkdir(), "holds no samples to calibrate with"),
    ],
)
def test_what_is_no_calibration_data(make: object, words: str, tmp_path: Path) -> None:
    make(tmp_path)  # type: ignore[operator]
    (path,) = tmp_path.iterdir()
    with pytest.raises(UserError, match=words):
        data(path).read([INPUT]) if path.suffix != ".txt" else data(path).digest()
