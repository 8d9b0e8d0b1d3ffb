"""ONNX files with one thing wrong in their graph: one StageError each, quickly."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

from stages.errors import StageError
from stages.importing.onnx.onnx_converters import CONVERTERS
from stages.importing.onnx.onnx_description import describe_graph
from stages.importing.onnx.onnx_importer import import_graph
from stages.importing.onnx.onnx_reader import read
from stages.importing.unsupported import refusal
from stages.options import ImportOptions
from tests.stages.importing.graphs import real_data
from tests.stages.importing.onnx.integer_graphs import MICROSOFT, Array, build

RNG = np.random.default_rng
NUMBERS = (-(1 << 62), -2, -1, 0, 1, 2, 3, 7, 1 << 20, 1 << 31, 1 << 62)
REALS = (float("nan"), float("inf"), -1.0, 0.0, 1e-45, 3.4e38)
OPS = sorted(CONVERTERS)
X, Y = ("xs", "xz"), ("ys", "yz")


def network() -> bytes:
    """A small graph with integers of every kind in it."""
    rng = RNG(0)
    grids: dict[str, Any] = {}
    for name, dtype in (("x", "uint8"), ("w", "int8"), ("y", "uint8"), ("v", "int8")):
        grids[f"{name}s"] = np.array(0.05, np.float32)
        grids[f"{name}z"] = np.array(3 if dtype == "uint8" else 0, dtype)
    constants = grids | {
        "w": rng.integers(-9, 9, (8, 3, 3, 3)).astype(np.int8),
        "b": rng.integers(-99, 99, 8).astype(np.int32),
        "v": rng.integers(-9, 9, (32, 5)).astype(np.int8),
        "to": np.array([1, -1], np.int64),
        "axes": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "sizes": np.array([1, 8, 4, 4], np.int64),
    }
    make = helper.make_node
    nodes = [
        make("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        make(
            "QLinearConv",
            ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"],
            ["c"],
            pads=[1, 1, 1, 1],
        ),
        make("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        make("DequantizeLinear", ["p", "ys", "yz"], ["f"]),
        make("AveragePool", ["f"], ["a"], kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1]),
        make("Resize", ["a", "", "", "sizes"], ["r"], mode="linear"),
        make("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
        make("Slice", ["t", "axes", "two", "axes"], ["s"]),
        make("Concat", ["s", "s"], ["k"], axis=1),
        make("Split", ["k"], ["k1", "k2"], axis=1, num_outputs=2),
        make("Reshape", ["k1", "to"], ["m"]),
        make("QuantizeLinear", ["m", "ys", "yz"], ["mq"]),
        make("QLinearAdd", ["mq", *Y, "mq", *Y, *Y], ["d"], domain=MICROSOFT),
        make("QLinearMatMul", ["d", *Y, "v", "vs", "vz", *Y], ["g"]),
        make("DequantizeLinear", ["g", "ys", "yz"], ["h"]),
        make("Softmax", ["h"], ["y"], axis=-1),
    ]
    return build(nodes, {"x": ("float32", (1, 3, 8, 8))}, constants, {"y": ("float32", 2)})


def pick(rng: Any, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def change_attribute(model: onnx.ModelProto, rng: Any) -> None:
    nodes = [node for node in model.graph.node if node.attribute]
    attribute = pick(rng, pick(rng, nodes).attribute)
    if attribute.type == AttributeProto.INT:
        attribute.i = pick(rng, NUMBERS)
    elif attribute.type == AttributeProto.INTS and attribute.ints:
        attribute.ints[int(rng.integers(len(attribute.ints)))] = pick(rng, NUMBERS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = pick(rng, (b"", b"cubic", b"nearest", b"SAME_UPPER", b"\xff"))
    else:
        attribute.f = pick(rng, REALS)


def change_length(model: onnx.ModelProto, rng: Any) -> None:
    nodes = [node for node in model.graph.node for a in node.attribute if len(a.ints)]
    attribute = next(a for a in pick(rng, nodes).attribute if len(a.ints))
    attribute.ints.append(1) if rng.integers(2) else attribute.ints.pop()


def drop_attribute(model: onnx.ModelProto, rng: Any) -> None:
    node = pick(rng, [node for node in model.graph.node if node.attribute])
    del node.attribute[int(rng.integers(len(node.attribute)))]


def change_operator(model: onnx.ModelProto, rng: Any) -> None:
    node = pick(rng, model.graph.node)
    node.domain, node.op_type = pick(rng, OPS)


def change_input(model: onnx.ModelProto, rng: Any) -> None:
    node = pick(rng, model.graph.node)
    tensors = [name for each in model.graph.node for name in (*each.input, *each.output)]
    node.input[int(rng.integers(len(node.input)))] = pick(rng, [*tensors, ""])


def drop_input(model: onnx.ModelProto, rng: Any) -> None:
    node = pick(rng, model.graph.node)
    del node.input[int(rng.integers(len(node.input))) :]


def drop_node(model: onnx.ModelProto, rng: Any) -> None:
    del model.graph.node[int(rng.integers(len(model.graph.node)))]


def change_tensor(model: onnx.ModelProto, rng: Any) -> None:
    tensor = pick(rng, model.graph.initializer)
    value = np.array(onnx.numpy_helper.to_array(tensor))
    numbers: Any = REALS if value.dtype.kind == "f" else NUMBERS
    with np.errstate(all="ignore"):
        chosen = np.array(pick(rng, numbers)).astype(value.dtype)
    value.reshape(-1)[: int(rng.integers(1, value.size + 1))] = chosen
    tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))


def change_type(model: onnx.ModelProto, rng: Any) -> None:
    tensor = pick(rng, model.graph.initializer)
    value = onnx.numpy_helper.to_array(tensor).astype(
        pick(rng, (np.float64, np.float16, np.int8, np.uint8, np.int64, np.bool_))
    )
    tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))


def change_shape(model: onnx.ModelProto, rng: Any) -> None:
    tensor = pick(rng, model.graph.initializer)
    value: Array = onnx.numpy_helper.to_array(tensor)
    shape = pick(rng, ((-1,), (1, -1), (-1, 1, 1), (1, 1, 1, 1, -1)))
    tensor.CopyFrom(onnx.numpy_helper.from_array(value.reshape(shape), tensor.name))


def change_graph_input(model: onnx.ModelProto, rng: Any) -> None:
    kind = model.graph.input[0].type.tensor_type
    if rng.integers(2):
        kind.elem_type = pick(rng, (TensorProto.INT8, TensorProto.INT64, TensorProto.STRING))
    else:
        extent = pick(rng, kind.shape.dim)
        extent.dim_value = pick(rng, (1, 2, 1 << 14, 1 << 20, 1 << 40))


CHANGES: tuple[Callable[[onnx.ModelProto, Any], None], ...] = (
    change_attribute,
    change_length,
    drop_attribute,
    change_operator,
    change_input,
    drop_input,
    drop_node,
    change_tensor,
    change_type,
    change_shape,
    change_graph_input,
)


def fuzz(source: bytes, rounds: int, seed: int) -> tuple[int, int]:
    """Change a file again and again; how many were imported and how many refused."""
    rng = RNG(seed)
    imported = 0
    for _ in range(rounds):
        model = onnx.load_model_from_string(source)
        for _ in range(int(rng.integers(1, 3))):
            pick(rng, CHANGES)(model, rng)
        changed, start = bytes(model.SerializeToString()), time.monotonic()
        try:
            found = import_graph(read(changed), ImportOptions())
            if found.model is None:
                raise refusal(found.unsupported)
            imported += 1
        except StageError as error:
            assert "Traceback" not in str(error)
        with contextlib.suppress(StageError):
            describe_graph(changed, ImportOptions())
        assert time.monotonic() - start < 30
    return imported, rounds - imported


def test_the_network_is_fine() -> None:
    found = import_graph(read(network()), ImportOptions())
    assert found.model is not None, found.unsupported


@pytest.mark.parametrize("seed", range(4))
def test_one_thing_wrong(seed: int) -> None:
    imported, refused = fuzz(network(), 25, seed)
    assert imported and refused


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qdq", "qoperator"])
def test_one_thing_wrong_in_real_files(name: str) -> None:
    path = f"tum-ei-eda+mlonmcu-models/micro_kws_m_quantized/micro_kws_m_static_{name}.onnx"
    imported, refused = fuzz(real_data(path).read_bytes(), 600, 1)
    print(f"{name}: {imported} imported, {refused} refused")
    assert imported and refused
