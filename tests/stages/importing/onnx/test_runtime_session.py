"""What ONNX Runtime's default session fuses: that it is said, and which result a package gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from pipelines.commands import importing as command
from pipelines.recipe.overrides import Variables
from stages import importing
from stages.importing.onnx.runtime_session import NBITS
from stages.numerics.onnx_islands import CLOSE, DEFAULT, INTEGERS, UNOPTIMIZED, islands_of
from stages.numerics.qdq_onnx import CUT
from stages.options import GoldenOptions
from tests.stages.importing.onnx.integer_graphs import build, compare, imported, kind_of
from tests.stages.importing.onnx.random_operators import has_vnni
from tests.stages.importing.onnx.test_qdq_files import SEEDS, Graph

pytestmark = pytest.mark.skipif(not has_vnni(), reason="references are those of x86 with VNNI")
COLUMNS, BLOCKS = {"axis": 1}, {"axis": 0, "block_size": 16}
WEIGHTS: dict[str, tuple[str, str, tuple[int, ...], dict[str, Any]]] = {
    "one scale": ("MatMul", "int8", (), {}),
    "one scale of Gemm": ("Gemm", "uint8", (), {}),
    "a scale a column": ("MatMul", "int8", (6,), COLUMNS),
    "a scale a column of 4 bits": ("MatMul", "uint4", (6,), COLUMNS),
    "blocks": ("Gemm", "int4", (4, 6), BLOCKS),
    "a vector of one scale": ("MatMul", "int8", (1,), {}),
    "a scale a row": ("MatMul", "int8", (64,), {"axis": 0}),
    "small blocks": ("MatMul", "int4", (8, 6), {"axis": 0, "block_size": 8}),
    "odd blocks": ("MatMul", "int4", (2, 6), {"axis": 0, "block_size": 48}),
    "blocks along columns": ("MatMul", "int8", (64, 1), {"axis": 1, "block_size": 16}),
    "an axis from the end": ("MatMul", "int8", (6,), {"axis": -1}),
    "16 bits": ("MatMul", "int16", (), {}),
    "a transposed operand": ("Gemm", "int8", (), {"transB": 1}),
}


def product(op: str, dtype: str, scales: tuple[int, ...], attributes: dict[str, Any]) -> bytes:
    """A product of floats by weights that the graph dequantizes."""
    shape = (6, 64) if "transB" in attributes else (64, 6)
    if attributes.get("block_size") == 48:
        shape = (96, 6)
    rng = np.random.default_rng(0)
    low, high = (-8, 8) if dtype == "int4" else (0, 16) if dtype == "uint4" else (-99, 100)
    values = rng.integers(max(low, 0) if dtype[0] == "u" else low, high, shape)
    weights = helper.make_tensor("w", kind_of(dtype), shape, values.ravel().tolist())
    constants = {"w": weights, "s": rng.uniform(0.01, 0.02, scales).astype(np.float32)}
    stated = {key: value for key, value in attributes.items() if key != "transB"}
    own = {key: value for key, value in attributes.items() if key == "transB"}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["f"], **stated),
        helper.make_node(op, ["x", "f"], ["y"], **own),
    ]
    depth = shape[1] if own else shape[0]
    return build(nodes, {"x": ("float32", (3, depth))}, constants, {"y": ("float32", 2)})


def optimized(source: bytes, path: Path) -> list[str]:
    """The operators that the default session executes."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = str(path)
    ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_that_are_dequantized(case: str, tmp_path: Path) -> None:
    """It is said wherever the session has MatMulNBits, and the file is followed."""
    source = product(*WEIGHTS[case])
    rng = np.random.default_rng(1)
    depth = 96 if case == "odd blocks" else 64
    x = rng.normal(size=(3, depth)).astype(np.float32)
    model = compare(source, {"x": x}, steps=1e-5, compiled=False)
    said = [island.runtime for island in islands_of(model) if island.gives == UNOPTIMIZED]
    assert said == [NBITS] * ("MatMulNBits" in optimized(source, tmp_path / "optimized.onnx"))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_pools_that_round_up_and_count_padding(data: st.DataObject) -> None:
    """All levels of the unoptimized graph; QLinearAveragePool divides by other counts."""
    draw = data.draw
    dtype, opset = draw(st.sampled_from(["uint8", "int8"])), draw(st.sampled_from([13, 19, 21]))
    kernel = draw(st.tuples(st.integers(2, 3), st.integers(2, 3)))
    net = Graph(draw(SEEDS), dtype)
    attributes = {
        "kernel_shape": kernel,
        "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "pads": [draw(st.integers(0, 1)) for _ in range(4)],
    }
    shape = (1, 2, draw(st.integers(4, 9)), draw(st.integers(4, 9)))
    y = net.apply(
        "AveragePool", [net.input("x", shape, 0.03)], "y",
        ceil_mode=1, count_include_pad=1, **attributes,
    )  # fmt: skip
    output = net.dequantize(net.quantize(y, 0.02))
    outputs = {output: ("float32", 4)}
    source = build(net.nodes, net.inputs, net.constants, outputs, opset=opset)
    x = net.draw.rng.normal(scale=3, size=shape).astype(np.float32)
    (island,) = islands_of(compare(source, {"x": x}, compiled=False))
    assert (island.layer, island.gives) == ("AveragePool:y", UNOPTIMIZED)


