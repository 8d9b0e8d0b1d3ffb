"""QDQ islands beside ONNX Runtime 1.32's default session, over shapes, axes, opsets and scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stages.importing.onnx.integer_graphs import build, compare, random
from tests.stages.importing.onnx.random_operators import has_vnni
from tests.stages.importing.onnx.test_qdq_files import SEEDS, Graph

pytestmark = pytest.mark.skipif(not has_vnni(), reason="references are those of x86 with VNNI")
SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)
DTYPES = st.sampled_from(["uint8", "int8"])


@settings(max_examples=40, deadline=None)
@given(
    shape=SHAPES,
    axis=st.integers(-4, 3),
    opset=st.sampled_from([11, 12, 13, 17, 21]),
    dtype=DTYPES,
    scale=st.sampled_from([1 / 256, 1 / 255, 0.002, 0.0005, 0.02]),
    seed=SEEDS,
)
def test_softmax(
    shape: tuple[int, ...], axis: int, opset: int, dtype: str, scale: float, seed: int
) -> None:
    """QLinearSoftmax along any axis; before opset 13 over all from the axis on."""
    net, axis = Graph(seed, dtype), axis % len(shape)
    y = net.apply("Softmax", [net.input("x", shape)], "y", axis=axis)
    zero_point = int(np.iinfo(dtype).min)
    left = net.check(y, len(shape), scale=scale, zero_point=zero_point, opset=opset)
    assert "relax.qnn.qlinear_softmax" in left and "relax.qnn.softmax" not in left


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_resize_linear(data: st.DataObject) -> None:
    """All levels: float sums of corners break ties as ONNX Runtime's do."""
    draw = data.draw
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=2, max_size=4)))
    spatial = draw(st.sampled_from([(1, 2), (2, 3)])) if len(shape) == 4 else range(len(shape))
    factors = st.sampled_from([1, 2, 3, 0.5, 1.7, 4])
    scales = [draw(factors) if axis in spatial else 1 for axis in range(len(shape))]
    scales = [max(s, 1 / extent) for s, extent in zip(scales, shape, strict=True)]
    modes = ["half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric"]
    net = Graph(draw(SEEDS), draw(DTYPES))
    net.constants["scales"] = np.array(scales, np.float32)
    attributes: dict[str, Any] = {"coordinate_transformation_mode": draw(st.sampled_from(modes))}
    x = net.input("x", shape, 0.04)
    y = net.apply("Resize", [x, "", "scales"], "y", mode="linear", **attributes)
    net.check(y, len(shape), scale=draw(st.sampled_from([0.04, 0.03])), opset=19)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_reductions(data: st.DataObject) -> None:
    """All levels, at ties too: a mean of levels lies in the middle of two more often than not."""
    draw = data.draw
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1).map(sorted))
    opset, keepdims = draw(st.sampled_from([13, 18])), draw(st.integers(0, 1))
    op = draw(st.sampled_from(["ReduceMean", "ReduceSum"]))
    net = Graph(draw(SEEDS), draw(DTYPES))
    operands = [net.input("x", shape, 0.03)]
    attributes: dict[str, Any] = {"keepdims": keepdims}
    if op == "ReduceSum" or opset == 18:
        net.constants["axes"] = np.array(axes, np.int64)
        operands.append("axes")
    else:
        attributes["axes"] = axes
    rank = len(shape) if keepdims else len(shape) - len(axes)
    y = net.apply(op, operands, "y", **attributes)
    net.check(y, rank, scale=draw(st.sampled_from([0.03, 0.015, 0.06])), opset=opset)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_float_sums_of_pixels(data: st.DataObject) -> None:
    """An int8 tensor that two nodes read is added up in floats: every level, ties as well.

    Steps are whole multiples of a sum's, so that one sum of so many is a tie.
    """
    draw, is_line = data.draw, data.draw(st.booleans())
    depth = draw(st.sampled_from([1, 3, 16, 64, 127, 128, 129, 200, 300]))
    outputs = draw(st.sampled_from([2, 5, 16, 40]))
    spatial = (draw(st.sampled_from([2, 7, 20, 50, 70, 150])),) if is_line else (5, 9)
    net, stride = Graph(draw(SEEDS), "int8"), draw(st.sampled_from([1, 1, 2]))
    x_scale, w_scale, ratio = 0.04, 0.013, draw(st.sampled_from([16, 50, 128]))
    weight = net.draw.rng.integers(-127, 128, (outputs, depth, *[1] * len(spatial)))
    net.constants["w"] = weight.astype(np.int8)
    net.inputs["x"] = ("float32", (1, depth, *spatial))
    x = net.dequantize(net.quantize("x", x_scale, draw(st.integers(-20, 20))))
    again = net.apply("Neg", [x], "again")
    net.grid("w", w_scale, np.int8(0))
    w = net.dequantize("w")
    attributes = {"kernel_shape": [1] * len(spatial), "strides": [stride] * len(spatial)}
    y = net.apply("Conv", [x, w], "y", **attributes)
    y = net.dequantize(net.quantize(y, float(np.float32(x_scale * w_scale)) * ratio, 3))
    given = {name: ("float32", len(spatial) + 2) for name in (again, y)}
    source = build(net.nodes, net.inputs, net.constants, given, opset=17)
    feeds = {"x": random(net.draw.rng, "float32", net.inputs["x"][1])}
    compare(source, feeds, fuse=True, compiled=False)


