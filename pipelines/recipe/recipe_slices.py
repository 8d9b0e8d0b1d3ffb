"""The slice of a recipe that each stage sees."""

from __future__ import annotations

from typing import Any

from pipelines.recipe.quantization_fields import LEVELS, tensor
from pipelines.recipe.recipe import Recipe, model_format, precise_layers
from pipelines.recipe.sections import IMAGE_SIZES
from stages.layer_options import LayerAlgorithm
from stages.options import (
    ActivationScheme,
    CalibrateOptions,
    GoldenOptions,
    ImportOptions,
    LegalizeOptions,
    PackageOptions,
    QuantizeOptions,
    WeightScheme,
    ZooOptions,
)


def zoo_options(recipe: Recipe) -> ZooOptions | None:
    """Return what the zoo builds; None for a recipe with a model file."""
    name, whole = recipe.model.zoo, recipe.quantization
    if name is None:
        return None
    form = model_format(recipe)
    plain = ZooOptions(
        name=name,
        format=form,
        seed=recipe.model.seed,
        image_size=recipe.model.image_size or IMAGE_SIZES[name],
        width=recipe.model.width,
        batch=recipe.model.batch,
    )
    if form == "float":
        return plain
    if whole is None:
        return None
    precision = {
        "activations": tensor(whole.activations),
        "weights": tensor(whole.weights),
        "stem": whole.stem,
        "head": whole.head,
        "layers": precise_layers(recipe),
    }
    return plain.model_copy(update=precision)


def calibrate_options(recipe: Recipe) -> CalibrateOptions | None:
    """Return how a float model is quantized; None for a recipe without `calibration`."""
    if recipe.calibration is None:
        return None
    activations: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    if recipe.quantization is not None:
        for scheme, whole in (
            (activations, recipe.quantization.activations),
            (weights, recipe.quantization.weights),
        ):
            scheme["bits"] = whole.bits
            if whole.encoding in LEVELS:
                scheme["encoding"] = whole.encoding
        granularity = recipe.quantization.weights.granularity
        asymmetric = weights.get("encoding") == "asymmetric"
        weights["granularity"] = granularity or ("per_tensor" if asymmetric else "per_channel")
    return CalibrateOptions(
        activations=ActivationScheme(**activations),
        weights=WeightScheme(**weights),
        method=recipe.calibration.method,
    )


def import_options(recipe: Recipe) -> ImportOptions:
    """Return what the importer must know beyond the file."""
    return ImportOptions(
        inputs={name: spec.shape for name, spec in recipe.inputs.items() if spec.shape is not None}
    )


def golden_options(recipe: Recipe) -> GoldenOptions:
    """Return which golden vectors to compute."""
    return recipe.golden


def quantize_options(recipe: Recipe) -> QuantizeOptions:
    """Return how layers left in float are multiplied."""
    return QuantizeOptions(floats=recipe.floats)


def legalize_options(recipe: Recipe) -> LegalizeOptions:
    """Return the algorithms the recipe chooses, by layer."""
    return LegalizeOptions(
        layers=tuple(
            LayerAlgorithm(
                match=layer.match, algorithm=layer.algorithm or "bitserial", packing=layer.packing
            )
            for layer in recipe.layers
            if layer.algorithm is not None or layer.packing is not None
        )
    )


def package_options(recipe: Recipe, name: str) -> PackageOptions:
    """Return what to package; `name` is the recipe's name, used where it gives no other."""
    package = recipe.package
    return PackageOptions(
        name=package.name or name,
        formats=package.formats,
        version=package.version,
        profile=package.profile,
    )