def test_what_is_fused_is_said() -> None:
    net = Graph(0)
    x = net.input("x", (1, 4, 6, 6))
    y = net.apply("Conv", [x, net.weight("w", (4, 4, 3, 3), 0, "int8")], "c", pads=[1] * 4)
    y = net.apply("Add", [net.dequantize(net.quantize(y, 0.3)), x], "s")
    y = net.dequantize(net.quantize(net.dequantize(net.quantize(y, 0.5)), 0.4))
    y = net.dequantize(net.quantize(net.apply("Softmax", [y], "p", axis=1), 1 / 256, 0))
    model = imported(build(net.nodes, net.inputs, net.constants, {y: ("float32", 4)}))
    kinds = importing.islands(model)
    assert {kind["gives"] for kind in kinds} == {DEFAULT}
    assert {kind["runtime"].split()[0]: len(kind["layers"]) for kind in kinds} == {
        "QLinearAdd": 1,
        "QLinearConv": 1,
        "QLinearSoftmax": 1,
        "one": 1,
    }


@pytest.mark.parametrize(("zero_point", "operator"), [(0, "QLinearConv"), (57, "FusedConv")])
def test_a_relu_within_the_grid_is_said(zero_point: int, operator: str, tmp_path: Path) -> None:
    """The session fuses a Relu that cuts nothing off the grid; with any other it stays in float."""
    net = Graph(0)
    y = net.apply(
        "Conv", [net.input("x", (1, 4, 6, 6)), net.weight("w", (4, 4, 3, 3), None, "int8")], "c"
    )
    y = net.dequantize(net.quantize(net.apply("Relu", [y], "r"), 0.3, zero_point))
    source = build(net.nodes, net.inputs, net.constants, {y: ("float32", 4)})
    assert operator in optimized(source, tmp_path / "optimized.onnx")
    (island,) = islands_of(imported(source))
    assert (island.runtime, island.gives) == (
        ("QLinearConv", DEFAULT) if zero_point == 0 else (CUT, INTEGERS)
    )


def dynamic(first: str) -> bytes:
    """Two layers that are quantized as they run, behind one operator of floats."""
    rng = np.random.default_rng(0)
    constants: dict[str, Any] = {"w": rng.normal(size=(8, 8)).astype(np.float32)}
    nodes = [helper.make_node(first, ["x", "w"], ["t"])]
    constants["v"] = rng.integers(-99, 99, (8, 8)).astype(np.int8)
    nodes += [
        helper.make_node("DynamicQuantizeLinear", ["t"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "v", "z"], ["m"]),
        helper.make_node("Cast", ["m"], ["c"], to=1),
        helper.make_node("Mul", ["c", "s"], ["y"]),
    ]
    return build(nodes, {"x": ("float32", (8, 8))}, constants, {"y": ("float32", 2)})


@pytest.mark.parametrize(("first", "is_close"), [("MatMul", True), ("Mul", False)])
def test_float_sums_in_front_of_a_dynamic_quantizer(first: str, is_close: bool) -> None:
    """Close, by as much as their last bits move outputs; products and sums of two are exact."""
    source = dynamic(first)
    model = imported(source)
    gives = [island.gives for island in islands_of(model)]
    moved = importing.output_tolerance(source=source, model=model, options=GoldenOptions())
    assert gives == [CLOSE] * is_close and (moved is None) == (not is_close)
    x = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)
    compare(source, {"x": x}, steps=20 * (moved or 0), fuse=True, compiled=False)


def test_import_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pipelines.work_folder.RECIPES", tmp_path)
    for name, source in {
        "weights": product(*WEIGHTS["one scale"]), "dynamic": dynamic("MatMul")
    }.items():  # fmt: skip
        (tmp_path / f"{name}.onnx").write_bytes(source)
        command.run(variables=Variables({}, {}), files=[str(tmp_path / f"{name}.onnx")])
    said = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert said.count("what the default session of ONNX Runtime 1.32 fuses") == 2
    assert f"1       MatMul:y  the results of the unoptimized graph  {NBITS}" in said
    close = "a package is close to the framework, not equal: on the golden inputs the last bits of"
    assert sum(line.startswith(close) for line in said) == 1
