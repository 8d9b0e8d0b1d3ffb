"""Float convolutions of integer models: in vectors of output channels, and with the same bits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from hw.profile import Hardware
from stages import quantizing
from stages.kinds import Model
from stages.qnn import interpret
from stages.qnn.builder import needed_bindings
from stages.quantizing.channels_last import channels_last
from tests.stages.packaging.programs import assert_exact
from tests.stages.packaging.test_plain import Net, op
from tests.targets import AARCH64, AVX2, AVX512BW, skip_unless_runnable

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "window": ((1, 5, 9, 7), (20, 5, 3, 3), {"padding": (1, 0, 2, 1)}),
    "strides": ((2, 5, 9, 7), (33, 5, 3, 2), {"strides": (2, 1), "padding": 1}),
    "dilation": ((1, 3, 12, 12), (16, 3, 3, 3), {"dilation": (2, 3)}),
    "point": ((1, 17, 4, 7), (64, 17, 1, 1), {}),
    "depthwise": ((1, 24, 7, 14), (24, 1, 3, 3), {"groups": 24, "padding": 1}),
    "multiplier": ((1, 6, 7, 8), (12, 1, 3, 3), {"groups": 6, "strides": 2}),
    "groups": ((1, 6, 7, 8), (12, 3, 3, 3), {"groups": 2}),
}


def model_of(name: str) -> tuple[Net, Model]:
    """Floats of a graph input, a convolution, a bias per channel and ReLU."""
    shape, filters, attrs = CASES[name]
    net = Net(shape)
    x = net.emit(op.astype(net.x, "float32"), "real")
    weight = net.builder.tensor("w", net.rng.normal(size=filters).astype(np.float32))
    x = net.emit(op.nn.conv2d(x, weight, **attrs), "conv")
    bias = net.rng.normal(size=(1, filters[0], 1, 1)).astype(np.float32)
    x = net.emit(op.add(x, net.builder.tensor("b", bias)), "moved")
    return net, net.model(net.emit(op.nn.relu(x), "relu"))


def operators(model: Model) -> Counter[str]:
    calls = [binding.value for binding in needed_bindings(model.module["main"])]
    return Counter(str(call.op.name) for call in calls if hasattr(call, "op"))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("hardware", (AVX2, AVX512BW, AARCH64), ids=lambda item: item.name)
def test_float_convolutions_keep_their_bits(name: str, hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    net, model = model_of(name)
    assert_exact(model, net.inputs(), hardware)


@pytest.mark.parametrize("name", CASES)
def test_convolutions_are_turned_where_that_makes_vectors(name: str) -> None:
    net, model = model_of(name)
    turned = channels_last(model)
    is_kept = name == "groups"
    assert operators(turned)["relax.nn.conv2d"] == is_kept
    assert operators(turned)["relax.qnn.direct_conv2d"] == 1 - is_kept
    inputs = net.inputs()
    (expected,) = interpret.run(model, inputs).values()
    (found,) = interpret.run(turned, inputs).values()
    np.testing.assert_array_equal(found, expected)


def test_transposes_between_convolutions_cancel() -> None:
    """Also behind a bias and an activation: one is left at either end."""
    net = Net((1, 4, 6, 6))
    x: Any = net.emit(op.astype(net.x, "float32"), "real")
    for number in range(3):
        weight = net.rng.normal(size=(4, 4, 3, 3)).astype(np.float32)
        x = net.emit(
            op.nn.conv2d(x, net.builder.tensor(f"w{number}", weight), padding=1), f"c{number}"
        )
        bias = net.rng.normal(size=(1, 4, 1, 1)).astype(np.float32)
        x = net.emit(op.add(x, net.builder.tensor(f"b{number}", bias)), f"m{number}")
        x = net.emit(op.nn.relu(x), f"r{number}")
    found = operators(quantizing.run(model=net.model(x)))
    assert found["relax.permute_dims"] == 2
    assert found["relax.qnn.direct_conv2d"] == 3
