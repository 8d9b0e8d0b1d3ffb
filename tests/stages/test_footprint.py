"""Weights are summed, feature maps counted while something still needs them."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from stages.dialect import integer
from stages.dialect.padding import NO_PADDING
from stages.graph.builder import ModelBuilder
from stages.importing import run
from stages.importing.zoo import build
from stages.kinds import Model
from stages.numerics.rescale import rescale
from stages.options import ImportOptions, ModelFormat, ZooName, ZooOptions
from stages.quantizing.footprint import Footprint, footprint


def residual() -> Model:
    """x [1, 4, 4, 8] → conv of 16 channels → conv back to 8 → + x."""
    m = ModelBuilder()
    x = m.input("x", (1, 8, 4, 4), "float32")
    wide = m.tensor("wide", np.ones((16, 8, 1, 1), np.float32))
    back = m.tensor("back", np.ones((8, 16, 1, 1), np.float32))
    y = m.emit(relax.op.nn.conv2d(x, wide), "conv1")
    y = m.emit(relax.op.nn.relu(y), "relu")
    y = m.emit(relax.op.nn.conv2d(y, back), "conv2")
    y = m.emit(relax.op.add(y, x), "add")
    return m.model([y], ["y"])


def test_a_residual_keeps_the_input_alive() -> None:
    """At the addition: the input, the wide tensor, and the sum, 4 bytes a number."""
    found = footprint(residual())
    assert found == Footprint(
        weights=4 * (16 * 8 + 8 * 16), feature_maps=4 * 16 * (8 + 16 + 8), fullest="add"
    )
    assert found.total == found.weights + found.feature_maps


def test_accumulators_and_layouts_take_no_memory() -> None:
    m = ModelBuilder()
    x = m.input("x", (1, 8, 4, 4), "int8")
    weights = m.tensor("w", np.ones((16, 1, 1, 8), np.int8))
    scale = m.tensor("scale", np.ones(16, np.float32))
    y = m.emit(relax.op.permute_dims(x, [0, 2, 3, 1]), "nhwc")
    y = m.emit(
        integer.conv2d(
            y, weights, strides=[1, 1], padding=NO_PADDING, groups=1,
            data_zero_point=0, weight_zero_point=0,
        ),
        "sums",
    )  # fmt: skip
    y = m.emit(rescale(y, scale, zero_point=0, low=-128, high=127, dtype="int8"), "conv")
    y = m.emit(relax.op.permute_dims(y, [0, 3, 1, 2]), "nchw")
    found = footprint(m.model([y], ["y"]))
    assert found == Footprint(16 * 8 + 16 * 4, 16 * (8 + 16), "conv")


def test_what_nothing_needs_any_more_is_free() -> None:
    """A chain of pools holds two tensors at a time."""
    m = ModelBuilder()
    x = m.input("x", (1, 1, 16, 16), "float32")
    for index in range(3):
        x = m.emit(relax.op.nn.max_pool2d(x, [2, 2], strides=[2, 2]), f"pool{index}")
    found = footprint(m.model([x], ["y"]))
    assert found == Footprint(0, 4 * (256 + 64), "pool0")


@pytest.mark.parametrize("name", ["mobilenet_v1", "mobilenet_v2", "resnet18"])
def test_eight_bits_take_a_quarter_of_float32(name: ZooName) -> None:
    """Jain et al. report 67 to 74 percent less; only the float32 input and output stay."""

    def of(form: ModelFormat) -> Footprint:
        source = build(options=ZooOptions(name=name, format=form, image_size=64))
        return footprint(run(source=source, options=ImportOptions()))

    real, quantized = of("float"), of("qdq")
    assert 0.25 <= quantized.weights / real.weights < 0.27
    assert 0.25 <= quantized.feature_maps / real.feature_maps < 0.35
