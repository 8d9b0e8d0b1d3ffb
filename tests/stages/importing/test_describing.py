"""What `doit import` tells of a file, and the recipe it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from pipelines.recipe.load import load_recipe
from stages.importing import describe, starter_recipe
from stages.importing.onnx.domains import QONNX
from stages.importing.zoo import build
from tests.stages.importing.graphs import (
    FINN,
    TFC,
    block,
    graph,
    node,
    quantization,
    real_data,
)


def test_a_zoo_network_is_described_whole() -> None:
    source = build(options=block(quantization(2, "unipolar"), quantization(1, "bipolar")))
    found = describe(source=source)
    assert found["format"] == "QONNX"
    assert found["bytes"] == len(source)
    assert found["inputs"] == [
        {
            "name": "data",
            "dtype": "float32",
            "shape": [1, 3, 16, 16],
            "smallest": 0.0,
            "largest": 255 / 256,
        }
    ]
    assert found["outputs"] == [{"name": "out", "shape": [1, 10]}]
    assert found["operators"]["Conv"] == 4
    assert found["layers"][1] == {
        "layer": "layer1.0.conv1",
        "op": "Conv",
        "weight_shape": [64, 64, 3, 3],
        "activations": {"bits": 2, "encoding": "unipolar"},
        "weights": {"bits": 1, "encoding": "bipolar"},
    }
    assert found["unsupported"] == found["left_to_caller"] == []


def test_what_is_unsupported_is_listed_and_nothing_raised() -> None:
    nodes = [node("Mish", ["x"], "a"), node("Det", ["a"])]
    found = describe(source=graph(nodes, {}, ["n", 4, 2, 2], opset=18))
    assert found["unsupported"] == [
        {"op": "Mish", "why": "there is no converter for it", "layers": ["Mish_a"]},
        {"op": "Det", "why": "there is no converter for it", "layers": ["Det_y"]},
    ]
    assert found["inputs"][0]["shape"] == [None, 4, 2, 2]
    assert found["outputs"] == [{"name": "y", "shape": None}]
    found = describe(source=graph([node("Relu", ["x"])], {}, [1, "w"]))
    assert found["unsupported"][0]["op"] == "input"


def test_a_starter_recipe_is_short() -> None:
    source = build(options=block(quantization(2, "unipolar"), quantization(1, "bipolar")))
    assert starter_recipe(describe(source=source), "models/net.onnx", "net") == (
        'description: "net: QONNX, A2W1, A8W8"\n'
        'model: {file: "models/net.onnx"}\n'
        "inputs:\n"
        "  # guessed: an image is scaled until it covers 16 x 16 pixels; check it against how the "
        "model was trained\n"
        "  # guessed: pixels of 0 to 1, the default; for others state scale, mean and std; check "
        "it against how the model was trained\n"
        '  "data": {resize: 16, crop: 16}\n'
        "# to show names add labels: FILE.txt, of 10 lines, one a class\n"
        "hardware: host\n"
        "# for `doit accuracy` name labelled data: a folder of images with labels.csv, or a .npz "
        "of images and labels\n"
        "# evaluation: {data: FOLDER_OR_FILE.npz}\n"
    )


AWKWARD = {
    "open batch": graph([node("Relu", ["x"])], {}, ["n", 4]),
    "open features": graph([node("Relu", ["x"])], {}, [1, "f"]),
    "pixels": graph([node("Div", ["x", "c"])], {"c": np.array(255, np.float32)}, [1, 4]),
    "softmax": graph(
        [node("Relu", ["x"], "a: #1"), node("Softmax", ["a: #1"])], {}, [1, 4], domains=[QONNX]
    ),
    "unsupported": graph([node("Hardmax", ["x"])], {}, [1, 4]),
}


@pytest.mark.parametrize("case", AWKWARD)
def test_starter_recipes_load_unchanged(case: str, tmp_path: Path) -> None:
    (tmp_path / "my net.onnx").write_bytes(AWKWARD[case])
    text = starter_recipe(describe(source=AWKWARD[case]), "my net.onnx", "my_net")
    (tmp_path / "my_net.yaml").write_text(text)
    loaded = load_recipe(str(tmp_path / "my_net.yaml"))
    assert loaded.recipe.model.file == tmp_path / "my net.onnx"
    if case == "softmax":
        assert loaded.recipe.outputs["a: #1"].postprocess == "softmax"
    if case == "pixels":
        assert loaded.recipe.inputs["x"].scale == 1.0
    if case == "open batch":
        assert loaded.recipe.inputs["x"].shape == (1, 4)


@pytest.mark.parametrize(
    ("path", "form", "activations", "left"),
    [
        (f"{TFC}/TFC_1W2A.onnx", "QONNX", {"bits": 2, "encoding": "signed"}, []),
        (f"{FINN}/model.onnx", "FINN-ONNX", {"bits": 1, "encoding": "bipolar"}, ["TopK"]),
    ],
)
def test_real_files(path: str, form: str, activations: dict[str, object], left: list[str]) -> None:
    found = describe(source=real_data(path).read_bytes())
    assert found["format"] == form
    assert [layer["activations"] for layer in found["layers"]] == [activations] * 4
    assert {layer["weights"]["bits"] for layer in found["layers"]} == {1}
    assert [item["op"] for item in found["left_to_caller"]] == left
    assert found["unsupported"] == []


def test_integers_of_a_file() -> None:
    """Types of layers and inputs where a file holds integers."""
    constants: dict[str, np.ndarray[Any, Any]] = {
        "s": np.array(0.5, np.float32),
        "z": np.array(3, np.uint8),
        "w": np.ones((4, 2, 1, 1), np.int8),
        "wz": np.array(0, np.int8),
    }
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], "f"),
        node("DequantizeLinear", ["w", "s", "wz"], "wf"),
        node("Conv", ["f", "wf"], "y"),
    ]
    found = describe(source=graph(nodes, constants, [1, 2, 3, 3], dtype=onnx.TensorProto.UINT8))
    assert found["format"] == "ONNX QDQ" and found["unsupported"] == []
    assert found["inputs"] == [
        {
            "name": "x",
            "dtype": "uint8",
            "shape": [1, 2, 3, 3],
            "smallest": 0.0,
            "largest": 255.0,
            "scale": 0.5,
            "zero_point": 3,
        }
    ]
    (layer,) = found["layers"]
    assert layer["activations"] == {"bits": 8, "encoding": "asymmetric"}
    assert layer["weights"] == {"bits": 8, "encoding": "signed"}
    operands = ["x", "s", "z", "w", "s", "wz", "s", "z"]
    source = graph([node("QLinearConv", operands)], constants, [1, 2, 3, 3], dtype=2)
    found = describe(source=source)
    assert found["format"] == "ONNX with operators on integers"
    assert found["layers"][0]["weights"] == {"bits": 8, "encoding": "signed"}
    assert found["layers"][0]["weight_shape"] == [4, 2, 1, 1]
