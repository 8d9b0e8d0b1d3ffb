"""The networks that come with the recipes read digits as their trainer does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from recipes.models.digits_data import (
    LOGITS,
    NAMES,
    RATES,
    TEST,
    TEST_IMAGES,
    load_digits,
    model_file,
)
from stages.graph import interpret
from stages.importing import Oracle, describe, executor, run
from stages.options import ImportOptions
from tests.stages.importing.graphs import execute_qonnx

Array = np.ndarray[Any, Any]

SOURCE = model_file("a2w2").read_bytes()
CLOSE = 1e-4
"""The largest difference of float32 sums taken in another order; the logits reach 13."""


@pytest.fixture(scope="module")
def test_digits() -> tuple[Array, Array]:
    data = np.load(TEST)
    return data["images"], data["labels"]


def logits(source: bytes, images: Array) -> Array:
    """What the imported graph gives in NumPy, [N, 10]: QONNX of all images at once."""
    execute = executor(source=source)
    if isinstance(execute, Oracle):
        return np.asarray(execute({"image": images})["out"])
    return np.concatenate([execute({"image": image})["out"] for image in images[:, np.newaxis]])


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_the_trainer_s_own(name: str, test_digits: tuple[Array, Array]) -> None:
    """Of quantized networks to the bit, as torch's float32 sums did not round."""
    images, labels = test_digits
    found = logits(model_file(name).read_bytes(), images)
    trainer_s = np.load(LOGITS)[name]
    if name == "float":
        np.testing.assert_allclose(found, trainer_s, rtol=0, atol=CLOSE)
    else:
        np.testing.assert_array_equal(found, trainer_s)
    np.testing.assert_array_equal(found.argmax(axis=1), trainer_s.argmax(axis=1))
    rates = json.loads(RATES.read_text())
    assert (found.argmax(axis=1) == labels).sum() == rates["right"][name]


def test_fewer_bits_cost_accuracy() -> None:
    """Those of activations do, on the average over weights of 1 to 3 bits."""
    right = json.loads(RATES.read_text())["right"]
    by_bits = [sum(right[f"a{a}w{w}"] for w in (1, 2, 3)) / 3 for a in (1, 2, 3)]
    assert by_bits[0] < min(by_bits[1:]) and max(by_bits) < right["float"]
    assert right["a1w1"] <= right["float"] - 5


def test_files_have_the_precisions_of_their_names() -> None:
    for name in NAMES[:-1]:
        layers = describe(source=model_file(name).read_bytes())["layers"]
        inner = (8, 8) if name == "int8" else (int(name[1]), int(name[3]))
        found = [(x["activations"]["bits"], x["weights"]["bits"]) for x in layers]
        assert found == [(8, 8), inner, inner, (8, 8)], name


def test_interpreter_and_qonnx_agree_with_the_trainer(test_digits: tuple[Array, Array]) -> None:
    images, trainer_s = test_digits[0], np.load(LOGITS)["a2w2"]
    model = run(source=SOURCE, options=ImportOptions())
    for image, wanted in zip(images[:20, np.newaxis], trainer_s, strict=False):
        np.testing.assert_array_equal(interpret.run(model, {"image": image})["out"][0], wanted)
    theirs = execute_qonnx(SOURCE, {"image": images[0, np.newaxis]})["out"]
    np.testing.assert_allclose(theirs[0], trainer_s[0], atol=CLOSE)


def test_the_test_digits_are_scikit_learn_s_and_held_out(test_digits: tuple[Array, Array]) -> None:
    pytest.importorskip("sklearn")
    images, labels = load_digits()
    np.testing.assert_array_equal(test_digits[0], images[:TEST_IMAGES])
    np.testing.assert_array_equal(test_digits[1], labels[:TEST_IMAGES])


@pytest.mark.parametrize("name", ["a1w1", "a2w3", "int8", "float"])
def test_a_network_trained_anew_is_written_as_it_predicts(
    name: str, test_digits: tuple[Array, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One epoch of a few digits, twice: equal bytes, and the file gives what torch does."""
    pytest.importorskip("torch", reason="pip install -e '.[peers]'")
    from recipes.models import digits_files, train_digits

    monkeypatch.setattr(train_digits, "EPOCHS", 1)
    monkeypatch.setattr(train_digits, "FINE_EPOCHS", 1)
    images, labels = test_digits
    nets = [train_digits.train(name, images[:96], labels[:96]) for _ in range(2)]
    first, second = map(digits_files.onnx_file, nets)
    assert first == second
    found = logits(first, images[320:])
    predicted = train_digits.predicted(nets[0], images[320:])
    np.testing.assert_allclose(found, predicted, atol=CLOSE if name == "float" else 0, rtol=0)


def test_an_unknown_network_is_refused() -> None:
    pytest.importorskip("torch", reason="pip install -e '.[peers]'")
    from recipes.models import train_digits

    with pytest.raises(SystemExit, match="no digits network is called a4w1; there are a1w1, "):
        train_digits.main(["a1w1", "a4w1"])
