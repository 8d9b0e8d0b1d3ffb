"""Zoo networks: exact in every executor, lively at every precision, the paper's shapes."""

from __future__ import annotations

from itertools import product
from typing import get_args

import numpy as np
import onnx
import pytest

from stages.errors import StageError
from stages.graph import interpret
from stages.importing import Oracle, describe, read, run
from stages.importing.zoo import build
from stages.layer_options import Encoding, LayerOverride, TensorOverride
from stages.options import GoldenOptions, ImportOptions, ZooOptions
from tests.stages.importing.graphs import block, execute_qonnx, quantization
from tests.stages.importing.vectors import golden

PRECISIONS = [
    (bits, bits, a, w)
    for bits, a, w in product((1, 2, 3), get_args(Encoding), get_args(Encoding))
    if bits > 1 or "signed" not in (a, w)
]


@pytest.mark.parametrize(
    ("a_bits", "w_bits", "a", "w"), [*PRECISIONS, (8, 8, "unipolar", "signed")]
)
def test_every_executor_agrees_to_the_bit(
    a_bits: int, w_bits: int, a: Encoding, w: Encoding
) -> None:
    source = build(options=block(quantization(a_bits, a), quantization(w_bits, w)))
    vectors = golden(source=source, options=GoldenOptions(samples=1))
    data, expected = vectors.inputs["data"][0], vectors.outputs["out"][0]
    np.testing.assert_array_equal(execute_qonnx(source, {"data": data})["out"], expected)
    model = run(source=source, options=ImportOptions())
    np.testing.assert_array_equal(interpret.run(model, {"data": data})["out"], expected)


@pytest.mark.parametrize(
    ("bits", "encoding"), [(b, a) for b, _, a, w in PRECISIONS if w == "bipolar"]
)
def test_all_activation_levels_occur(bits: int, encoding: Encoding) -> None:
    """No level takes over and none is missing, on inputs the network was not calibrated on."""
    source = build(options=block(quantization(bits, encoding), quantization(1, "bipolar")))
    graph = read(source)
    names = ("layer1.0.conv1.maxpool_out", "layer1.0.conv2.input_quant_out")
    vectors = golden(source=source, options=GoldenOptions(samples=4, seed=9))
    for name in names:
        runs = [Oracle(graph, names)({"data": data})[name] for data in vectors.inputs["data"]]
        levels, counts = np.unique(np.stack(runs) + 0.0, return_counts=True)
        assert len(levels) == 2**bits
        assert counts.max() < 0.9 * counts.sum()


def test_equal_options_give_equal_bytes_and_seeds_differ() -> None:
    options = block(quantization(2, "unipolar"), quantization(1, "bipolar"))
    first = build(options=options)
    assert build(options=options) == first
    assert build(options=options.model_copy(update={"seed": 1})) != first


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("image_size", [8, 13])
def test_any_seed_and_size_is_exact(seed: int, image_size: int) -> None:
    options = block(
        quantization(3, "unipolar"), quantization(3, "bipolar"), seed=seed, image_size=image_size
    )
    source = build(options=options)
    vectors = golden(source=source, options=GoldenOptions(samples=1, seed=seed))
    theirs = execute_qonnx(source, {"data": vectors.inputs["data"][0]})["out"]
    np.testing.assert_array_equal(theirs, vectors.outputs["out"][0])


def test_two_layers_read_one_quantized_tensor() -> None:
    model = onnx.load_model_from_string(
        build(options=block(quantization(2, "unipolar"), quantization(1, "bipolar")))
    )
    readers = [n.name for n in model.graph.node if "layer1.0.conv1.maxpool_out" in n.input]
    assert readers == ["layer1.0.conv1", "layer1.0.downsample"]


