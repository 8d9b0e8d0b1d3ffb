"""`doit accuracy`: the package's rate, the source model's, and how far apart they may be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from pipelines.evaluation.reference_model import Reference
from recipes.models.digits_data import LOGITS, RATES
from stages.importing.onnx.domains import QONNX
from tests import warm
from tests.pipelines.fake_clone import ROOT, TOY, Clone

IMAGES = np.eye(6, dtype=np.float32).reshape(6, 2, 3)
LABELS = np.array([0, 1, 2, 3, 0, 0])
OURS = "toy: top1 66.67 % (4 of 6), in a test"
THEIRS = "source model: top1 66.67 % (4 of 6); all predictions equal the package's"


@pytest.fixture
def toy(clone: Clone) -> Clone:
    np.savez(clone.root / "recipes" / "data.npz", x=IMAGES, y=LABELS)
    clone.write("recipes/toy.yaml", f"{TOY}evaluation: {{data: data.npz, tolerance: 10}}\n")
    return clone


def result(clone: Clone) -> Any:
    return json.loads((clone.root / "r.json").read_text())


def test_both_rates_are_printed(toy: Clone) -> None:
    out, _ = toy.doit("accuracy", "recipe=toy", "json=r.json")
    assert out.splitlines()[-2:] == [OURS, THEIRS]
    found = result(toy)
    assert found["predictions"] == found["source"]["predictions"] == [0, 1, 2, 3, 4, 5]
    assert found["right"] == found["source"]["right"] == 4
    assert (found["differing"], found["difference"], found["tolerance"]) == ([], 0.0, 10.0)
    assert found["labels"] == LABELS.tolist()
    out, _ = toy.doit("accuracy", "recipe=toy", "samples=4")
    assert out.splitlines()[-2] == "toy: top1 100.00 % (4 of 4), in a test"


def test_top5(toy: Clone) -> None:
    out, _ = toy.doit("accuracy", "recipe=toy", "evaluation.metric=top5")
    assert out.splitlines()[-2] == "toy: top5 100.00 % (6 of 6), in a test"


FLIP = """
import numpy as np

_executor = executor


def executor(**given):
    execute = _executor(**given)

    def _flipped(inputs):
        outputs = execute(inputs)
        flipped = outputs["y"].reshape(-1)[::-1].reshape(outputs["y"].shape)
        return {"y": flipped if inputs["x"].reshape(-1).argmax() < FLIPPED else outputs["y"]}

    return _flipped
