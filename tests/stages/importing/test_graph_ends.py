"""Where graphs begin and end: outputs that are inputs, outputs given twice or not at all, vectors.

Each is compiled, and compared with ONNX Runtime where that reads it.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from stages import importing
from stages.errors import StageError
from stages.graph.bindings import output_names
from stages.importing.mxnet import bundle
from stages.importing.onnx.onnx_reader import QONNX
from stages.importing.twins.tflite_writer import Operation, Tensor
from stages.importing.twins.tflite_writer import build as tflite
from stages.kinds import Model
from stages.options import GoldenOptions, ImportOptions
from tests.stages.importing.graphs import graph, node
from tests.stages.importing.onnx.integer_graphs import build, runtime
from tests.stages.importing.torch_export.archives import archive, content
from tests.stages.packaging.programs import Executor, compile_program, pack
from tests.targets import AARCH64, AVX2, skip_unless_runnable

Array = np.ndarray[Any, Any]
HARDWARE = AVX2 if platform.machine() == "x86_64" else AARCH64
NO_OUTPUTS = (
    "the graph has no outputs, and a package computes at least one; "
    "declare the tensors you want as its outputs, and save it again"
)


def packaged(source: bytes, shape: tuple[int, ...] | None = None) -> tuple[Model, Any, Any]:
    """The model, and its golden vectors beside what compiled kernels give for the first sample."""
    skip_unless_runnable(HARDWARE)
    options = ImportOptions(inputs={"data": shape} if shape else {})
    model = importing.run(source=source, options=options)
    golden = importing.golden(source=source, model=model, options=GoldenOptions(samples=1))
    executor = Executor(compile_program(pack(model, HARDWARE), HARDWARE), HARDWARE)
    found = executor.run({name: np.asarray(value[0]) for name, value in golden.inputs.items()})
    assert list(found) == output_names(model)
    for name, value in golden.outputs.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value[0], name)
    return model, golden, found


def as_in_runtime(source: bytes) -> None:
    _, golden, found = packaged(source)
    inputs = {name: np.asarray(value[0]) for name, value in golden.inputs.items()}
    for (name, value), expected in zip(found.items(), runtime(source, inputs), strict=True):
        assert (value.shape, value.dtype) == (expected.shape, expected.dtype), name
        room = 1e-6 * np.abs(expected).max()  # sums of floats are taken in other orders
        np.testing.assert_allclose(value, expected, rtol=0, atol=room, err_msg=name)


Kinds = Mapping[str, tuple[str, Sequence[int]]]
FLOATS: Kinds = {"x": ("float32", (2, 5, 3))}
Y, Z = ("y", 3), ("z", 3)
ENDS: dict[str, tuple[list[onnx.NodeProto], Kinds, tuple[tuple[str, int], ...]]] = {
    "a scalar as it came": ([node("Identity", ["x"])], {"x": ("float32", ())}, (("y", 0),)),
    "dropout": ([node("Dropout", ["x"])], FLOATS, (Y,)),
    "clip without bounds": ([node("Clip", ["x"])], FLOATS, (Y,)),
    "bytes": ([node("Identity", ["x"])], {"x": ("uint8", (2, 5, 3))}, (Y,)),
    "a cast to its type": (
        [node("Cast", ["x"], to=onnx.TensorProto.INT8)], {"x": ("int8", (2, 5, 3))}, (Y,),
    ),
    "axes in their order": ([node("Transpose", ["x"], perm=[0, 1, 2])], FLOATS, (Y,)),
    "another shape": ([node("Flatten", ["x"])], FLOATS, (("y", 2),)),
    "beside what is computed": ([node("Identity", ["x"]), node("Abs", ["x"], "z")], FLOATS, (Y, Z)),
    "twice": ([node("Identity", ["x"]), node("Identity", ["x"], "z")], FLOATS, (Y, Z)),
    "computed, twice": ([node("Abs", ["x"]), node("Identity", ["y"], "z")], FLOATS, (Y, Z)),
    "computed, in two shapes": ([node("Abs", ["x"]), node("Flatten", ["y"], "z")], FLOATS,
                                (Y, ("z", 2))),
    "a part, twice": (
        [helper.make_node("Split", ["x"], ["y", "w"], axis=2, num_outputs=3),
         node("Identity", ["y"], "z")],
        FLOATS, (Y, Z),
    ),
}  # fmt: skip
ENDS["a part, twice"][0][0].output.append("v")


@pytest.mark.parametrize("case", ENDS)
def test_outputs_have_memory_of_their_own(case: str) -> None:
    nodes, inputs, outputs = ENDS[case]
    (dtype, _), *_ = inputs.values()
    as_in_runtime(build(nodes, inputs, {}, {name: (dtype, rank) for name, rank in outputs}))


def test_outputs_of_levels_have_memory_of_their_own() -> None:
    """The input, its levels, sums and their levels, each of them twice."""
    constants: dict[str, Array] = {
        "s": np.array(0.25, np.float32),
        "z": np.array(0, np.float32),
        "n": np.array(3, np.float32),
        "w": np.random.default_rng(0).integers(-3, 4, (5, 3, 2, 2)).astype(np.float32) / 4,
    }
    quant: dict[str, Any] = {"domain": QONNX, "signed": 1, "narrow": 0, "rounding_mode": "ROUND"}
    nodes = [
        node("Quant", ["x", "s", "z", "n"], "a", **quant),
        node("Quant", ["w", "s", "z", "n"], "v", **quant),
        node("Conv", ["a", "v"], "b"),
        node("Quant", ["b", "s", "z", "n"], "y", **quant),
        *(node("Identity", [name], f"{name}2") for name in "xaby"),
    ]
    source = onnx.load_from_string(graph(nodes, constants, (1, 3, 4, 4)))
    for name in ("a", "b", "x2", "a2", "b2", "y2"):
        info = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list("nchw"))
        source.graph.output.append(info)
    _, _, found = packaged(source.SerializeToString())
    assert all(np.array_equal(found[name], found[f"{name}2"]) for name in "aby")


def test_inputs_of_other_formats_may_be_outputs() -> None:
    x, y = Tensor((2, 3), "int8", 0.5, name="x"), Tensor((2, 3), "int8", 0.5, name="y")
    packaged(tflite([Operation("RELU", [x], [y])], [x], [x, y]))
    packaged(archive(content([], {}, "x", {"x": ("float32", (2, 3))}), {}))
    symbol = {"nodes": [{"op": "null", "name": "data", "inputs": []}], "heads": [[0, 0, 0]]}
    packaged(bundle(json.dumps(symbol).encode(), None), (2, 3))


VECTORS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "two vectors": ((70,), (70,)),
    "rows and a vector": ((3, 70), (70,)),
    "a vector and columns": ((70,), (70, 33)),
    "images of rows and a vector": ((2, 3, 70), (70,)),
    "a vector and images of columns": ((70,), (2, 70, 33)),
}


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("case", VECTORS)
def test_products_of_vectors(case: str, is_constant: bool) -> None:
    left, right = VECTORS[case]
    rank = np.matmul(np.zeros(left), np.zeros(right)).ndim
    weight = np.random.default_rng(0).integers(-9, 10, right)
    given: Kinds = {"x": ("float32", left), "w": ("float32", right)}
    constants = {"w": weight.astype(np.float32)} if is_constant else {}
    inputs = {name: kind for name, kind in given.items() if name not in constants}
    nodes = [node("MatMul", ["x", "w"])]
    as_in_runtime(build(nodes, inputs, constants, {"y": ("float32", rank)}))
    bytes_of: Kinds = {"x": ("uint8", left), "w": ("int8", right)}
    constants = {"w": weight.astype(np.int8)} if is_constant else {}
    inputs = {name: kind for name, kind in bytes_of.items() if name not in constants}
    nodes = [node("MatMulInteger", ["x", "w"])]
    as_in_runtime(build(nodes, inputs, constants, {"y": ("int32", rank)}))


@pytest.mark.parametrize("shape", [(), (11,), (1, 11), (3, 11)])
def test_signs_of_any_shape(shape: tuple[int, ...]) -> None:
    """A file with signs is one of QONNX, which takes batches apart: a vector is none."""
    outputs = {"y": ("float32", len(shape))}
    as_in_runtime(build([node("Sign", ["x"])], {"x": ("float32", shape)}, {}, outputs))


def refusal(source: bytes) -> str:
    with pytest.raises(StageError) as caught:
        importing.run(source=source, options=ImportOptions())
    return str(caught.value)


def test_a_graph_without_outputs() -> None:
    model = onnx.load_from_string(graph([node("Relu", ["x"])], {}, (1, 4)))
    del model.graph.output[:]
    x, y = Tensor((2, 3), "int8", 0.5, name="x"), Tensor((2, 3), "int8", 0.5, name="y")
    symbol = {"nodes": [{"op": "null", "name": "data", "inputs": []}], "heads": []}
    for source in (
        model.SerializeToString(),
        tflite([Operation("RELU", [x], [y])], [x], []),
        bundle(json.dumps(symbol).encode(), None),
    ):
        assert refusal(source) == NO_OUTPUTS


@pytest.mark.parametrize("op", ["TopK", "ArgMax"])
def test_a_ranking_of_the_input_itself_is_refused(op: str) -> None:
    """Cut off, it would leave nothing to compute."""
    inputs, constants = (["x", "k"], {"k": np.array([2])}) if op == "TopK" else (["x"], {})
    ranking = helper.make_node(op, inputs, ["y", "i"][: len(inputs)], name="last")
    source = graph([ranking], constants, (1, 4), domains=[QONNX])
    why = "it is supported only as the last operator behind others, where it is left to the caller"
    assert refusal(source) == f"these operators cannot be imported:\n  {op} (1x: last): {why}"
    found = importing.describe(source=source)
    assert found["left_to_caller"] == []
    assert found["unsupported"] == [{"op": op, "why": why, "layers": ["last"]}]


def test_a_softmax_of_the_input_itself_is_computed() -> None:
    source = graph([node("Softmax", ["x"])], {}, (1, 4), domains=[QONNX])
    model, _, found = packaged(source)
    assert output_names(model) == ["y"]
    assert found["y"].sum() == pytest.approx(1)
