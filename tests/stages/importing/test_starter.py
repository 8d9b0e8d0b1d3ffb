"""What a starter recipe makes of images: known from the file, or guessed from its kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto

from pipelines.commands.importing import described
from pipelines.recipe.load import load_recipe
from stages.importing import starter_recipe
from tests.stages.importing.graphs import graph, node
from tests.stages.importing.tflite_models import Tensor, single

Array = np.ndarray[Any, Any]
MEANS = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
SIGNED = {"scale": pytest.approx(1 / 127.5), "mean": [1.0] * 3}
CHECK = "check it against how the model was trained"


def scalar(value: float, dtype: type = np.float32) -> Array:
    return np.array(value, dtype)


def classifier(
    classes: int,
    shape: list[int],
    nodes: list[NodeProto] = [],  # noqa: B006
    constants: Mapping[str, Array] = {},
    last: str = "",
) -> bytes:
    """Global average pooling and a dense layer behind `nodes`, which make `a` of `x`."""
    start = "a" if nodes else "x"
    tail = [
        node("GlobalAveragePool", [start], "p"),
        node("Flatten", ["p"], "f"),
        node("MatMul", ["f", "w"], "s" if last else "y"),
        *([node(last, ["s"])] if last else []),
    ]
    weight = np.random.default_rng(0).standard_normal((shape[1], classes)).astype(np.float32)
    return graph([*nodes, *tail], {"w": weight, **constants}, shape, opset=13)


def quantized(scale: float, zero_point: int, dtype: type) -> tuple[list[NodeProto], Any]:
    """A quantizer and dequantizer that read the input."""
    nodes = [
        node("QuantizeLinear", ["x", "c", "z"], "q"),
        node("DequantizeLinear", ["q", "c", "z"], "a"),
    ]
    return nodes, {"c": scalar(scale), "z": scalar(zero_point, dtype)}


def stated(source: bytes) -> tuple[dict[str, Any], str]:
    text = starter_recipe(described(source), "net.onnx", "net")
    return next(iter(yaml.safe_load(text)["inputs"].values())), text


BIG, SMALL, DIGITS = [1, 3, 224, 224], [1, 3, 32, 32], [1, 1, 28, 28]
MIDDLE = {"resize": 256, "crop": 224}
SUB_DIV = [node("Sub", ["x", "c"], "b"), node("Div", ["b", "d"], "a")]
ONNX: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "as torchvision": (classifier(1000, BIG), MIDDLE | MEANS, "guessed: ImageNet's mean"),
    "pixels are divided": (
        classifier(1000, BIG, [node("Div", ["x", "c"], "a")], {"c": scalar(255)}),
        MIDDLE | {"scale": 1.0},
        "x: the graph scales pixels of 0 to 255 itself",
    ),
    "pixels are centred": (
        classifier(1000, BIG, SUB_DIV, {"c": scalar(127.5), "d": scalar(127.5)}),
        MIDDLE | {"scale": 1.0},
        "x: the graph scales pixels of 0 to 255 itself",
    ),
    "normalized inside": (
        classifier(1000, BIG, SUB_DIV, {"c": scalar(0.45), "d": scalar(0.22)}),
        MIDDLE,
        "x: the graph scales its input itself",
    ),
    "range of ImageNet": (
        classifier(7, BIG, *quantized(4.758 / 255, 114, np.uint8)),
        {"resize": 224, "crop": 224} | MEANS,
        "its first quantizer holds -2.12",
    ),
    "range of ImageNet, symmetric": (
        classifier(7, BIG, *quantized(2.64 / 127, 0, np.int8)),
        {"resize": 224, "crop": 224} | MEANS,
        "guessed: ImageNet's mean",
    ),
    "range of Caffe": (
        classifier(1000, BIG, *quantized(274.7 / 255, 115, np.uint8)),
        MIDDLE | {"color": "bgr", "scale": 1.0, "mean": [103.939, 116.779, 123.68]},
        "guessed: BGR",
    ),
    "-1 to 1": (
        classifier(1000, BIG, *quantized(2 / 255, 128, np.uint8)), MIDDLE | SIGNED, "-1 to 1",
    ),
    "as CIFAR": (classifier(10, SMALL), {"resize": 32, "crop": 32}, "pixels of 0 to 1"),
    "digits": (classifier(10, DIGITS), {"resize": 28, "crop": 28}, "pixels of 0 to 1, the default"),
    "no square": (
        classifier(10, [1, 3, 24, 40]),
        {"resize": [24, 40], "crop": [24, 40]},
        "until it covers 40 x 24 pixels",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ONNX)
def test_images_of_onnx_files(case: str) -> None:
    source, fields, why = ONNX[case]
    found, text = stated(source)
    assert found == fields
    assert why in text
    assert all(CHECK in line for line in text.splitlines() if "guessed:" in line)


@pytest.mark.parametrize(
    ("dtype", "scale", "zero_point", "fields"),
    [
        ("float32", None, 0, {}),
        ("int8", 1 / 127.5, -1, {}),
        ("int8", 1 / 255, -128, {}),
        ("uint8", 1 / 128, 128, {}),
        ("int8", 4.758 / 255, -14, MEANS),
        ("uint8", 4.758 / 255, 114, MEANS),
        ("int8", 2 / 254, 10, SIGNED),
    ],
)
def test_images_of_tensorflow_lite_files(
    dtype: str, scale: float | None, zero_point: int, fields: dict[str, Any]
) -> None:
    shape = (1, 16, 16, 3)
    tensors = [Tensor(shape, dtype, scale, zero_point), Tensor((1, 768), dtype, scale, zero_point)]
    source = single("RESHAPE", tensors[:1], tensors[1:], "ReshapeOptions", new_shape=[1, 768])
    found, _ = stated(source)
    assert found == {"resize": 16, "crop": 16} | fields


def test_scores_get_a_softmax_and_probabilities_do_not() -> None:
    for last, postprocess in (("", "softmax"), ("Softmax", None), ("Sigmoid", None)):
        text = starter_recipe(described(classifier(10, DIGITS, last=last)), "net.onnx", "net")
        outputs = yaml.safe_load(text).get("outputs") or {"y": {}}
        assert outputs["y"].get("postprocess") == postprocess
        assert "# to show names add labels: FILE.txt, of 10 lines, one a class" in text
        assert "# evaluation: {data: FOLDER_OR_FILE.npz}" in text


def test_the_background_is_no_label() -> None:
    _, text = stated(classifier(1001, BIG))
    assert "# evaluation: {data: FOLDER_OR_FILE.npz, first_class: 1}" in text
    assert "guessed: of 1001 classes the first is the background" in text


def test_what_is_no_image_gets_no_fields() -> None:
    source = graph([node("MatMul", ["x", "w"])], {"w": np.ones((640, 640), np.float32)}, [1, 640])
    text = starter_recipe(described(source), "net.onnx", "net")
    assert "# x is no image: doit run takes a .npy or .npz of [1, 640]" in text
    assert not {"inputs", "outputs"} & yaml.safe_load(text).keys() and "evaluation" not in text


def test_the_commented_evaluation_is_one(tmp_path: Path) -> None:
    """Its line, without the mark and with data that is there, loads."""
    _, text = stated(classifier(1001, BIG))
    text = text.replace("# evaluation:", "evaluation:")
    (tmp_path / "net.onnx").write_bytes(b"")
    (tmp_path / "FOLDER_OR_FILE.npz").write_bytes(b"")
    (tmp_path / "net.yaml").write_text(text)
    evaluation = load_recipe(str(tmp_path / "net.yaml")).recipe.evaluation
    assert evaluation is not None and evaluation.first_class == 1


@given(st.text(min_size=1, max_size=20), st.text(max_size=20))
def test_no_name_breaks_the_recipe(name: str, producer: str) -> None:
    """Names and reasons come from the file, which may be anybody's."""
    found = {
        "format": "ONNX", "producer": producer, "operators": {}, "layers": [], "left_to_caller": [],
        "inputs": [{"name": name, "dtype": "float32", "shape": [None, 3, 8, 8], "smallest": 0.0,
                    "largest": 1.0}],
        "outputs": [{"name": name, "shape": [1, 4]}],
        "unsupported": [{"op": name, "why": producer, "layers": [name]}],
        "ends": {"inputs": {}, "outputs": {name: {"made_by": "matmul"}}},
    }  # fmt: skip
    loaded = yaml.safe_load(starter_recipe(found, producer, "net"))
    assert loaded.keys() == {"description", "model", "inputs", "outputs", "hardware"}
    assert loaded["inputs"] == {name: {"shape": [1, 3, 8, 8], "resize": 8, "crop": 8}}
    assert loaded["outputs"] == {name: {"postprocess": "softmax"}}
    assert loaded["model"]["file"] == producer


def test_uint8_images_without_a_scale() -> None:
    """A graph that casts bytes takes them as they are."""
    nodes = [node("Cast", ["x"], "a", to=TensorProto.FLOAT), node("Relu", ["a"])]
    found, text = stated(graph(nodes, {}, [1, 3, 16, 16], opset=13, dtype=TensorProto.UINT8))
    assert found == {"resize": 16, "crop": 16} and "scale:" not in text
