"""The network that comes with the recipes reads digits, and its training computes gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recipes.models import train_digits
from stages.importing import Oracle, describe, read, run
from stages.options import ImportOptions
from stages.qnn import interpret
from tests.stages.importing.graphs import execute_qonnx

MODELS = Path(train_digits.__file__).parent
SOURCE = (MODELS / "digits_a2w2.onnx").read_bytes()


def test_the_shipped_network_reads_the_shipped_digits() -> None:
    data = np.load(MODELS / "digits_test.npz")
    assert (data["images"].shape, data["images"].dtype) == ((360, 1, 8, 8), np.float32)
    answers = Oracle(read(SOURCE))({"image": data["images"]})["out"].argmax(axis=1)
    assert (answers == data["labels"]).mean() >= 0.93


def test_the_shipped_network_is_a2w2_inside_and_8_bits_at_its_ends() -> None:
    layers = describe(source=SOURCE)["layers"]
    assert [(x["activations"]["bits"], x["weights"]["bits"]) for x in layers] == [
        (8, 8),
        (2, 2),
        (2, 2),
        (8, 8),
    ]


def test_oracle_module_and_qonnx_agree_on_digits() -> None:
    images = np.load(MODELS / "digits_test.npz")["images"]
    execute, model = Oracle(read(SOURCE)), run(source=SOURCE, options=ImportOptions())
    for image in images[:20, np.newaxis]:
        mine = execute({"image": image})["out"]
        np.testing.assert_array_equal(interpret.run(model, {"image": image})["out"], mine)
    theirs = execute_qonnx(SOURCE, {"image": images[0, np.newaxis]})["out"]
    np.testing.assert_allclose(execute({"image": images[0, np.newaxis]})["out"], theirs, atol=0.05)


def test_the_test_digits_are_scikit_learn_s_and_held_out() -> None:
    pytest.importorskip("sklearn")
    images, labels = train_digits.load_digits()
    data = np.load(MODELS / "digits_test.npz")
    np.testing.assert_array_equal(data["images"], images[: train_digits.TEST_IMAGES])
    np.testing.assert_array_equal(data["labels"], labels[: train_digits.TEST_IMAGES])


def test_unpatch_is_the_transpose_of_patches() -> None:
    """<patches(x), y> = <x, unpatch(y)> for all x and y."""
    rng = np.random.default_rng(0)
    x = rng.integers(-5, 6, (2, 3, 4, 6)).astype(np.float32)
    y = rng.integers(-5, 6, (2, 4, 6, 27)).astype(np.float32)
    forward = (train_digits.patches(x) * y).sum()
    assert forward == (x * train_digits.unpatch(y, 3)).sum()


@pytest.mark.slow
def test_training_reaches_its_accuracy_on_a_few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr(train_digits, "EPOCHS", 3)
    images, labels = train_digits.load_digits()
    net = train_digits.train(images[360:], labels[360:])
    assert (net.forward(images[:360]).argmax(axis=1) == labels[:360]).mean() >= 0.85
