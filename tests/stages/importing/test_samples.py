"""Golden inputs lie where the network expects its inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from stages.errors import StageError
from stages.importing.onnx.onnx_reader import QONNX
from stages.options import GoldenOptions, ImportOptions
from tests.stages.importing.graphs import graph, node
from tests.stages.importing.vectors import golden

SHAPE = [1, 4000]


def drawn(source: bytes, seed: int = 0) -> np.ndarray[Any, Any]:
    return golden(source=source, options=GoldenOptions(samples=1, seed=seed)).inputs["x"]


def annotated(kind: str) -> bytes:
    model = onnx.load_model_from_string(graph([node("Relu", ["x"])], {}, SHAPE))
    note = model.graph.quantization_annotation.add(tensor_name="x")
    note.quant_parameter_tensor_names.add(key="finn_datatype", value=kind)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("UINT8", range(256)),
        ("INT4", range(-8, 8)),
        ("BIPOLAR", (-1, 1)),
        ("BINARY", (0, 1)),
    ],
)
def test_annotated_inputs(kind: str, values: range) -> None:
    assert set(np.unique(drawn(annotated(kind)))) == set(values)


def test_a_quantized_input_steps_through_the_whole_grid() -> None:
    constants = {
        "s": np.array(0.25, np.float32),
        "z": np.array(0, np.float32),
        "n": np.array(3, np.float32),
    }
    quant = helper.make_node("Quant", ["a", *constants], ["y"], domain=QONNX, signed=1, narrow=1)
    source = graph([node("Flatten", ["x"], "a"), quant], constants, SHAPE)
    assert np.unique(drawn(source)).tolist() == [step / 4 for step in range(-3, 4)]


def test_pixels_to_be_scaled_and_pixels_already_scaled() -> None:
    source = graph([node("Div", ["x", "c"])], {"c": np.array(255, np.float32)}, SHAPE)
    assert (drawn(source).min(), drawn(source).max()) == (0, 255)
    source = graph([node("Relu", ["x"])], {}, SHAPE)
    assert (drawn(source).min(), drawn(source).max()) == (0, 1)


def test_seeds() -> None:
    source = annotated("UINT8")
    np.testing.assert_array_equal(drawn(source), drawn(source))
    assert (drawn(source) != drawn(source, seed=1)).any()


def test_samples_are_stacked_in_front_of_the_graph_s_own_shape() -> None:
    source = graph([node("Relu", ["x"])], {}, [1, "f"])
    with pytest.raises(StageError, match="leaves the shape of input 'x' open"):
        golden(source=source, options=GoldenOptions())
    vectors = golden(
        source=source,
        options=GoldenOptions(samples=3),
        imports=ImportOptions(inputs={"x": (1, 5)}),
    )
    assert vectors.inputs["x"].shape == vectors.outputs["y"].shape == (3, 1, 5)


DOMAINS = {
    "Log": (0, 1),
    "Reciprocal": (0, 1),
    "Log of Neg": (-1, 0),
    "Sqrt of Neg": (-1, 0),
    "Reciprocal of Floor": (-1, 0),
    "Log of Log": (1, 2),
}


@pytest.mark.parametrize("case", DOMAINS)
@pytest.mark.parametrize("domains", [[], [QONNX]], ids=["onnx", "qonnx"])
def test_inputs_lie_where_functions_are_finite(case: str, domains: list[str]) -> None:
    """Between two numbers, which are none of them."""
    last, *first = case.split(" of ")
    nodes = [node(op, ["x"], "t") for op in first] + [node(last, ["t" if first else "x"])]
    source = graph(nodes, {}, SHAPE, domains=domains)
    vectors = golden(source=source, options=GoldenOptions(samples=2))
    low, high = DOMAINS[case]
    x = vectors.inputs["x"]
    assert low < x.min() < low + 0.1 and high - 0.1 < x.max() < high
    assert np.isfinite(vectors.outputs["y"]).all()
    assert len(np.unique(x)) == 256


def test_each_input_of_several_lies_there() -> None:
    for op in ("Div", "Pow"):
        nodes = [node("Split", ["x"], "a", axis=1, num_outputs=2), node(op, ["a", "b"])]
        nodes[0].output.append("b")
        vectors = golden(source=graph(nodes, {}, SHAPE, opset=18), options=GoldenOptions())
        assert np.isfinite(vectors.outputs["y"]).all()


def test_infinite_outputs_are_told() -> None:
    nodes = [node("Sub", ["x", "x"], "zero"), node("Div", ["x", "zero"])]
    with pytest.raises(StageError) as caught:
        golden(source=graph(nodes, {}, SHAPE), options=GoldenOptions())
    assert str(caught.value) == (
        "output 'y' is infinite or NaN on the golden inputs, wherever between -1 and 2 those of "
        "floats are drawn; a build compares finite outputs; see whether the network is meant to "
        "give others"
    )
