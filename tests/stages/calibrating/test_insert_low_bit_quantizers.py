"""Fewer than 8 bits: the integer form is exact to the float32 model with its quantizers."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from stages import quantizing
from stages.calibrating import run
from stages.calibrating.insert_low_bit_quantizers import weight_scale
from stages.dialect.calls import attributes, is_op
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.importing import run as import_onnx
from stages.importing.zoo import build
from stages.kinds import Array, Golden, Model
from stages.options import (
    ActivationScheme,
    CalibrateOptions,
    ImportOptions,
    WeightScheme,
    ZooOptions,
)
from tests.stages.calibrating.digits import FITTED, calibration, digits, network


def scheme(a: int, w: int, **changes: Any) -> CalibrateOptions:
    return CalibrateOptions(
        activations=ActivationScheme.model_validate({"bits": a}),
        weights=WeightScheme.model_validate({"bits": w, **changes}),
        method="mse",
    )


@cache
def residual_net() -> tuple[Model, Golden]:
    source = build(options=ZooOptions(name="residual_block", format="float", image_size=16))
    images = np.random.default_rng(0).integers(0, 256, (8, 1, 3, 16, 16)) / np.float32(255)
    model = import_onnx(source=source, options=ImportOptions())
    return model, Golden({"data": images.astype(np.float32)}, {})


@pytest.mark.parametrize(("a", "w"), [*product((1, 2, 3), (1, 2, 3)), (4, 4), (8, 2), (2, 8)])
def test_integers_are_exact_to_the_quantized_float_model(a: int, w: int) -> None:
    model, samples = residual_net()
    simulated = run(model=model, samples=samples, options=scheme(a, w))
    integers = quantizing.run(model=simulated)
    for image in samples.inputs["data"][:3]:
        expected = interpret.run(simulated, {"data": image})["out"]
        found = interpret.run(integers, {"data": image})["out"]
        np.testing.assert_array_equal(found, expected)
        assert np.unique(expected).size > 5


def test_inner_layers_have_the_bits_asked_for_and_the_ends_eight() -> None:
    model, samples = residual_net()
    made = run(model=model, samples=samples, options=scheme(2, 1))
    calls = {binding.var: binding.value for binding in bindings_of(made.module["main"])}
    widths = {}
    for variable, call in calls.items():
        if is_op(call, "relax.nn.conv2d") or is_op(call, "relax.matmul"):
            operands = [calls[each] for each in call.args[:2]]
            while is_op(operands[0], "relax.reshape"):
                operands[0] = calls[operands[0].args[0]]
            widths[str(variable.name)] = [attributes(each).get("bits", 1) for each in operands]
    assert widths == {
        "conv1": [8, 8],
        "layer1.0.conv1": [2, 1],
        "layer1.0.conv2": [2, 1],
        "layer1.0.downsample": [2, 1],
        "fc": [8, 8],
    }
    assert str(made.module["main"].attrs["numerics"]) == "simulated"


def test_four_bits_still_read_digits() -> None:
    images, labels = digits()
    model = import_onnx(source=network(), options=ImportOptions())
    made = run(model=model, samples=calibration(), options=scheme(4, 4))
    found = [
        int(interpret.run(made, {"x": image[np.newaxis]})["out"].argmax())
        for image in images[FITTED:]
    ]
    assert (np.array(found) == labels[FITTED:]).mean() > 0.8


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("per_channel", [True, False])
def test_weight_scales_are_powers_of_two_of_little_error(bits: int, per_channel: bool) -> None:
    values = np.random.default_rng(bits).normal(size=(6, 4, 3, 3)).astype(np.float32)
    values[0] = 0
    scale = weight_scale(values, 0, bits, per_channel)
    assert scale.shape == ((6, 1, 1, 1) if per_channel else ())
    assert (np.frexp(scale)[0] == 0.5).all()
    levels = max((1 << (bits - 1)) - 1, 1)

    def error(step: Array) -> float:
        if bits == 1:
            return float(((values - np.where(values >= 0, step, -step)) ** 2).sum())
        return float(
            ((values - np.clip(np.rint(values / step), -levels, levels) * step) ** 2).sum()
        )

    assert error(scale) <= min(error(scale * 2), error(scale / 2))
