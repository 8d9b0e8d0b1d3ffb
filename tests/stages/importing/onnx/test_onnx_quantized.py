"""Whole networks as ONNX Runtime's own quantizer writes them: its results, bit for bit.

Topologies of the real data with seeded weights, quantized statically to QDQ and to operators on
integers, per tensor and per channel.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import pytest
from onnx import numpy_helper

from stages.graph import interpret
from stages.importing.onnx.onnx_importer import import_graph
from stages.importing.onnx.onnx_reader import read
from stages.options import ImportOptions
from tests.stages.importing.graphs import real_data
from tests.stages.importing.onnx.integer_graphs import runtime
from tests.stages.importing.onnx.random_operators import has_vnni

Array = np.ndarray[Any, Any]
SHAPE = (1, 3, 224, 224)


def seeded(path: Path) -> onnx.ModelProto:
    """A light topology up to its softmax, with random weights for its constants, opset 13."""
    model = onnx.load(str(path))
    rng = np.random.default_rng(0)
    shapes = {
        node.output[0]: shape
        for node in model.graph.node
        if node.op_type == "ConstantOfShape"
        for shape in [_initializer(model, node.input[0])]
    }
    readers = {name: (node, i) for node in model.graph.node for i, name in enumerate(node.input)}
    last = model.graph.node[-1]
    assert last.op_type == "Softmax"
    kept = [node for node in model.graph.node[:-1] if node.op_type != "ConstantOfShape"]
    model.graph.output[0].name = last.input[0]
    for name, shape in shapes.items():
        node, position = readers[name]
        value = _value(rng, node.op_type, position, [int(extent) for extent in shape])
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    used = {name for node in kept for name in node.input}
    for tensor in [each for each in model.graph.initializer if each.name not in used]:
        model.graph.initializer.remove(tensor)
    stored = {tensor.name for tensor in model.graph.initializer}
    for info in [
        each for each in model.graph.input if each.name in stored or each.name not in used
    ]:
        model.graph.input.remove(info)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.ir_version = 8
    return onnx.version_converter.convert_version(model, 13)


def _initializer(model: onnx.ModelProto, name: str) -> Array:
    return next(numpy_helper.to_array(t) for t in model.graph.initializer if t.name == name)


def _value(rng: Any, op: str, position: int, shape: list[int]) -> Array:
    if op == "BatchNormalization":
        base = {1: 0.8, 2: 0.0, 3: 0.0, 4: 1.0}[position]
        return (base + 0.02 * np.abs(rng.normal(size=shape))).astype(np.float32)
    spread = np.sqrt(2 / prod(shape[1:])) if len(shape) > 1 else 0.01
    return (rng.normal(size=shape) * spread).astype(np.float32)


def quantized(
    model: onnx.ModelProto, folder: Path, style: str, per_channel: bool, signed: bool = False
) -> bytes:
    """The model as `onnxruntime.quantization` writes it, calibrated on three random images."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    shape_inference = pytest.importorskip("onnxruntime.quantization.shape_inference")
    name = model.graph.input[0].name

    class Reader(quantization.CalibrationDataReader):  # type: ignore[name-defined]
        def __init__(self) -> None:
            rng = np.random.default_rng(1)
            self.rows = iter([{name: rng.normal(size=SHAPE).astype("float32")} for _ in range(3)])

        def get_next(self) -> Mapping[str, Array] | None:
            return next(self.rows, None)

    onnx.save(model, str(folder / "float.onnx"))
    shape_inference.quant_pre_process(
        str(folder / "float.onnx"), str(folder / "ready.onnx"), skip_symbolic_shape=True
    )
    quantization.quantize_static(
        str(folder / "ready.onnx"),
        str(folder / "quantized.onnx"),
        Reader(),
        quant_format=quantization.QuantFormat[style],
        per_channel=per_channel,
        activation_type=quantization.QuantType.QInt8 if signed else quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    return (folder / "quantized.onnx").read_bytes()


def worst_difference(model: onnx.ModelProto, source: bytes) -> float:
    """The largest difference from ONNX Runtime over two random images; prints it."""
    start = time.monotonic()
    imported = import_graph(read(source), ImportOptions()).required()
    seconds = time.monotonic() - start
    rng = np.random.default_rng(2)
    worst = 0.0
    for _ in range(2):
        inputs = {model.graph.input[0].name: rng.normal(size=SHAPE).astype(np.float32)}
        found = interpret.run(imported, inputs).values()
        for value, expected in zip(found, runtime(source, inputs, fuse=True), strict=True):
            assert np.ptp(expected) > 0
            worst = max(worst, float(np.abs(value - expected).max()))
    print(f"{len(source):,} bytes in {seconds:.1f} s, largest difference {worst}")
    return worst


NEEDS_VNNI = pytest.mark.skipif(not has_vnni(), reason="references are those of x86 with VNNI")


@pytest.mark.slow
@NEEDS_VNNI
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("style", ["QDQ", "QOperator"])
@pytest.mark.parametrize("name", ["light_resnet50", "light_squeezenet"])
def test_networks(name: str, style: str, per_channel: bool, tmp_path: Path) -> None:
    model = seeded(real_data(f"onnx-wheel-light/{name}.onnx"))
    assert worst_difference(model, quantized(model, tmp_path, style, per_channel)) == 0


@pytest.mark.slow
@NEEDS_VNNI
@pytest.mark.parametrize(("style", "steps"), [("QDQ", 1), ("QOperator", 0)])
def test_signed_activations(style: str, steps: int, tmp_path: Path) -> None:
    """On x86, ONNX Runtime turns int8 into uint8 where a quantizer has one reader.

    Other operands stay int8, and convolutions whose input and output differ stay float: 24 of the
    26 here, which changes the result by at most one step.
    """
    model = seeded(real_data("onnx-wheel-light/light_squeezenet.onnx"))
    source = quantized(model, tmp_path, style, True, signed=True)
    file = onnx.load_model_from_string(source)
    last = next(node for node in file.graph.node if file.graph.output[0].name in node.output)
    step = float(_initializer(file, last.input[1])) if last.op_type == "DequantizeLinear" else 0.0
    assert worst_difference(model, source) <= steps * step * 1.001