def test_a_constant_that_is_repeated_for_every_channel() -> None:
    """Slopes of PRelu that exporters repeat: a function of a byte is looked up."""
    net = Graph(1, "int8")
    net.constants["slopes"] = np.full((4, 1, 1), 0.25, np.float32)
    y = net.apply("PRelu", [net.input("x", (1, 4, 3, 5)), "slopes"], "y")
    left = net.check(y, 4)
    assert "relax.qnn.table" in left and "relax.qnn.prelu" not in left


READ_ONCE: dict[str, dict[str, Any]] = {
    "Add": {},
    "Mul": {},
    "AveragePool": {"kernel_shape": [2, 2], "strides": [1, 2]},
    "GlobalAveragePool": {},
    "Softmax": {"axis": -1},
}


@pytest.mark.parametrize("op", READ_ONCE)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_tensors_that_several_nodes_read(op: str, data: st.DataObject) -> None:
    """Such tensors of int8 stay that; operators between them and uint8 are not fused."""
    draw, shape = data.draw, (1, 4, 5, 6)
    net = Graph(draw(SEEDS), draw(st.sampled_from(["int8", "int8", "uint8"])))
    scales, zero_points = st.sampled_from([0.05, 0.04, 0.0625, 0.03125]), st.integers(0, 100)
    outputs = []

    def read_again(tensor: str) -> str:
        if draw(st.booleans()):
            outputs.append(net.apply("Neg", [tensor], f"{tensor}.again"))
        return tensor

    operands = []
    for name in ("a", "b")[: 2 if op in ("Add", "Mul") else 1]:
        net.inputs[name] = ("float32", shape)
        x = net.dequantize(net.quantize(name, draw(scales), draw(zero_points)))
        operands.append(read_again(x))
    y = net.apply(op, operands, "y", **READ_ONCE[op])
    scale = 1 / 256 if op == "Softmax" else draw(scales)
    zero_point = int(np.iinfo(net.dtype).min) if op == "Softmax" else draw(zero_points)
    y = read_again(net.dequantize(net.quantize(y, scale, zero_point)))
    outputs.append(net.apply("Abs", [y], "z"))
    given = {name: ("float32", 4) for name in outputs}
    opset = draw(st.sampled_from([17, 21]))
    source = build(net.nodes, net.inputs, net.constants, given, opset=opset)
    feeds = {name: random(net.draw.rng, "float32", shape) for name in net.inputs}
    compare(source, feeds, fuse=True, compiled=False)
