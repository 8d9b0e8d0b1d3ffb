"""ONNX Runtime's own operators on integers: its own results, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stages.importing.onnx.integer_graphs import MICROSOFT, build, compare
from tests.stages.importing.onnx.random_operators import BYTES, PAIRS, SEEDS, Draw, has_vnni, node

pytestmark = pytest.mark.skipif(not has_vnni(), reason="references are those of x86 with VNNI")
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
