"""What the fuzzers found, each as the smallest file that shows it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stages import importing
from stages.errors import StageError
from stages.options import ImportOptions


def refusal(source: bytes, **shapes: tuple[int, ...]) -> str:
    with pytest.raises(StageError) as caught:
        importing.run(source=source, options=ImportOptions(inputs=shapes))
    return str(caught.value)


def test_tflite_computes_a_tensor_that_has_a_buffer_too() -> None:
    from tests.stages.importing.tflite_models import Tensor, single

    a, b = (Tensor((2, 3), "int8", scale, 0) for scale in (0.1, 0.2))
    result = replace(Tensor((2, 3), "int8", 0.3, 0), data=np.zeros((2, 3), np.int8))
    assert refusal(single("ADD", [a, b], [result], "AddOptions"))


def test_mxnet_adds_a_float() -> None:
    from stages.importing import mxnet

    quantized = {"out_type": "int8", "min_calib_range": "-1", "max_calib_range": "1"}
    nodes = [
        {"op": "null", "name": "data", "inputs": []},
        {"op": "_contrib_quantize_v2", "name": "q", "attrs": quantized, "inputs": [[0, 0, 0]]},
        {
            "op": "_contrib_quantized_elemwise_add",
            "name": "add",
            "inputs": [[0, 0, 0], *([1, at, 0] for at in (0, 1, 2, 1, 2))],
        },
    ]
    symbol = {
        "nodes": nodes,
        "arg_nodes": [0],
        "heads": [[2, 0, 0]],
        "attrs": {"mxnet_version": ["int", 10901]},
    }
    params = np.load(Path(__file__).parents[1] / "mxnet" / "recorded.npz")
    empty = next(n for n in params.files if n.startswith("quantize_v2") and n.endswith("params"))
    bundle = mxnet.bundle(json.dumps(symbol).encode(), params[empty].tobytes())
    assert "int8 and uint8 are accepted" in refusal(bundle, data=(1, 4, 6, 7))


def test_onnx_declares_an_input_of_no_known_type() -> None:
    from onnx import helper

    x, y = (helper.make_tensor_value_info(name, 63, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert "input 'x' has the unknown element type 63" in refusal(model.SerializeToString())


@pytest.mark.parametrize("quantized", [[], ["x"], ["x", "s", "z", "b"]])
def test_onnx_quantizes_by_operands_that_are_missing_or_odd(quantized: list[str]) -> None:
    from onnx import helper

    x, y = (helper.make_tensor_value_info(name, 1, [2, 2]) for name in "xy")
    numbers = {"s": 1.0, "z": 0.0, "b": 1e30}
    constants = [helper.make_tensor(name, 1, [], [value]) for name, value in numbers.items()]
    weight = helper.make_tensor("w", 1, [2, 2], [1.0] * 4)
    nodes = [
        helper.make_node("Quant", quantized, ["q"], domain="qonnx.custom_op.general"),
        helper.make_node("MatMul", ["q", "w"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [*constants, weight])
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("qonnx.custom_op.general", 1)]
    model = helper.make_model(graph, opset_imports=domains).SerializeToString()
    assert importing.describe(source=model)["layers"][0]["activations"] is None
    assert "Quant (1x: " in refusal(model)
