"""The float32 twin: the same graph without its quantizers, plain ONNX that onnxruntime runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from stages.errors import StageError
from stages.importing import zoo
from stages.importing.twins import float_twin
from stages.layer_options import TensorQuantization
from stages.options import ZooOptions

ROOT = Path(__file__).parents[4]
QONNX = "qonnx.custom_op.general"


def graph(
    nodes: list[Any], *, ir_version: int = 8, inputs_too: bool = False, **tensors: Any
) -> bytes:
    initializers = [
        numpy_helper.from_array(np.asarray(value, np.float32), name)
        for name, value in tensors.items()
    ]
    stated = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])]
    if inputs_too:
        stated += [
            helper.make_tensor_value_info(item.name, TensorProto.FLOAT, item.dims)
            for item in initializers
        ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])
    made = helper.make_graph(nodes, "net", stated, [output], initializers)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(QONNX, 1)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=ir_version)
    return bytes(model.SerializeToString())


def quant(source: str, target: str) -> Any:
    return helper.make_node("Quant", [source, "s", "z", "b"], [target], domain=QONNX, signed=1)


SCALE: dict[str, Any] = {"s": 0.25, "z": 0.0, "b": 2.0}
WEIGHT = np.array([[0.1, -3.0], [0.7, 20.0], [-0.4, 0.0]], np.float32)


def session_of(model: bytes) -> Any:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(model: bytes, **inputs: np.ndarray) -> list[np.ndarray]:
    session = session_of(model)
    return list(session.run(None, inputs))


@pytest.mark.parametrize("inputs_too", [False, True])
def test_quantizers_become_identities(inputs_too: bool) -> None:
    nodes = [
        quant("x", "xq"),
        helper.make_node("BipolarQuant", ["w", "s"], ["wq"], domain=QONNX),
        helper.make_node("MatMul", ["xq", "wq"], ["m"]),
        quant("m", "mq"),
        quant("mq", "y"),  # the output itself is a quantizer's, and so is what it reads
    ]
    source = graph(
        nodes, ir_version=3 if inputs_too else 8, inputs_too=inputs_too, w=WEIGHT, **SCALE
    )
    twin = onnx.load_model_from_string(float_twin.build(source))
    onnx.checker.check_model(twin, full_check=True)
    assert [node.op_type for node in twin.graph.node] == ["MatMul", "Identity"]
    assert [value.name for value in twin.graph.input] == ["x"]
    assert [item.name for item in twin.graph.initializer] == ["w"]
    assert {item.domain for item in twin.opset_import} == {""} and 4 <= twin.ir_version <= 10
    x = np.array([[0.3, -0.9, 5.0]], np.float32)
    np.testing.assert_allclose(run(twin.SerializeToString(), x=x)[0], x @ WEIGHT, rtol=1e-6)


def test_thresholds_go_too_and_a_final_ranking_is_left_out() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("MultiThreshold", ["m", "t"], ["n"], domain=QONNX),
        helper.make_node("Softmax", ["n"], ["y"]),
    ]
    twin = onnx.load_model_from_string(float_twin.build(graph(nodes, w=WEIGHT, t=[[0.0], [1.0]])))
    assert [node.op_type for node in twin.graph.node] == ["MatMul", "Identity"]
    (output,) = twin.graph.output
    assert output.name == "n"
    assert [extent.dim_value for extent in output.type.tensor_type.shape.dim] == [1, 2]


def test_what_is_no_onnx_operator_has_no_twin() -> None:
    node = helper.make_node("Trunc", ["x", "s", "z", "b", "b"], ["y"], domain=QONNX)
    with pytest.raises(StageError, match=rf"^there is no float32 twin: {QONNX}\.Trunc is no ONNX"):
        float_twin.build(graph([node], **SCALE))


def test_the_zoos_networks_have_twins_of_the_same_weights() -> None:
    options = ZooOptions(
        name="residual_block",
        activations=TensorQuantization(bits=2, encoding="unipolar"),
        weights=TensorQuantization(bits=1, encoding="bipolar"),
        image_size=16,
    )
    source = zoo.build(options=options)
    twin = float_twin.build(source)
    before, after = (onnx.load_model_from_string(data).graph for data in (source, twin))
    assert not any(node.domain for node in after.node)
    kept = [node for node in before.node if not node.domain]
    assert [node.op_type for node in after.node] == [node.op_type for node in kept]
    weights = {item.name: numpy_helper.to_array(item) for item in before.initializer}
    for item in after.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(item), weights[item.name])
    (found,) = run(twin, data=np.full((1, 3, 16, 16), 0.5, np.float32))
    assert found.shape == (1, 10) and np.isfinite(found).all()


def test_the_twin_of_trained_digits_still_knows_digits() -> None:
    data = np.load(ROOT / "recipes/models/digits_test.npz")
    twin = float_twin.build((ROOT / "recipes/models/digits_a2w2.onnx").read_bytes())
    images = data["images"].astype(np.float32).reshape(-1, 1, 1, 8, 8)
    right = [
        int(run_once.argmax()) == label
        for run_once, label in zip(outputs(twin, images), data["labels"], strict=True)
    ]
    assert np.mean(right) > 0.2  # chance is 0.1; it was trained with its quantizers


def outputs(model: bytes, images: np.ndarray) -> list[np.ndarray]:
    session = session_of(model)
    name = session.get_inputs()[0].name
    return [session.run(None, {name: image})[0] for image in images]
