"""Normalizations beside ONNX Runtime: in floats, and with parameters that are dequantized."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from stages.errors import StageError
from tests.stages.importing.onnx.integer_graphs import Array, build, compare, imported
from tests.stages.importing.onnx.random_operators import has_vnni
from tests.stages.importing.onnx.test_qdq_files import SEEDS, Graph

SHAPE = (2, 6, 5, 7)
CASES: dict[str, tuple[str, tuple[int, ...], dict[str, Any], int]] = {
    "last": ("LayerNormalization", (7,), {}, 17),
    "three": ("LayerNormalization", (6, 5, 7), {"axis": 1, "epsilon": 1e-3}, 17),
    "all": ("LayerNormalization", SHAPE, {"axis": -4}, 17),
    "instance": ("InstanceNormalization", (6,), {"epsilon": 1e-3}, 17),
    "group": ("GroupNormalization", (6,), {"num_groups": 3}, 21),
}
"""Operator, shape of its parameters, attributes, opset."""


def floats(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.normal(scale=2, size=shape).astype(np.float32)


@pytest.mark.parametrize("case", CASES)
def test_floats(case: str) -> None:
    op, extents, attributes, opset = CASES[case]
    rng = np.random.default_rng(0)
    node = helper.make_node(op, ["x", "g", "b"], ["y"], **attributes)
    constants = {"g": floats(rng, extents), "b": floats(rng, extents)}
    inputs, outputs = {"x": ("float32", SHAPE)}, {"y": ("float32", 4)}
    source = build([node], inputs, constants, outputs, opset=opset)
    compare(source, {"x": floats(rng, SHAPE) + 1}, steps=5e-6, compiled=False)


def test_mean_and_deviation_without_a_bias() -> None:
    node = helper.make_node("LayerNormalization", ["x", "g"], ["y", "mean", "factor"], axis=2)
    rng = np.random.default_rng(1)
    outputs = {name: ("float32", 4) for name in node.output}
    source = build([node], {"x": ("float32", SHAPE)}, {"g": floats(rng, (5, 7))}, outputs, opset=17)
    compare(source, {"x": floats(rng, SHAPE)}, steps=5e-6, compiled=False)


def dequantized(net: Graph, name: str, count: int) -> str:
    """Positive parameters as ONNX Runtime's quantizer stores them."""
    net.constants[name] = net.draw.rng.integers(1, 128, count).astype(np.int8)
    scale, zero_point = net.draw.scale(0.001, 0.02, ()), np.array(-1, np.int8)
    names = [name, *net.grid(name, scale, zero_point)]
    net.nodes.append(helper.make_node("DequantizeLinear", names, [f"{name}.f"]))
    return f"{name}.f"


@settings(max_examples=6)
@given(seed=SEEDS, shape=st.sampled_from([SHAPE, (3, 8), (1, 4, 9)]))
def test_dequantized_statistics_are_constants(seed: int, shape: tuple[int, ...]) -> None:
    """Bit for bit: ONNX Runtime takes the same steps."""
    net = Graph(seed)
    parameters = [dequantized(net, name, shape[1]) for name in "gbmv"]
    y = net.apply("BatchNormalization", ["x", *parameters], "y", epsilon=1e-3)
    source = build(
        net.nodes, {"x": ("float32", shape)}, net.constants, {y: ("float32", len(shape))}
    )
    compare(source, {"x": floats(net.draw.rng, shape)}, compiled=False)


@pytest.mark.skipif(not has_vnni(), reason="references are those of x86 with VNNI")
@settings(max_examples=6)
@given(seed=SEEDS)
def test_between_quantizers(seed: int) -> None:
    net = Graph(seed, "int8")
    x, scale = net.input("x", (1, 10, 32)), dequantized(net, "g", 32)
    net.constants["b"] = floats(net.draw.rng, (32,))
    y = net.apply("LayerNormalization", [x, scale, "b"], "y")
    assert "relax.mean" in net.check(y, 3, steps=1, scale=0.05)


@pytest.mark.parametrize(
    ("op", "attributes", "wanted"),
    [
        ("LayerNormalization", {"axis": 4}, "names axis 4 of a tensor of rank 4"),
        ("LayerNormalization", {"epsilon": -1.0}, "has the epsilon -1.0; 0 and more are accepted"),
        ("LayerNormalization", {"axis": 0}, "do not fit together"),
        ("InstanceNormalization", {}, r"has a parameter of shape \[5\]; 6 fit"),
        ("GroupNormalization", {"num_groups": 4}, "has 4 groups for 6 channels"),
    ],
)
def test_what_is_refused(op: str, attributes: dict[str, Any], wanted: str) -> None:
    node = helper.make_node(op, ["x", "g", "g"], ["y"], **attributes)
    constants = {"g": np.ones(5, np.float32)}
    source = build([node], {"x": ("float32", SHAPE)}, constants, {"y": ("float32", 4)})
    with pytest.raises(StageError, match=wanted):
        imported(source)
