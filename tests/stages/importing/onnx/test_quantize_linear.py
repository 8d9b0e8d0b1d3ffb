"""ONNX's quantizers and dequantizers: the runtime's own results, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.stages.importing.onnx.integer_graphs import build, compare, random
from tests.stages.importing.onnx.random_operators import SEEDS, Draw, has_vnni, node

pytestmark = pytest.mark.skipif(not has_vnni(), reason="references are those of x86 with VNNI")


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
    zero_points = rng.integers(low, low + 16, (2, 5))
    constants = {
        "w": helper.make_tensor("w", code, weights.shape, weights.ravel()),
        "s": rng.uniform(0.01, 0.1, (2, 5)).astype(np.float32),
        "z": helper.make_tensor("z", code, zero_points.shape, zero_points.ravel()),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"], axis=0, block_size=16),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    source = build(nodes, {"x": ("float32", (3, 32))}, constants, {"y": ("float32", 2)})
    model = compare(source, {"x": random(rng, "float32", (3, 32))}, steps=1e-4, compiled=False)
    assert any(parameter.ty.dtype == dtype for parameter in model.module["main"].params)