"""


def flip(clone: Clone, count: int) -> None:
    """Let the source model answer the first samples the other way round."""
    path = clone.root / "stages" / "importing" / "__init__.py"
    path.write_text(path.read_text() + FLIP.replace("FLIPPED", str(count)))


def test_differences_are_counted_and_those_beyond_tolerance_fail(toy: Clone) -> None:
    flip(toy, 2)  # samples 0 and 1, which the package has right
    out, err = toy.doit("accuracy", "recipe=toy", "json=r.json", expect=1)
    assert out.splitlines()[-2:] == [
        OURS,
        "source model: top1 33.33 % (2 of 6); 2 of 6 predictions differ from the package's: "
        "sample 0, 1",
    ]
    assert err.splitlines()[:2] == [
        "written: r.json",
        "ERROR: recipes/toy.yaml:6:41: evaluation.tolerance: package and source model differ by "
        "33.33 points of top1, and 10 are tolerated; `doit verify recipe=toy` says which stage "
        "departs",
    ]
    assert result(toy)["differing"] == [0, 1]
    toy.doit("accuracy", "recipe=toy", "evaluation.tolerance=34")


def test_equal_rates_may_hide_different_predictions(toy: Clone) -> None:
    np.savez(toy.root / "recipes" / "data.npz", x=IMAGES, y=np.array([0, 4, 2, 3, 4, 5]))
    flip(toy, 2)  # sample 0 becomes wrong, sample 1 right
    out, _ = toy.doit("accuracy", "recipe=toy", "evaluation.tolerance=0")
    assert "5 of 6); 2 of 6 predictions differ from the package's: sample 0, 1" in out


def test_evaluation_is_wanted(clone: Clone) -> None:
    _, err = clone.doit("accuracy", "recipe=toy", expect=3)
    assert "evaluation: is missing: this command needs it" in err


def test_data_that_is_not_there(toy: Clone) -> None:
    _, err = toy.doit("accuracy", "recipe=toy", "evaluation.data=none", expect=3)
    assert "ERROR: command line: evaluation.data: the file none does not exist" in err


def test_a_label_beyond_the_classes(toy: Clone) -> None:
    np.savez(toy.root / "recipes" / "data.npz", x=IMAGES, y=LABELS + 3)
    _, err = toy.doit("accuracy", "recipe=toy", expect=3)
    assert err == (
        "ERROR: recipes/data.npz, sample 3: its label is 6, and the output has 6 classes, counted "
        "from 0\n"
    )


def test_a_labelled_folder(toy: Clone) -> None:
    folder = toy.root / "recipes" / "pictures"
    folder.mkdir()
    for index, image in enumerate(IMAGES):
        np.save(folder / f"{index}.npy", image)
    rows = [f"{index}.npy,{label}\n" for index, label in enumerate(LABELS)]
    (folder / "labels.csv").write_text("".join(rows))
    out, _ = toy.doit("accuracy", "recipe=toy", "evaluation.data=recipes/pictures")
    assert out.splitlines()[-2:] == [OURS, THEIRS]


DOMAINS = [helper.make_opsetid("", 13), helper.make_opsetid(QONNX, 1)]
"""Of QONNX graphs; others are executed one sample at a time."""


def graph(shape: list[int | str], target: list[int]) -> bytes:
    """A network that reshapes to `target` and multiplies."""
    weight = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Reshape", ["x", "target"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weight"], ["y"]),
    ]
    made = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [
            numpy_helper.from_array(np.array(target, np.int64), "target"),
            numpy_helper.from_array(weight, "weight"),
        ],
    )
    model = helper.make_model(made, opset_imports=DOMAINS, ir_version=8)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("target", "is_batched"), [([-1, 6], True), ([0, 6], True), ([1, -1], False), ([1, 6], False)]
)
@pytest.mark.parametrize("count", [1, 2, 35])
def test_batches_where_the_graph_takes_them(
    target: list[int], is_batched: bool, count: int
) -> None:
    reference = Reference.of_source(graph([1, 2, 3], target), "x", "y")
    samples = list(np.random.default_rng(1).standard_normal((count, 1, 2, 3)).astype(np.float32))
    wanted = [reference.one(sample) for sample in samples]
    sizes: list[int] = []
    execute = reference.execute

    def counted(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        sizes.append(len(inputs["x"]))
        return execute(inputs)

    reference.execute = counted
    found = list(reference.batches(iter(samples), most=16))
    np.testing.assert_allclose(np.stack(found), np.stack(wanted), rtol=1e-6, atol=1e-6)
    tried = [1, 1, 2] if count > 1 else []
    assert (
        sizes
        == tried
        + {
            (True, 1): [1],
            (True, 2): [2],
            (True, 35): [16, 16, 3],
            (False, 1): [1],
            (False, 2): [1, 1],
            (False, 35): [1] * 35,
        }[is_batched, count]
    )


def digits(target: Path, *arguments: str, recipe: str = "digits_a2w2_host") -> Any:
    words = ["accuracy", f"recipe={recipe}", f"json={target}", *arguments]
    done = warm.run(*words, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(target.read_text())


@pytest.mark.slow
def test_the_shipped_digits_as_arrays_and_as_pictures(tmp_path: Path) -> None:
    found = digits(tmp_path / "r.json")
    assert found["differing"] == [] and found["rate"] == found["source"]["rate"] > 0.95
    data = np.load(ROOT / "recipes/models/digits_test.npz")
    rows = []
    for index in range(40):
        pixels = np.rint(255 * data["images"][index, 0]).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{index}.png")
        rows.append(f"{index}.png,{data['labels'][index]}\n")
    (tmp_path / "labels.csv").write_text("".join(rows))
    pictures = digits(tmp_path / "p.json", f"evaluation.data={tmp_path}")
    assert pictures["predictions"] == found["predictions"][:40]
    assert pictures["differing"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a1w1", "a3w2", "int8"])
def test_packages_predict_what_the_trainer_does(name: str, tmp_path: Path) -> None:
    """For all digits; other tests compare the imported graphs of all networks."""
    formats = "package.formats=[shared]"
    found = digits(tmp_path / "r.json", formats, recipe=f"digits/digits_{name}_host")
    with np.load(LOGITS) as logits:
        assert found["predictions"] == logits[name].argmax(axis=1).tolist()
    assert found["differing"] == []
    assert found["right"] == json.loads(RATES.read_text())["right"][name]
