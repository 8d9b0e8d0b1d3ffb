"""ONNX graphs of integer operators for the tests, and ONNX Runtime to compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from stages.graph import interpret
from stages.importing.onnx.onnx_importer import import_graph
from stages.importing.onnx.onnx_reader import read
from stages.kinds import Model
from stages.options import ImportOptions
from tests.stages.importing.compiling import in_relax

Array = np.ndarray[Any, Any]
MICROSOFT = "com.microsoft"


def kind_of(dtype: str) -> int:
    return int(onnx.TensorProto.DataType.Value("FLOAT" if dtype == "float32" else dtype.upper()))


def build(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[str, Sequence[int]]],
    constants: Mapping[str, Any],
    outputs: Mapping[str, tuple[str, int]],
    *,
    opset: int = 21,
) -> bytes:
    """The bytes of a graph: inputs as (dtype, shape), outputs as (dtype, rank)."""
    tensors = [
        value
        if isinstance(value, onnx.TensorProto)
        else numpy_helper.from_array(np.asarray(value), name)
        for name, value in constants.items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "test",
        [
            helper.make_tensor_value_info(name, kind_of(dtype), list(shape))
            for name, (dtype, shape) in inputs.items()
        ],
        [
            helper.make_tensor_value_info(name, kind_of(d), [f"{name}{i}" for i in range(rank)])
            for name, (d, rank) in outputs.items()
        ],
        tensors,
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())


def runtime(source: bytes, inputs: Mapping[str, Array], *, fuse: bool = False) -> list[Array]:
    """What ONNX Runtime computes, operator by operator unless `fuse` lets it optimize."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    # Threads of its own would cost more than these graphs, and fight those of other tests.
    options.intra_op_num_threads = 1
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if fuse else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(inputs)))


def imported(source: bytes) -> Model:
    return import_graph(read(source), ImportOptions()).required()


def compare(
    source: bytes,
    inputs: Mapping[str, Array],
    *,
    steps: float = 0,
    fuse: bool = False,
    compiled: bool = True,
) -> Model:
    """Check an import against ONNX Runtime, and its compiled form against its meaning."""
    model = imported(source)
    found = interpret.run(model, inputs)
    for (name, value), expected in zip(
        found.items(), runtime(source, inputs, fuse=fuse), strict=True
    ):
        assert value.dtype == expected.dtype and value.shape == expected.shape, name
        gap = np.abs(value.astype(np.float64) - expected.astype(np.float64))
        assert gap.max() <= steps, f"{name}: {np.count_nonzero(gap)} differ, by up to {gap.max()}"
    if compiled and len(found) == 1:
        assert np.array_equal(in_relax(model, inputs), next(iter(found.values())))
    return model


def random(rng: np.random.Generator, dtype: str, shape: Sequence[int]) -> Array:
    """Every value of an integer type; floats around 0."""
    if dtype == "float32":
        return rng.normal(scale=3, size=shape).astype(np.float32)
    info = np.iinfo(dtype)
    return rng.integers(int(info.min), int(info.max) + 1, shape).astype(dtype)
