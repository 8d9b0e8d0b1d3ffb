"""What sections of a recipe say against each other, which no single section can know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipelines.recipe.quantization_fields import Quantization, tensor
from pipelines.recipe.recipe import Recipe, model_format
from stages.layer_options import LayerOverride
from stages.options import (
    LOW_BIT_NETWORKS,
)


class Contradiction(NamedTuple):
    """A fault between sections: where to show it, one sentence, and the sections it is about."""

    field: str
    sentence: str
    about: tuple[str, ...]


def contradictions(recipe: Recipe) -> Iterator[Contradiction]:
    """Yield what no single section can know to be wrong.

    Whether the recipe contradicts a model file is known only once the file is read.
    """
    zoo, base = recipe.model.zoo, recipe.quantization
    if recipe.calibration is not None and zoo is not None and recipe.model.format != "float":
        yield Contradiction(
            "calibration",
            "has nothing to calibrate: a zoo network's scales are fixed, unless model.format is "
            "float",
            ("model", "calibration"),
        )
    if zoo is None:
        return
    if base is None and recipe.model.format != "float":
        yield Contradiction(
            "model.zoo",
            f"{zoo} needs a precision; add quantization: "
            "{activations: {bits: 2}, weights: {bits: 1}}",
            ("model", "quantization"),
        )
    if base is not None and zoo not in LOW_BIT_NETWORKS and model_format(recipe) == "qonnx":
        yield Contradiction(
            "quantization",
            f"{zoo} is made with 8 bits everywhere: {{activations: {{bits: 8}}, weights: "
            f"{{bits: 8}}}}; with fewer there are {' and '.join(LOW_BIT_NETWORKS)}",
            ("model", "quantization", "layers"),
        )
    if (
        base is not None
        and recipe.model.format != "float"
        and (base.weights.granularity == "per_tensor" or base.weights.encoding == "asymmetric")
    ):
        yield Contradiction(
            "quantization.weights",
            "a zoo network's 8-bit weights are symmetric, with one scale per channel",
            ("model", "quantization"),
        )
    for index, layer in enumerate(recipe.layers if base is not None else ()):
        for name in _levels_missing(base, layer):
            yield Contradiction(
                f"layers[{index}].{name}",
                "one signed bit holds only 0 and -1; use encoding: bipolar for -1, +1",
                ("model", "quantization", "layers"),
            )


def _levels_missing(base: Quantization | None, layer: LayerOverride) -> Iterator[str]:
    """Yield the tensors of a layer to which an override gives levels that do not exist."""
    if base is None:
        return
    for name, override, start in (
        ("activations", layer.activations, base.activations),
        ("weights", layer.weights, base.weights),
    ):
        if override is not None:
            try:
                override.apply(tensor(start))
            except ValueError:
                yield name
