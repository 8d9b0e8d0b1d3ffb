"""Everything a recipe may say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from pipelines.recipe.quantization_fields import INT8, Quantization, Section
from pipelines.recipe.sections import (
    Calibration,
    Evaluation,
    InputSpec,
    ModelSource,
    OutputSpec,
    Package,
)
from stages.layer_options import LayerOverride
from stages.options import (
    FloatPrecision,
    GoldenOptions,
    ModelFormat,
    ScheduleOptions,
)


class Recipe(Section):
    """A network, its precision, the hardware, and what to build; its name is its file's stem."""

    extends: str | None = Field(default=None, examples=["base"])
    """A recipe to start from, a name or a path: mappings merge, lists and scalars replace."""
    description: str = Field(default="", examples=["ResNet-18, 2-bit activations, 1-bit weights"])
    """One line for people."""
    model: ModelSource
    """The network, as {zoo: resnet18} or {file: model.onnx}."""
    inputs: dict[str, InputSpec] = Field(
        default={}, examples=[{"data": {"shape": [1, 3, 224, 224], "resize": 256, "crop": 224}}]
    )
    """Graph inputs by name."""
    outputs: dict[str, OutputSpec] = Field(
        default={}, examples=[{"out": {"postprocess": "softmax"}}]
    )
    """Graph outputs by name."""
    quantization: Quantization | None = Field(
        default=None, examples=[{"activations": {"bits": 2}, "weights": {"bits": 1}}]
    )
    """Precision, for a network that does not bring its own."""
    layers: tuple[LayerOverride, ...] = Field(
        default=(), examples=[[{"match": "layer4.*", "weights": {"bits": 2}}]]
    )
    """What is different about some layers, in order; later entries win."""
    floats: FloatPrecision = "float32"
    """What the products of layers left in float are made of; bfloat16, of 8 bits of precision, is
    for processors that have instructions for it, and float16, of 11, for hardware with +fullfp16
    alone."""
    golden: GoldenOptions = GoldenOptions()
    """The golden vectors that `verify` replays."""
    calibration: Calibration | None = None
    """How the ranges of a float model are found; without it, the model stays float."""
    evaluation: Evaluation | None = None
    """What `accuracy` measures."""
    hardware: str = Field(default="host", min_length=1, examples=["rpi3", "boards/mine.yaml"])
    """A board of hw/boards by name, or the path of a board file relative to the recipe."""
    schedule: ScheduleOptions = ScheduleOptions()
    """How schedules are found."""
    package: Package = Package()
    """What the package holds."""


def model_format(recipe: Recipe) -> ModelFormat:
    """Return how a zoo network is written."""
    if recipe.model.format is not None or recipe.quantization is None:
        return recipe.model.format or "float"
    whole = recipe.quantization
    widths = {whole.activations.bits, whole.weights.bits}
    is_int8 = widths == {INT8} and not precise_layers(recipe)
    return "qdq" if is_int8 else "qonnx"


def precise_layers(recipe: Recipe) -> tuple[LayerOverride, ...]:
    """The overrides of precision, without algorithms and how these pack bits."""
    return tuple(
        layer.model_copy(update={"algorithm": None, "packing": None})
        for layer in recipe.layers
        if layer.activations is not None or layer.weights is not None
    )


def flatten(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of every leaf of plain data; a list of plain values is a leaf."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from flatten(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list) and any(isinstance(item, dict) for item in data):
        for index, item in enumerate(data):
            yield from flatten(item, f"{path}[{index}]")
    else:
        yield path, data