def test_overrides_by_layer_later_ones_win() -> None:
    layers = (
        LayerOverride(match="layer1.*", weights=TensorOverride(bits=3)),
        LayerOverride(match="layer1.0.conv2", weights=TensorOverride(bits=2, encoding="unipolar")),
        LayerOverride(match="*.downsample", activations=TensorOverride(encoding="bipolar")),
    )
    source = build(
        options=block(quantization(2, "unipolar"), quantization(1, "bipolar"), layers=layers)
    )
    found = {
        layer["layer"]: (*layer["activations"].values(), *layer["weights"].values())
        for layer in describe(source=source)["layers"]
    }
    assert found == {
        "conv1": (8, "unipolar", 8, "signed"),
        "layer1.0.conv1": (2, "unipolar", 3, "bipolar"),
        "layer1.0.conv2": (2, "unipolar", 2, "unipolar"),
        "layer1.0.downsample": (2, "bipolar", 3, "bipolar"),
        "fc": (8, "unipolar", 8, "signed"),
    }
    vectors = golden(source=source, options=GoldenOptions(samples=1))
    theirs = execute_qonnx(source, {"data": vectors.inputs["data"][0]})["out"]
    np.testing.assert_array_equal(theirs, vectors.outputs["out"][0])


@pytest.mark.parametrize(
    ("match", "message"),
    [
        (
            "layer1.0.conv3",
            "the pattern 'layer1.0.conv3' matches no layer; did you mean 'layer1.0.conv2'?",
        ),
        (
            "conv1",
            "'conv1' matches only conv1, whose precision is int8; "
            "change the precision of inner layers, such as layer1.0.conv1",
        ),
    ],
)
def test_patterns_that_change_nothing_are_errors(match: str, message: str) -> None:
    layers = (LayerOverride(match=match, weights=TensorOverride(bits=2)),)
    with pytest.raises(StageError) as caught:
        build(options=block(quantization(2, "unipolar"), quantization(1, "bipolar"), layers=layers))
    assert str(caught.value) == message


def resnet18(a_bits: int, w_bits: int, image_size: int = 224) -> bytes:
    return build(
        options=ZooOptions(
            name="resnet18",
            activations=quantization(a_bits, "unipolar"),
            weights=quantization(w_bits, "bipolar"),
            image_size=image_size,
        )
    )


def test_resnet18_has_the_shapes_of_table_1() -> None:
    """Cowan et al. (CGO 2020), Table 1: (size, input channels, output channels, kernel, stride)."""
    source = resnet18(2, 1)
    graph = read(source)
    by_name = {item.layer: item for item in graph.nodes}
    rows = set()
    convolutions = [item for item in graph.nodes if item.op == "Conv" and item.layer != "conv1"]
    shapes = Oracle(graph, tuple(item.inputs[0] for item in convolutions))(
        {"data": np.zeros((1, 3, 224, 224), np.float32)}
    )
    for item in convolutions:
        weight = graph.constants[f"{item.layer}.weight"].shape
        size = shapes[item.inputs[0]].shape[2]
        rows.add((size, weight[1], weight[0], weight[2], item.attributes["strides"][0]))
    assert rows == {
        (56, 64, 64, 3, 1),
        (56, 64, 64, 1, 1),
        (56, 64, 128, 3, 2),
        (56, 64, 128, 1, 2),
        (28, 128, 128, 3, 1),
        (28, 128, 256, 3, 2),
        (28, 128, 256, 1, 2),
        (14, 256, 256, 3, 1),
        (14, 256, 512, 3, 2),
        (14, 256, 512, 1, 2),
        (7, 512, 512, 3, 1),
    }
    assert by_name["conv1"].attributes["kernel_shape"] == [7, 7]
    assert [item.layer for item in graph.nodes if item.op == "Gemm"] == ["fc"]


@pytest.mark.parametrize(("a_bits", "w_bits"), [(2, 1), pytest.param(3, 3, marks=pytest.mark.slow)])
def test_small_resnet18_agrees_with_qonnx(a_bits: int, w_bits: int) -> None:
    source = resnet18(a_bits, w_bits, image_size=32)
    vectors = golden(source=source, options=GoldenOptions(samples=1))
    data, expected = vectors.inputs["data"][0], vectors.outputs["out"][0]
    np.testing.assert_array_equal(execute_qonnx(source, {"data": data})["out"], expected)


@pytest.mark.slow
def test_full_resnet18_agrees_with_qonnx_and_the_imported_module() -> None:
    source = resnet18(2, 1)
    vectors = golden(source=source, options=GoldenOptions(samples=1))
    data, expected = vectors.inputs["data"][0], vectors.outputs["out"][0]
    np.testing.assert_array_equal(execute_qonnx(source, {"data": data})["out"], expected)
    model = run(source=source, options=ImportOptions())
    np.testing.assert_array_equal(interpret.run(model, {"data": data})["out"], expected)
