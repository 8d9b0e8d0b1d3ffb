"""Every integer operator of ONNX and of ONNX Runtime: the runtime's own results, bit for bit.

ONNX Runtime's references are those of an x86 processor with VNNI; elsewhere its kernels may round
or saturate differently.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.stages.importing.integer_graphs import MICROSOFT, Array, build, compare, random

SEEDS = st.integers(0, 2**32 - 1)
BYTES = ("uint8", "int8")
PAIRS = (("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"))


def has_vnni() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    return platform.machine() == "x86_64" and cpuinfo.exists() and "vnni" in cpuinfo.read_text()


pytestmark = pytest.mark.skipif(not has_vnni(), reason="references are those of x86 with VNNI")


class Draw:
    """Parameters of random operators."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def scale(self, low: float = 0.001, high: float = 0.1, shape: Sequence[int] = ()) -> Array:
        """Scales, half the time round ones, whose results often lie just between two integers."""
        if self.rng.integers(2) and not shape:
            steps = np.array([1, 2, 3, 5, 6, 7, 8, 9]) / 10
            round_one = low + (high - low) * self.rng.choice(steps)
            return np.asarray(round(round_one, 3 if high > 0.01 else 6), np.float32)
        return np.asarray(self.rng.uniform(low, high, tuple(shape)), np.float32)

    def values(self, dtype: str, shape: Sequence[int] = ()) -> Array:
        return random(self.rng, dtype, shape)

    def bias(self, shape: Sequence[int]) -> Array:
        return self.rng.integers(-5000, 5000, tuple(shape)).astype(np.int32)


def node(op: str, inputs: str, domain: str = "", **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), ["y"], domain=domain, **attributes)


SHAPES = [
    ((2, 3, 40), (2, 3, 40)),
    ((2, 3, 40), (3, 1)),
    ((1,), (2, 3, 4)),
    ((2, 3, 4), (4,)),
    ((2, 1, 4), (3, 1)),
]


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", BYTES)
@settings(max_examples=6)
@given(seed=SEEDS, shapes=st.sampled_from(SHAPES))
def test_binary(op: str, dtype: str, seed: int, shapes: Any) -> None:
    draw = Draw(seed)
    constants = {
        "as": draw.scale(),
        "az": draw.values(dtype),
        "bs": draw.scale(),
        "bz": draw.values(dtype),
        "ys": draw.scale() if op == "QLinearAdd" else draw.scale(0.01, 1),
        "yz": draw.values(dtype),
    }
    inputs = {"a": (dtype, shapes[0]), "b": (dtype, shapes[1])}
    source = build(
        [node(op, "a as az b bs bz ys yz", MICROSOFT)], inputs, constants, {"y": (dtype, 3)}
    )
    feeds = {name: draw.values(*each) for name, each in inputs.items()}
    compare(source, feeds, compiled=seed % 8 == 0)


UNARY: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "sigmoid": ("QLinearSigmoid", (32, 16), {}),
    "leaky": ("QLinearLeakyRelu", (32, 16), {"alpha": 0.3}),
    "global": ("QLinearGlobalAveragePool", (2, 3, 8, 7), {"channels_last": 0}),
    "global line": ("QLinearGlobalAveragePool", (2, 3, 9), {"channels_last": 0}),
    "average": (
        "QLinearAveragePool",
        (1, 3, 8, 8),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "average of all": (
        "QLinearAveragePool",
        (1, 3, 8, 8),
        {
            "kernel_shape": [3, 2],
            "strides": [2, 1],
            "pads": [1, 1, 0, 1],
            "count_include_pad": 1,
            "ceil_mode": 1,
        },
    ),
    "average line": ("QLinearAveragePool", (2, 3, 17), {"kernel_shape": [4]}),
    "softmax": ("QLinearSoftmax", (5, 12), {"axis": -1, "opset": 13}),
    "softmax inside": ("QLinearSoftmax", (5, 12, 3), {"axis": 1, "opset": 13}),
    "softmax of old": ("QLinearSoftmax", (5, 12, 3), {"axis": 1, "opset": 11}),
}


