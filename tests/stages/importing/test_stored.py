"""Files of stored integers at importing's own door: models, golden vectors, starter recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.recipe.load import load_recipe
from stages import importing
from stages.errors import StageError
from stages.graph.bindings import quantization_of
from stages.image_layout import are_less_128
from stages.options import GoldenOptions, ImportOptions
from tests.stages.importing.tflite_models import Tensor, run_reference, single
from tests.stages.importing.vectors import golden as golden_of

SHAPE = (1, 4, 4, 3)


def changed(dtype: str, scale: float, zero_point: int, shape: tuple[int, ...] = SHAPE) -> bytes:
    """A change of scale, from an input of the given one."""
    given = Tensor(shape, dtype, scale, zero_point)
    return single("QUANTIZE", [given], [Tensor(shape, "int8", 0.25, 3)], "QuantizeOptions")


def test_a_model_says_whose_numerics_and_what_its_numbers_mean() -> None:
    model = importing.run(source=changed("uint8", 0.5, 7), options=ImportOptions())
    assert importing.numerics(model) == "tflite"
    shapes, outputs = importing.signature(model)
    assert list(shapes.values()) == [SHAPE] and len(outputs) == 1
    (name,) = shapes
    assert quantization_of(model)[name] == {"scale": 0.5, "zero_point": 7}
    assert quantization_of(model)[outputs[0]] == {"scale": 0.25, "zero_point": 3}


def test_golden_inputs_take_all_stored_values_and_outputs_are_the_frameworks() -> None:
    source = changed("int8", 0.5, -7, (1, 32, 32, 3))
    golden = golden_of(source=source, options=GoldenOptions(samples=2, seed=1))
    (inputs,), (outputs,) = golden.inputs.values(), golden.outputs.values()
    assert inputs.dtype == outputs.dtype == np.int8
    assert len(np.unique(inputs)) == 256
    for given, found in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(run_reference(source, given)[0], found)


def test_golden_inputs_of_other_types() -> None:
    source = single(
        "CAST", [Tensor((64,), "int32")], [Tensor((64,), "float32")], "CastOptions",
    )  # fmt: skip
    golden = golden_of(source=source, options=GoldenOptions(samples=1))
    (inputs,) = golden.inputs.values()
    assert inputs.dtype == np.int32 and set(np.unique(inputs)) == {0, 1}


def test_an_executor_takes_the_graphs_own_shapes_alone() -> None:
    execute = importing.executor(source=changed("uint8", 0.5, 7))
    with pytest.raises(StageError, match="the graph takes the inputs"):
        execute({"x": np.zeros((2, 4, 4, 3), np.uint8)})


@pytest.mark.parametrize(
    ("dtype", "scale", "zero_point", "note"),
    [
        ("uint8", 0.0078125, 128, "pixels are stored as they are, real values -1 to 0.992188"),
        ("int8", 1 / 255, -128, "pixels are stored minus 128, real values 0 to 1"),
        ("int8", 0.58, 83, "stands for -122.38 to 25.52; for images state scale, mean and std"),
    ],
)
def test_a_starter_recipe_says_what_becomes_of_pixels(
    dtype: str, scale: float, zero_point: int, note: str, tmp_path: Path
) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(changed(dtype, scale, zero_point, (1, 8, 8, 3)))
    found: dict[str, Any] = importing.describe(source=path.read_bytes())
    assert not found["unsupported"]
    text = importing.starter_recipe(found, str(path), "net")
    assert note in text
    recipe = tmp_path / "net.yaml"
    recipe.write_text(text)
    assert load_recipe(str(recipe)).recipe.model.file == path


@pytest.mark.parametrize(
    ("scale", "zero_point", "expected"),
    [(1.0, -128, True), (1 / 127.5, -1, True), (1 / 128, 0, True), (0.02, 0, False), (1, 0, False)],
)
def test_scales_of_pixels(scale: float, zero_point: float, expected: bool) -> None:
    assert are_less_128(scale, zero_point) == expected
