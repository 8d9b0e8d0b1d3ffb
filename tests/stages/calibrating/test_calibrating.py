"""Post-training quantization: right answers, integers inside, one result whatever the machine."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from stages.calibrating import quantized, run
from stages.calibrating.calibration_methods import METHODS
from stages.dialect.calls import dtype_of
from stages.errors import StageError
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.importing import run as import_onnx
from stages.kinds import Array, Golden, Model
from stages.options import ActivationScheme, CalibrateOptions, ImportOptions, WeightScheme
from tests.stages.calibrating.digits import FITTED, calibration, digits, network
from tests.stages.importing.compiling import in_relax

SCHEMES = {
    "uint8 per channel": CalibrateOptions(),
    "uint8 per tensor": CalibrateOptions(weights=WeightScheme(granularity="per_tensor")),
    "uint8 asymmetric weights": CalibrateOptions(
        weights=WeightScheme(granularity="per_tensor", encoding="asymmetric")
    ),
    "int8 per channel": CalibrateOptions(activations=ActivationScheme(encoding="symmetric")),
}


@cache
def model() -> Model:
    return import_onnx(source=network(), options=ImportOptions())


@cache
def reference() -> Array:
    return answers(model())


@cache
def calibrated(options: CalibrateOptions) -> Model:
    return run(model=model(), samples=calibration(), options=options)


@cache
def answered(options: CalibrateOptions) -> Array:
    return answers(calibrated(options))


def answers(of: Model) -> Array:
    """Logits [120, 10] of the digits that were neither fitted nor calibrated on."""
    images, _ = digits()
    return np.stack(
        [interpret.run(of, {"x": image[np.newaxis]})["out"][0] for image in images[FITTED:]]
    )


def operators(of: Model) -> list[str]:
    values = [binding.value for binding in bindings_of(of.module["main"])]
    return [str(value.op.name).removeprefix("relax.") for value in values if hasattr(value, "op")]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("method", METHODS)
def test_digits_are_read_as_well_as_in_float(method: str, scheme: str) -> None:
    _, labels = digits()
    options = SCHEMES[scheme].model_copy(update={"method": method})
    found = answered(options).argmax(axis=1)
    expected = reference().argmax(axis=1)
    assert (expected == labels[FITTED:]).mean() >= 0.9
    assert (found == expected).mean() >= 0.96
    assert (found == labels[FITTED:]).mean() >= (expected == labels[FITTED:]).mean() - 0.025


@pytest.mark.parametrize("scheme", SCHEMES)
def test_only_integers_between_the_ends(scheme: str) -> None:
    made = calibrated(SCHEMES[scheme])
    main = made.module["main"]
    floats = [b.var.name for b in bindings_of(main) if dtype_of(b.var.ty) == "float32"]
    assert len(floats) == 2  # the logits, and the variable that is returned
    found = operators(made)
    assert found[0] == "qnn.quantize_linear" and found[-1] == "qnn.dequantize_linear"
    assert found.count("qnn.conv2d") == 4 and found.count("qnn.dense") == 1
    assert str(main.attrs["numerics"]) == "onnx"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_integers_compute_what_the_fake_quantized_model_does(scheme: str) -> None:
    """A few outputs differ by a step where a float32 sum rounds across a tie."""
    options = SCHEMES[scheme]
    simulated = answers(quantized(model=model(), samples=calibration(), options=options))
    found = answered(options)
    step = np.diff(np.unique(simulated)).min()
    difference = np.abs(found - simulated) / step
    assert difference.max() < 2.5
    assert (difference > 0.5).mean() < 0.02


def test_the_compiled_model_computes_the_same() -> None:
    made = calibrated(CalibrateOptions())
    for image in digits()[0][FITTED : FITTED + 3]:
        inputs = {"x": image[np.newaxis]}
        np.testing.assert_array_equal(in_relax(made, inputs), interpret.run(made, inputs)["out"])


def test_every_layer_keeps_its_name() -> None:
    made = calibrated(CalibrateOptions())
    names = {str(binding.var.name).split(".")[0] for binding in bindings_of(made.module["main"])}
    assert {"conv1", "depthwise", "pointwise", "conv2", "fc", "residual"} <= names


def test_equal_samples_give_equal_models_in_any_order() -> None:
    first = run(model=model(), samples=calibration(), options=CalibrateOptions(method="mse"))
    turned = Golden(inputs={"x": calibration().inputs["x"][::-1]}, outputs={})
    second = run(model=model(), samples=turned, options=CalibrateOptions(method="mse"))
    assert str(first.module.script()) == str(second.module.script())
    for name, value in first.params.items():
        np.testing.assert_array_equal(value, second.params[name])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "the calibration data has the inputs [], and the model ['x']"),
        ({"x": np.zeros((0, 1, 1, 8, 8), np.float32)}, "needs as many, and at least one"),
        ({"x": np.zeros((3, 1, 8, 8), np.float32)}, "samples of shape [1, 8, 8], and the model"),
        ({"x": np.full((1, 1, 1, 8, 8), np.nan, np.float32)}, "infinite or NaN on the calibration"),
    ],
)
def test_data_that_does_not_fit_is_refused(inputs: dict[str, Array], message: str) -> None:
    with pytest.raises(StageError) as caught:
        run(model=model(), samples=Golden(inputs, {}), options=CalibrateOptions())
    assert message in str(caught.value)
