"""ConvTranspose beside ONNX Runtime: in floats, and between quantizers on integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from stages.errors import StageError
from tests.stages.importing.onnx.integer_graphs import build, compare, imported
from tests.stages.importing.onnx.random_operators import has_vnni
from tests.stages.importing.onnx.test_qdq_files import SEEDS, Graph

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "as_wide_as_they_move": ((1, 3, 5, 6), (3, 4, 2, 2), {"strides": [2, 2]}),
    "decoder": (
        (1, 3, 5, 6),
        (3, 4, 3, 3),
        {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]},
    ),
    "uneven": (
        (2, 4, 5, 6),
        (4, 3, 4, 5),
        {"strides": [2, 3], "pads": [1, 2, 0, 3], "group": 2},
    ),
    "depthwise": (
        (1, 4, 5, 6),
        (4, 1, 4, 4),
        {"strides": [2, 2], "pads": [1] * 4, "group": 4},
    ),
    "dilated": ((1, 4, 5, 6), (4, 2, 3, 2), {"strides": [1, 3], "dilations": [2, 2]}),
    "with_gaps": ((1, 4, 5, 6), (4, 2, 3, 2), {"strides": [4, 5], "pads": [1, 0, 0, 0]}),
    "cut_off": ((1, 4, 9, 9), (4, 2, 3, 3), {"strides": [2, 2], "pads": [5, 5, 3, 4]}),
    "same_upper": ((1, 4, 9, 9), (4, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "same_lower": ((1, 4, 9, 9), (4, 2, 4, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    "valid": ((1, 4, 9, 9), (4, 2, 4, 3), {"strides": [2, 1], "auto_pad": "VALID"}),
    "stated": ((1, 4, 9, 9), (4, 2, 3, 3), {"strides": [2, 2], "output_shape": [18, 20]}),
    "line": ((1, 4, 9), (4, 2, 3), {"strides": [2], "pads": [1, 1]}),
    "dilated_line": ((1, 4, 9), (4, 2, 3), {"strides": [3], "dilations": [3], "pads": [0, 2]}),
}
"""Shapes of data and weights, and the attributes."""


def graph(shape: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, Any]) -> bytes:
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=weights).astype(np.float32),
        "b": rng.normal(size=weights[1] * attributes.get("group", 1)).astype(np.float32),
    }
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)
    inputs, outputs = {"x": ("float32", shape)}, {"y": ("float32", len(shape))}
    return build([node], inputs, constants, outputs)


@pytest.mark.parametrize("case", CASES)
def test_floats(case: str) -> None:
    shape, weights, attributes = CASES[case]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    compare(graph(shape, weights, attributes), {"x": x}, steps=1e-5, compiled=False)


@pytest.mark.skipif(not has_vnni(), reason="references are those of x86 with VNNI")
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("bias", ["none", "float", "int32"])
@settings(max_examples=4)
@given(
    seed=SEEDS,
    per_channel=st.booleans(),
    group=st.sampled_from([1, 2]),
    kernel=st.sampled_from([2, 3, 4]),
)
def test_between_quantizers(
    dtype: str, bias: str, seed: int, per_channel: bool, group: int, kernel: int
) -> None:
    """ONNX Runtime has no such operator on integers: its floats are at most one step away."""
    net = Graph(seed, dtype)
    operands = [net.input("x", (1, 8, 5, 6))]
    operands.append(net.weight("w", (8, 6, kernel, kernel), 1 if per_channel else None, "int8"))
    if bias == "int32":
        scale = np.resize(net.constants["w.s"] * np.float32(0.05), 6 * group if per_channel else ())
        operands.append(net.bias("b", 6 * group, scale))
    elif bias == "float":
        net.constants["b"] = net.draw.rng.normal(size=6 * group).astype(np.float32)
        operands.append("b")
    y = net.apply("ConvTranspose", operands, "up", strides=[2, 2], pads=[1, 0, 0, 1], group=group)
    left = net.check(net.apply("Relu", [y], "relu"), 4, steps=1, scale=0.3)
    assert "relax.qnn.rescale" in left
    assert not left & {"relax.nn.conv2d", "relax.add.float32", "relax.nn.relu"}


def test_depthwise_weights_with_a_scale_a_group_stay_integers() -> None:
    net = Graph(3, "int8")
    x, w = net.input("x", (1, 8, 5, 6)), net.weight("w", (8, 1, 2, 2), 0, "int8")
    y = net.apply("ConvTranspose", [x, w], "up", strides=[2, 2], group=8)
    assert "relax.qnn.rescale" in net.check(y, 4, steps=1, scale=0.3)


def test_weights_with_a_scale_an_input_channel_are_floats() -> None:
    net = Graph(3, "int8")
    x, w = net.input("x", (1, 8, 5, 6)), net.weight("w", (8, 3, 2, 2), 0, "int8")
    y = net.apply("ConvTranspose", [x, w], "up", strides=[2, 2])
    assert "relax.nn.conv2d" in net.check(y, 4, steps=1, scale=0.3)


@pytest.mark.parametrize(
    ("shape", "weights", "attributes", "wanted"),
    [
        ((1, 4, 3, 3, 3), (4, 2, 3, 3, 3), {}, "one and two dimensions are accepted"),
        ((1, 4, 5, 5), (2, 2, 3, 3), {}, r"weights of shape \[2, 2, 3, 3\] and 1 groups for 4"),
        ((1, 4, 5, 5), (4, 2, 3, 3), {"pads": [0, -1, 0, 0]}, "4 values of at least 0 are accept"),
        ((1, 4, 5, 5), (4, 2, 3, 3), {"strides": [0, 1]}, "2 values of at least 1 are accepted"),
        ((1, 4, 2, 2), (4, 2, 3, 3), {"pads": [9, 9, 9, 9]}, r"leave the extents \[-14, -14\]"),
        ((1, 4, 5, 5), (4, 2, 3, 3), {"dilations": [1 << 21, 1]}, "dilation or pad above 1,048"),
        ((1, 4, 5, 5), (4, 2, 3, 3), {"strides": [1 << 13, 1 << 13]}, "536,870,912 weights with"),
        ((1, 4, 5, 5), (4, 2, 0, 3), {}, r"has weights of shape \[4, 2, 0, 3\]"),
    ],
)
def test_what_is_refused(
    shape: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(StageError, match=wanted):
        imported(graph(shape, weights, attributes))
