"""Every integer operator of ONNX and of ONNX Runtime: the runtime's own results, bit for bit.

ONNX Runtime's references are those of an x86 processor with VNNI; elsewhere its kernels may round
or saturate differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stages.importing.onnx.integer_graphs import build, compare
from tests.stages.importing.onnx.random_operators import BYTES, PAIRS, SEEDS, Draw, has_vnni, node

pytestmark = pytest.mark.skipif(not has_vnni(), reason="references are those of x86 with VNNI")


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


@pytest.mark.parametrize("weights", BYTES)
@settings(max_examples=6)
@given(seed=SEEDS, zero_point=st.sampled_from(["none", "constant", "computed"]))
def test_conv_integer(weights: str, seed: int, zero_point: str) -> None:
    draw = Draw(seed)
    inputs: dict[str, tuple[str, Sequence[int]]] = {"x": ("uint8", (1, 4, 7, 7))}
    constants = {"w": draw.values(weights, (6, 2, 3, 3))}
    if zero_point == "constant":
        constants["z"] = draw.values("uint8")
    elif zero_point == "computed":
        inputs["z"] = ("uint8", ())
    operands = "x w" if zero_point == "none" else "x w z"
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
