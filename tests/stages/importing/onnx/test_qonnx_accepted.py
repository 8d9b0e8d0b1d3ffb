"""QONNX that is not plain Quant and Conv: compared with qonnx's executor and the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from stages import quantizing
from stages.errors import StageError
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.importing import Oracle
from stages.importing import run as import_
from stages.importing.onnx.channels_last_operators import CHANNELS_LAST
from stages.importing.onnx.onnx_reader import QONNX, read
from stages.kinds import Model
from stages.options import ImportOptions
from tests.stages.importing.graphs import execute_qonnx, graph, node

Array = np.ndarray[Any, Any]
F32 = np.float32


def scalar(value: float) -> Array:
    return np.array(value, F32)


def quant(x: str, scale: str, output: str, signed: int = 1, bits: str = "b") -> onnx.NodeProto:
    attributes = {"signed": signed, "narrow": 0, "rounding_mode": "ROUND"}
    return helper.make_node("Quant", [x, scale, "z", bits], [output], domain=QONNX, **attributes)


SCALARS = {"z": scalar(0), "b": scalar(4), "s": scalar(0.25), "t": scalar(0.125)}


def agrees(source: bytes, x: Array, *, is_exact: bool = True) -> Model:
    """Check an import, its oracle and its quantized form against qonnx."""
    expected = execute_qonnx(source, {"x": x})["y"]
    model = import_(source=source, options=ImportOptions())
    found = {
        "imported": interpret.run(model, {"x": x})["y"],
        "oracle": Oracle(read(source))({"x": x})["y"],
    }
    quantized = quantizing.run(model=model)
    found["quantized"] = interpret.run(quantized, {"x": x})["y"]
    for name, value in found.items():
        assert value.dtype == F32 and value.shape == expected.shape, name
        tolerance = 0 if is_exact else 1e-6 * float(np.abs(expected).max())
        np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance, err_msg=name)
    return quantized


def operators(model: Model) -> list[str]:
    calls = (binding.value for binding in bindings_of(model.module["main"]))
    return [str(call.op.name) for call in calls if hasattr(call, "op")]


def values(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(F32)


@pytest.mark.parametrize("pool", ["AveragePool", "MaxPool", "GlobalAveragePool", "ReduceMean"])
def test_networks_of_one_dimension_are_computed_in_integers(pool: str) -> None:
    choices: dict[str, dict[str, Any]] = {
        "AveragePool": {"kernel_shape": [2], "strides": [2]},
        "MaxPool": {"kernel_shape": [3], "strides": [2], "pads": [1, 0]},
        "GlobalAveragePool": {},
        "ReduceMean": {"axes": [2], "keepdims": 0},
    }
    pooled = {"AveragePool": 6 * 8, "MaxPool": 6 * 8, "GlobalAveragePool": 6, "ReduceMean": 6}[pool]
    norm = {name: np.abs(values((6,), i)) + F32(0.5) for i, name in enumerate(("g", "h", "m", "v"))}
    nodes = [
        quant("x", "s", "q"),
        quant("w", "t", "k"),
        node("Conv", ["q", "k"], "c", kernel_shape=[3], pads=[1, 1], group=1),
        node("BatchNormalization", ["c", *norm], "n"),
        node("Relu", ["n"], "r"),
        quant("r", "s", "p", signed=0),
        node(pool, ["p"], "a", **choices[pool]),
        node("Flatten", ["a"], "f"),
        quant("u", "t", "j"),
        node("MatMul", ["f", "j"]),
    ]
    constants = {**SCALARS, **norm, "w": values((6, 3, 3)), "u": values((pooled, 5))}
    source = graph(nodes, constants, [1, 3, 16], rank=2)
    model = agrees(source, values((1, 3, 16), 7), is_exact=False)
    assert "relax.qnn.conv2d" in operators(model) and "relax.nn.conv2d" not in operators(model)


def _truncated(rounding: str, version: int, signed: int) -> bytes:
    tensors = {"s": scalar(0.3), "z": scalar(0), "i": scalar(8)}
    tensors |= {"o": scalar(4)} if version == 1 else {"e": scalar(0.3 * 4), "o": scalar(5)}
    attributes = {} if version == 1 else {"signed": signed, "narrow": 0}
    made = helper.make_node(
        "Trunc", ["x", *tensors], ["y"], domain=QONNX, rounding_mode=rounding, **attributes
    )
    model = onnx.load_model_from_string(graph([made], tensors, [1, 64]))
    model.opset_import.append(helper.make_opsetid(QONNX, version))
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("rounding", ["ROUND", "CEIL", "FLOOR"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("signed", [0, 1])
def test_trunc(rounding: str, version: int, signed: int) -> None:
    """At ties above all: integers divided by 4 or 16."""
    x = (np.arange(-32, 32, dtype=F32) * F32(0.3)).reshape(1, 64)
    agrees(_truncated(rounding, version, signed), x if signed else np.abs(x))


def test_trunc_with_a_zero_point_is_refused() -> None:
    tensors = {"s": scalar(0.5), "z": scalar(3), "i": scalar(8), "o": scalar(4)}
    made = helper.make_node("Trunc", ["x", *tensors], ["y"], domain=QONNX, rounding_mode="FLOOR")
    with pytest.raises(StageError, match="has the zero point 'z'; 0 is accepted"):
        source = graph([made], tensors, [1, 4], domains=[QONNX])
        import_(source=source, options=ImportOptions())


def _channels_last(case: str) -> tuple[bytes, Array]:
    """Conv, and a pool, of [N, H, W, C]; `case` says what makes the weights."""
    attributes = {"kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1], "group": 1}
    attributes |= {"pads": [1, 1, 1, 1]}
    scale = np.abs(values((4, 1, 1, 1), 3)) + F32(0.1) if case == "per channel" else scalar(0.125)
    weights = "w" if case == "float" else "k"
    nodes = [
        quant("x", "s", "q"),
        quant("w", "e", "k"),
        helper.make_node(
            "Conv", ["q", weights, "c"], ["a"], name="layer", domain=CHANNELS_LAST, **attributes
        ),
        helper.make_node(
            "MaxPool", ["a"], ["d"], domain=CHANNELS_LAST, kernel_shape=[2, 2], strides=[2, 2],
            pads=[0, 0, 0, 0],
        ),
        quant("d", "s", "y"),
    ]  # fmt: skip
    if case == "read twice":
        nodes[-1:] = [
            helper.make_node("ReduceMax", ["k"], ["l"], keepdims=1, axes=[0, 1, 2, 3]),
            node("Mul", ["d", "l"], "v"),
            quant("v", "s", "y"),
        ]
    constants = {**SCALARS, "e": scale, "w": values((4, 3, 3, 2)), "c": values((4,), 5)}
    model = onnx.load_model_from_string(
        graph(nodes, constants, [1, 6, 5, 2], domains=[CHANNELS_LAST])
    )
    # qonnx infers no shapes in front of these operators.
    shapes = {"q": [1, 6, 5, 2], "k": [4, 3, 3, 2], "a": [1, 6, 5, 4], "d": [1, 3, 2, 4]}
    model.graph.value_info.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    )
    return bytes(model.SerializeToString()), values((1, 6, 5, 2), 9)


@pytest.mark.parametrize("case", ["per tensor", "per channel", "float", "read twice"])
def test_channels_last_is_turned(case: str) -> None:
    source, x = _channels_last(case)
    agrees(source, x)
    assert "layer" in {each.layer for each in read(source).nodes}


@pytest.mark.parametrize("scale", [2.0, 3.0, 0.5])
def test_resize_by_the_nearest(scale: float) -> None:
    attributes = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    nodes = [quant("x", "s", "q"), node("Resize", ["q", "", "f"], "r", **attributes)]
    constants = {**SCALARS, "f": np.array([1, 1, scale, scale], F32)}
    source = graph([*nodes, quant("r", "s", "y")], constants, [1, 2, 4, 6])
    agrees(source, values((1, 2, 4, 6)))


def test_resize_of_quantized_networks_rounds_nothing() -> None:
    made = node("Resize", ["q", "", "f"], mode="linear")
    constants = {**SCALARS, "f": np.array([1, 1, 2, 2], F32)}
    source = graph([quant("x", "s", "q"), made], constants, [1, 2, 4, 6])
    with pytest.raises(StageError, match="interpolates; networks with quantizers resize by the"):
        import_(source=source, options=ImportOptions())
