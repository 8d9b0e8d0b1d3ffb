"""Layers of a calibrated model, put back into float32 one at a time."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from stages import calibrating
from stages.calibrating.layer_pairs import Layer, LayerPairs
from stages.graph import interpret
from stages.importing import run as import_onnx
from stages.kinds import Model
from stages.options import ActivationScheme, CalibrateOptions, ImportOptions, WeightScheme
from tests.stages.calibrating.digits import calibration, network

WIDE = CalibrateOptions()
NARROW = CalibrateOptions(activations=ActivationScheme(bits=2), weights=WeightScheme(bits=1))
BOTH = pytest.mark.parametrize("options", [WIDE, NARROW], ids=["int8", "A2W1"])


@cache
def source() -> Model:
    return import_onnx(source=network(), options=ImportOptions())


@cache
def calibrated(options: CalibrateOptions) -> Model:
    return calibrating.run(model=source(), samples=calibration(8), options=options)


@cache
def pair(options: CalibrateOptions) -> LayerPairs:
    made = calibrated(options)
    return LayerPairs(*calibrating.in_float(model=source(), calibrated=made, options=options))


def sample(at: int = 3) -> dict[str, np.ndarray]:
    return {name: values[at] for name, values in calibration(8).inputs.items()}


@BOTH
def test_the_quantizers_are_those_of_the_calibrated_model(options: CalibrateOptions) -> None:
    """What it tells of its ranges is enough to make it again, bit by bit."""
    both, wanted = pair(options), interpret.run(calibrated(options), sample())
    given = both.outputs(both.values(sample()))
    assert list(given) == list(wanted) == ["out"]
    assert np.array_equal(given["out"], wanted["out"])


@BOTH
def test_layers_are_called_as_their_products_and_sums(options: CalibrateOptions) -> None:
    layers = pair(options).layers
    assert [layer.name for layer in layers] == [
        "conv1", "depthwise", "pointwise", "residual", "conv2", "fc",
    ]  # fmt: skip
    inner = 8 if options is WIDE else 1
    assert [layer.weight_bits for layer in layers] == [8, 8, inner, None, inner, 8]
    assert [layer.end for layer in layers][:4] == ["relu6", "relu", "pointwise.bias", "relu2"]


@BOTH
def test_all_layers_in_float_are_the_float_model(options: CalibrateOptions) -> None:
    """All that is left rounded is the graph's input, here by 8 bits."""
    both = pair(options)
    every = Layer("every", [], "")
    for layer in both.layers:
        every.constants |= layer.constants
        every.quantizers |= layer.quantizers
    values = both.values(sample())
    name = "x.dequantized" if options is WIDE else "x.a8"
    rounded = next(value for each, value in values.items() if str(each.name) == name)
    given = both.outputs({**values, **both.without(every, values)})["out"]
    wanted = interpret.run(both.in_float, {"x": rounded})["out"]
    assert np.array_equal(given, wanted)
    assert not np.array_equal(given, both.outputs(values)["out"])


@BOTH
def test_one_layer_in_float_is_that_layer_alone(options: CalibrateOptions) -> None:
    """It computes what the float model's layer does of what it reads; those before stay."""
    both = pair(options)
    values = both.values(sample())
    layer = next(each for each in both.layers if each.name == "depthwise")
    changed = both.without(layer, values)
    names = {str(each.name) for each in changed}
    assert not names & {"conv1", "relu6", "relu6.dequantized", "relu6.a8"}
    assert {"depthwise", "relu", "pointwise", "conv2", "fc"} <= names
    read = next(v for each, v in values.items() if str(each.name).startswith("relu6.") and
                str(each.name) in ("relu6.dequantized", "relu6.a8"))  # fmt: skip
    seen: dict[str, np.ndarray] = {}

    def swap(variable: object, value: np.ndarray) -> np.ndarray:
        seen[str(variable.name)] = read if str(variable.name) == "relu6" else value  # type: ignore[attr-defined]
        return seen[str(variable.name)]  # type: ignore[attr-defined]

    interpret.run(both.in_float, sample(), change=swap)
    assert np.array_equal(both.given(layer, {**values, **changed}), seen["relu"])
