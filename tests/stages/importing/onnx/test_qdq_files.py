"""QDQ files: ONNX Runtime with all its fusions differs by at most one step, mostly by none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from stages.graph.bindings import bindings_of
from tests.stages.importing.onnx.integer_graphs import Array, build, compare, random
from tests.stages.importing.onnx.random_operators import Draw, has_vnni

SEEDS = st.integers(0, 2**32 - 1)
pytestmark = pytest.mark.skipif(not has_vnni(), reason="references are those of x86 with VNNI")


class Graph:
    """A QDQ graph under construction; tensors are named after the operators that give them."""

    def __init__(self, seed: int, dtype: str = "uint8") -> None:
        self.draw, self.dtype = Draw(seed), dtype
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.inputs: dict[str, tuple[str, tuple[int, ...]]] = {}

    def input(self, name: str, shape: tuple[int, ...], scale: float = 0.05) -> str:
        """A float input, quantized and dequantized."""
        self.inputs[name] = ("float32", shape)
        return self.dequantize(self.quantize(name, scale))

    def grid(self, name: str, scale: Any, zero_point: Any) -> list[str]:
        self.constants |= {f"{name}.s": np.asarray(scale, np.float32), f"{name}.z": zero_point}
        return [f"{name}.s", f"{name}.z"]

    def quantize(self, tensor: str, scale: float, zero_point: int | None = None) -> str:
        value = (
            self.draw.values(self.dtype) if zero_point is None else np.array(zero_point, self.dtype)
        )
        names = self.grid(f"{tensor}.q", scale, value)
        self.nodes.append(helper.make_node("QuantizeLinear", [tensor, *names], [f"{tensor}.q"]))
        return f"{tensor}.q"

    def dequantize(self, tensor: str) -> str:
        """Undo `quantize`."""
        names = [tensor, f"{tensor}.s", f"{tensor}.z"]
        self.nodes.append(helper.make_node("DequantizeLinear", names, [f"{tensor}.f"]))
        return f"{tensor}.f"

    def weight(self, name: str, shape: tuple[int, ...], axis: int | None, dtype: str) -> str:
        extents = () if axis is None else (shape[axis],)
        self.constants[name] = self.draw.values(dtype, shape)
        zero_points = np.zeros(extents, dtype)
        names = [name, *self.grid(name, self.draw.scale(0.001, 0.02, extents), zero_points)]
        attributes = {} if axis is None else {"axis": axis}
        self.nodes.append(helper.make_node("DequantizeLinear", names, [f"{name}.f"], **attributes))
        return f"{name}.f"

    def bias(self, name: str, channels: int, scale: Array) -> str:
        self.constants[name] = self.draw.bias((channels,))
        names = [name, *self.grid(name, scale, np.zeros(scale.shape, np.int32))]
        attributes = {"axis": 0} if scale.ndim else {}
        self.nodes.append(helper.make_node("DequantizeLinear", names, [f"{name}.f"], **attributes))
        return f"{name}.f"

    def apply(self, op: str, tensors: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, tensors, [name], **attributes))
        return name

    def check(
        self,
        tensor: str,
        rank: int,
        steps: float = 0,
        scale: float = 0.05,
        *,
        zero_point: int | None = None,
        opset: int = 21,
    ) -> set[str]:
        """Quantize a tensor and back, compare with ONNX Runtime, and give the operators left."""
        output = self.dequantize(self.quantize(tensor, scale, zero_point))
        outputs = {output: ("float32", rank)}
        source = build(self.nodes, self.inputs, self.constants, outputs, opset=opset)
        feeds = {
            name: random(self.draw.rng, "float32", shape)
            for name, (_, shape) in self.inputs.items()
        }
        near = steps * scale * 1.001
        model = compare(source, feeds, steps=near, fuse=True, compiled=False)
        values = [binding.value for binding in bindings_of(model.module["main"])]
        return {str(value.op.name) for value in values if hasattr(value, "op")}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@settings(max_examples=6)
@given(seed=SEEDS, per_channel=st.booleans(), group=st.sampled_from([1, 2, 8]))
def test_convolution_with_relu(dtype: str, seed: int, per_channel: bool, group: int) -> None:
    """A Relu that cuts within the grid keeps the runtime's convolution in float: ties differ."""
    net = Graph(seed, dtype)
    x = net.input("x", (1, 8, 7, 7))
    w = net.weight("w", (8, 8 // group, 3, 3), 0 if per_channel else None, "int8")
    bias = net.bias("b", 8, net.constants["w.s"] * np.float32(0.05))
    y = net.apply("Conv", [x, w, bias], "conv", pads=[1, 1, 1, 1], strides=[2, 2], group=group)
    lowest = int(np.iinfo(dtype).min)
    zero_point = lowest if seed % 2 else int(net.draw.values(dtype))
    left = net.check(
        net.apply("Relu", [y], "relu"), 4, zero_point != lowest, scale=0.3, zero_point=zero_point
    )
    assert "relax.qnn.rescale" in left and "relax.nn.conv2d" not in left


@pytest.mark.parametrize("per_channel", [False, True])
@settings(max_examples=4)
@given(seed=SEEDS, group=st.sampled_from([1, 2, 8]))
def test_convolution_in_one_dimension(per_channel: bool, seed: int, group: int) -> None:
    net = Graph(seed, "int8")
    x = net.input("x", (1, 8, 21))
    w = net.weight("w", (8, 8 // group, 3), 0 if per_channel else None, "int8")
    bias = net.bias("b", 8, net.constants["w.s"] * np.float32(0.05))
    y = net.apply("Conv", [x, w, bias], "conv", pads=[1, 1], strides=[2], group=group)
    left = net.check(net.apply("Relu", [y], "relu"), 3, scale=0.3, zero_point=-128)
    assert "relax.qnn.rescale" in left and "relax.nn.conv2d" not in left


@settings(max_examples=6)
@given(seed=SEEDS, transposed=st.booleans(), bias=st.booleans())
def test_gemm(seed: int, transposed: bool, bias: bool) -> None:
    net = Graph(seed, "int8")
    x = net.input("x", (5, 16))
    w = net.weight("w", (7, 16) if transposed else (16, 7), None, "int8")
    operands = [x, w]
    if bias:
        operands.append(net.bias("b", 7, net.constants["w.s"] * np.float32(0.05)))
    y = net.apply("Gemm", operands, "gemm", transB=int(transposed))
    assert "relax.matmul" not in net.check(y, 2, scale=0.3)


@settings(max_examples=6)
@given(seed=SEEDS)
def test_matmul_of_two_inputs(seed: int) -> None:
    net = Graph(seed)
    y = net.apply("MatMul", [net.input("a", (2, 3, 8)), net.input("b", (2, 8, 4))], "y")
    left = net.check(y, 3, scale=0.3)
    assert "relax.qnn.rescale" in left


@pytest.mark.parametrize("op", ["Add", "Mul"])
@settings(max_examples=6)
@given(seed=SEEDS)
def test_binary(op: str, seed: int) -> None:
    net = Graph(seed)
    y = net.apply(op, [net.input("a", (2, 3, 8)), net.input("b", (3, 1), 0.02)], "y")
    left = net.check(y, 3, scale=0.06)
    assert f"relax.qnn.qlinear_{op.lower()}" in left


UNARY: dict[str, dict[str, Any]] = {
    "Sigmoid": {},
    "Tanh": {},
    "LeakyRelu": {"alpha": 0.2},
    "HardSwish": {},
    "HardSigmoid": {},
    "Exp": {},
    "Erf": {},
    "Abs": {},
    "Elu": {},
}


@pytest.mark.parametrize("op", UNARY)
@settings(max_examples=6)
@given(seed=SEEDS)
def test_functions_of_one_byte(op: str, seed: int) -> None:
    net = Graph(seed, "int8")
    y = net.apply(op, [net.input("x", (3, 40))], "y", **UNARY[op])
    left = net.check(y, 2, scale=0.02)
    assert "relax.qnn.table" in left


POOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "average": ("AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "global": ("GlobalAveragePool", {}),
    "largest": ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "softmax": ("Softmax", {"axis": -1}),
}


@pytest.mark.parametrize("case", POOLS)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@settings(max_examples=6)
@given(seed=SEEDS)
def test_pools(case: str, dtype: str, seed: int) -> None:
    op, attributes = POOLS[case]
    net = Graph(seed, dtype)
    y = net.apply(op, [net.input("x", (1, 3, 8, 8))], "y", **attributes)
    left = net.check(y, 4, scale=1 / 256 if op == "Softmax" else 0.04)
    assert not left & {"relax.mean", "relax.nn.max_pool2d", "relax.qnn.softmax"}


@settings(max_examples=6)
@given(seed=SEEDS)
def test_values_that_move(seed: int) -> None:
    net = Graph(seed)
    x = net.input("x", (1, 4, 6, 6))
    y = net.apply("Transpose", [x], "turned", perm=[0, 2, 3, 1])
    net.constants["shape"] = np.array([1, 36, 4], np.int64)
    y = net.apply("Reshape", [y, "shape"], "rows")
    y = net.apply("Concat", [y, y], "both", axis=1)
    left = net.check(net.apply("Clip", [y], "clip"), 3, scale=0.05)
    assert "relax.qnn.quantize_linear" in left  # the input's own
    assert len([name for name in left if "linear" in name]) == 2


@settings(max_examples=6)
@given(seed=SEEDS)
def test_what_stays_float(seed: int) -> None:
    net = Graph(seed)
    a, b = net.input("a", (2, 3, 8)), net.input("b", (2, 3, 8), 0.03)
    y = net.apply("Sub", [a, b], "difference")
    left = net.check(y, 3, scale=0.05)
    assert "relax.subtract" in left


def test_weights_the_file_quantizes_are_integers() -> None:
    """Exporters of QAT write float weights, QuantizeLinear and DequantizeLinear."""
    rng = np.random.default_rng(2)
    net = Graph(2, "int8")
    x = net.input("x", (1, 4, 5, 5))
    net.constants["w"] = rng.normal(size=(6, 4, 3, 3)).astype(np.float32)
    scales = rng.uniform(0.01, 0.03, 6).astype(np.float32)
    names = net.grid("wq", scales, np.zeros(6, np.int8))
    net.nodes += [
        helper.make_node("QuantizeLinear", ["w", *names], ["wq"], axis=0),
        helper.make_node("DequantizeLinear", ["wq", *names], ["wf"], axis=0),
    ]
    left = net.check(net.apply("Conv", [x, "wf"], "conv"), 4, scale=0.2)
    assert "relax.qnn.rescale" in left and "relax.nn.conv2d" not in left


def test_a_whole_block_of_a_network() -> None:
    """Residual block with a projection: at most one step, in few places."""
    net = Graph(7, "int8")
    x = net.input("x", (1, 16, 10, 10))
    y = net.apply("Conv", [x, net.weight("w1", (24, 16, 3, 3), 0, "int8")], "c1", pads=[1] * 4)
    y = net.dequantize(net.quantize(net.apply("Relu", [y], "r1"), 0.3, -128))
    y = net.apply("Conv", [y, net.weight("w2", (24, 24, 3, 3), 0, "int8")], "c2", pads=[1] * 4)
    y = net.dequantize(net.quantize(y, 2.0))
    side = net.apply("Conv", [x, net.weight("w3", (24, 16, 1, 1), 0, "int8")], "c3")
    y = net.apply("Add", [y, net.dequantize(net.quantize(side, 0.2))], "sum")
    y = net.dequantize(net.quantize(net.apply("Relu", [y], "r2"), 1.0, -128))
    y = net.apply("GlobalAveragePool", [y], "mean")
    left = net.check(y, 4, scale=0.5)
    assert not left & {"relax.nn.conv2d", "relax.add.float32", "relax.nn.relu", "relax.mean"}