@pytest.mark.parametrize("case", UNARY)
@pytest.mark.parametrize("dtype", BYTES)
@settings(max_examples=6)
@given(seed=SEEDS)
def test_unary(case: str, dtype: str, seed: int) -> None:
    op, shape, attributes = UNARY[case]
    draw = Draw(seed)
    constants = {
        "as": draw.scale(),
        "az": draw.values(dtype),
        "ys": draw.scale(1 / 300, 1 / 100),
        "yz": draw.values(dtype),
    }
    if op == "QLinearSoftmax":
        lowest = np.iinfo(dtype).min
        constants |= {"ys": np.array(1 / 256, np.float32), "yz": np.array(lowest, dtype)}
    source = build(
        [node(op, "a as az ys yz", MICROSOFT, **attributes)],
        {"a": (dtype, shape)},
        constants,
        {"y": (dtype, len(shape))},
    )
    compare(source, {"a": draw.values(dtype, shape)}, compiled=seed % 8 == 0)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "padded": ((1, 4, 7, 7), (6, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
    "strided": ((1, 4, 7, 7), (6, 4, 3, 3), {"strides": [2, 1], "pads": [0, 1, 2, 1]}),
    "same upper": ((2, 4, 7, 6), (6, 4, 2, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ((1, 4, 7, 6), (6, 4, 2, 3), {"auto_pad": "SAME_LOWER"}),
    "dilated groups": ((2, 6, 9, 9), (6, 2, 3, 2), {"group": 3, "dilations": [2, 1]}),
    "depthwise": ((1, 8, 9, 9), (8, 1, 3, 3), {"group": 8, "pads": [1, 1, 1, 1]}),
    "depthwise multiplied": ((1, 4, 9, 9), (8, 1, 3, 3), {"group": 4, "dilations": [2, 2]}),
    "line": ((1, 8, 20), (5, 8, 3), {"pads": [1, 2], "strides": [2]}),
    "pointwise": ((1, 16, 5, 5), (8, 16, 1, 1), {}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@settings(max_examples=6)
@given(seed=SEEDS, per_channel=st.booleans(), bias=st.booleans())
def test_convolution(
    case: str, pair: tuple[str, str], seed: int, per_channel: bool, bias: bool
) -> None:
    shape, weight_shape, attributes = CONVOLUTIONS[case]
    draw, (dtype, weights) = Draw(seed), pair
    channels = (weight_shape[0],) if per_channel else ()
    zeros = np.zeros(channels, weights)
    constants = {
        "xs": draw.scale(0.01),
        "xz": draw.values(dtype),
        "w": draw.values(weights, weight_shape),
        "ws": draw.scale(0.001, 0.02, channels),
        "wz": zeros if per_channel else draw.values(weights),
        "ys": draw.scale(0.1, 1),
        "yz": draw.values(dtype),
    }
    if bias:
        constants["b"] = draw.bias(weight_shape[:1])
    operands = "x xs xz w ws wz ys yz" + (" b" if bias else "")
    source = build(
        [node("QLinearConv", operands, **attributes)],
        {"x": (dtype, shape)},
        constants,
        {"y": (dtype, len(shape))},
    )
    compare(source, {"x": draw.values(dtype, shape)}, compiled=seed % 8 == 0)


PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], bool]] = {
    "matrix": ((5, 9), (9, 7), False),
    "per column": ((2, 5, 9), (9, 7), True),
    "batches": ((2, 3, 5, 9), (2, 3, 9, 7), False),
    "one batch": ((2, 5, 9), (1, 9, 7), False),
}


@pytest.mark.parametrize("case", PRODUCTS)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@settings(max_examples=6)
@given(seed=SEEDS, constant=st.booleans())
def test_product(case: str, pair: tuple[str, str], seed: int, constant: bool) -> None:
    left, right, per_column = PRODUCTS[case]
    draw, (dtype, weights) = Draw(seed), pair
    columns = right[-1:] if per_column else ()
    constants = {
        "as": draw.scale(0.01),
        "az": draw.values(dtype),
        "bs": draw.scale(0.001, 0.02, columns),
        "bz": np.zeros(columns, weights) if per_column else draw.values(weights),
        "ys": draw.scale(0.1, 1),
        "yz": draw.values(dtype),
    }
    inputs: dict[str, tuple[str, Sequence[int]]] = {"a": (dtype, left)}
    feeds = {"a": draw.values(dtype, left)}
    if constant:
        constants["b"] = draw.values(weights, right)
    else:
        inputs["b"], feeds["b"] = (weights, right), draw.values(weights, right)
    source = build(
        [node("QLinearMatMul", "a as az b bs bz ys yz")],
        inputs,
        constants,
        {"y": (dtype, len(left))},
    )
    compare(source, feeds, compiled=seed % 8 == 0)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@settings(max_examples=6)
@given(seed=SEEDS, per_column=st.booleans(), quantized=st.booleans(), turned=st.booleans())
def test_gemm(
    pair: tuple[str, str], seed: int, per_column: bool, quantized: bool, turned: bool
) -> None:
    draw, (dtype, weights) = Draw(seed), pair
    columns = (7,) if per_column else ()
    constants = {
        "as": draw.scale(0.01),
        "az": draw.values(dtype),
        "b": draw.values(weights, (7, 9) if turned else (9, 7)),
        "bs": draw.scale(0.001, 0.02, columns),
        "bz": np.zeros(columns, weights) if per_column else draw.values(weights),
        "c": draw.bias((7,)),
    }
    operands = "a as az b bs bz c"
    if quantized:
        constants |= {"ys": draw.scale(0.1, 1), "yz": draw.values(dtype)}
        operands += " ys yz"
    source = build(
        [node("QGemm", operands, MICROSOFT, transB=int(turned), alpha=0.7)],
        {"a": (dtype, (5, 9))},
        constants,
        {"y": (dtype if quantized else "float32", 2)},
    )
    compare(source, {"a": draw.values(dtype, (5, 9))}, compiled=seed % 8 == 0)


@pytest.mark.parametrize("weights", BYTES)
@settings(max_examples=6)
@given(seed=SEEDS, point=st.sampled_from(["none", "constant", "computed"]))
def test_conv_integer(weights: str, seed: int, point: str) -> None:
    draw = Draw(seed)
    inputs: dict[str, tuple[str, Sequence[int]]] = {"x": ("uint8", (1, 4, 7, 7))}
    constants = {"w": draw.values(weights, (6, 2, 3, 3))}
    if point == "constant":
        constants["z"] = draw.values("uint8")
    elif point == "computed":
        inputs["z"] = ("uint8", ())
    operands = "x w" if point == "none" else "x w z"
    nodes = [node("ConvInteger", operands, group=2, pads=[1, 0, 1, 2])]
    source = build(nodes, inputs, constants, {"y": ("int32", 4)})
    feeds = {name: draw.values(*each) for name, each in inputs.items()}
    compare(source, feeds, compiled=seed % 8 == 0)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@settings(max_examples=6)
@given(seed=SEEDS, per_column=st.booleans())
def test_matmul_integer(pair: tuple[str, str], seed: int, per_column: bool) -> None:
    draw, (dtype, weights) = Draw(seed), pair
    constants = {
        "b": draw.values(weights, (9, 7)),
        "az": draw.values(dtype),
        "bz": draw.values(weights, (7,) if per_column else ()),
    }
    source = build(
        [node("MatMulInteger", "a b az bz")],
        {"a": (dtype, (5, 9))},
        constants,
        {"y": ("int32", 2)},
    )
    compare(source, {"a": draw.values(dtype, (5, 9))}, compiled=seed % 8 == 0)


@pytest.mark.parametrize("op", ["MatMulIntegerToFloat", "DynamicQuantizeMatMul"])
@settings(max_examples=6)
@given(seed=SEEDS, bias=st.booleans(), pair=st.sampled_from(PAIRS))
def test_products_of_float_results(op: str, seed: int, bias: bool, pair: tuple[str, str]) -> None:
    """Exact without a bias; MLAS may add one with a fused multiply-add."""
    is_dynamic = op == "DynamicQuantizeMatMul"
    draw, (dtype, weights) = Draw(seed), pair
    dtype = "float32" if is_dynamic else dtype
    constants = {
        "b": draw.values(weights, (9, 7)),
        "bs": draw.scale(0.001, 0.02, (7,)),
        "bz": np.zeros(7, weights),
        "c": draw.values("float32", (7,)),
    }
    if not is_dynamic:
        constants |= {"as": draw.scale(), "az": draw.values(dtype)}
    operands = "a b bs bz" if is_dynamic else "a b as bs az bz"
    source = build(
        [node(op, operands + (" c" if bias else ""), MICROSOFT)],
        {"a": (dtype, (5, 9))},
        constants,
        {"y": ("float32", 2)},
    )
    feeds = {"a": draw.values(dtype, (5, 9))}
    compare(source, feeds, steps=1e-5 if bias else 0, compiled=seed % 8 == 0)


@pytest.mark.parametrize("dtype", BYTES)
@settings(max_examples=6)
@given(seed=SEEDS, same=st.booleans())
def test_concat(dtype: str, seed: int, same: bool) -> None:
    draw = Draw(seed)
    constants = {
        name: draw.scale() if name.endswith("s") else draw.values(dtype)
        for name in ("ys", "yz", "as", "az", "bs", "bz")
    }
    if same:
        constants |= {"as": constants["ys"], "az": constants["yz"]}
    inputs = {"a": (dtype, (2, 3, 4)), "b": (dtype, (2, 5, 4))}
    nodes = [node("QLinearConcat", "ys yz a as az b bs bz", MICROSOFT, axis=1)]
    source = build(nodes, inputs, constants, {"y": (dtype, 3)})
    feeds = {name: draw.values(*each) for name, each in inputs.items()}
    compare(source, feeds, compiled=seed % 8 == 0)


@settings(max_examples=6)
@given(seed=SEEDS, offset=st.sampled_from([0, 20, -20]))
def test_dynamic_quantize_linear(seed: int, offset: float) -> None:
    source = build(
        [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])],
        {"x": ("float32", (5, 40))},
        {},
        {"y": ("uint8", 2), "s": ("float32", 0), "z": ("uint8", 0)},
    )
    draw = Draw(seed)
    for x in (draw.values("float32", (5, 40)) + np.float32(offset), np.zeros((5, 40), np.float32)):
        compare(source, {"x": x})


QUANTIZERS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "per tensor": ((), {}),
    "axis 1": ((4,), {"axis": 1}),
    "last axis": ((8,), {"axis": -1}),
    "blocks": ((3, 4, 2), {"axis": 2, "block_size": 4}),
    "blocks inside": ((3, 2, 8), {"axis": 1, "block_size": 2}),
    "blocks with a rest": ((3, 2, 8), {"axis": 1, "block_size": 3}),
}


@pytest.mark.parametrize("case", QUANTIZERS)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@settings(max_examples=6)
@given(seed=SEEDS)
def test_quantizers(case: str, dtype: str, seed: int) -> None:
    scales, attributes = QUANTIZERS[case]
    draw, shape = Draw(seed), (3, 4, 8)
    high = 0.05 if dtype.endswith("8") else 0.0002
    constants = {"s": draw.scale(high / 10, high, scales), "z": draw.values(dtype, scales)}
    x = draw.values("float32", shape)
    if "block" not in case:  # where ONNX Runtime converts to int32 before it saturates
        x.flat[:3] = [1e30, -1e30, 0]
    for op, given_, gives, value in (
        ("QuantizeLinear", "float32", dtype, x),
        ("DequantizeLinear", dtype, "float32", draw.values(dtype, shape)),
    ):
        source = build(
            [node(op, "x s z", **attributes)], {"x": (given_, shape)}, constants, {"y": (gives, 3)}
        )
        compare(source, {"x": value}, compiled=seed % 8 == 0)


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_narrow_weights_in_blocks(dtype: str) -> None:
    """int4 weights in blocks of 16, as weight-only quantization writes them."""
    import onnx

    rng = np.random.default_rng(3)
    code = onnx.TensorProto.DataType.Value(dtype.upper())
    low = -8 if dtype == "int4" else 0
    weights = rng.integers(low, low + 16, (32, 5))
    points = rng.integers(low, low + 16, (2, 5))
    constants = {
        "w": helper.make_tensor("w", code, weights.shape, weights.ravel()),
        "s": rng.uniform(0.01, 0.1, (2, 5)).astype(np.float32),
        "z": helper.make_tensor("z", code, points.shape, points.ravel()),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"], axis=0, block_size=16),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    source = build(nodes, {"x": ("float32", (3, 32))}, constants, {"y": ("float32", 2)})
    model = compare(source, {"x": random(rng, "float32", (3, 32))}, steps=1e-4, compiled=False)
    assert any(parameter.ty.dtype == dtype for parameter in model.module["main"].params)
