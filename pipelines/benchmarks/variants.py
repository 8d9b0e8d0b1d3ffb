"""The network of a recipe at other precisions, as files that engines can run.

An integer file is run as it is. Of a network with quantizers below 8 bits no engine has integer
kernels: they run its float32 twin, and a zoo network's standard ONNX QDQ in 8 bits besides. Bipolar
layers have kernels in Larq Compute Engine, which gets a twin of its own.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Literal

from pipelines.builds import agreement
from pipelines.builds.plan import IMPORTING, Plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.errors import UserError
from pipelines.recipe import recipe_slices
from pipelines.recipe.resolved import Resolved
from stages import importing
from stages.errors import StageError
from stages.importing.formats import ONNX, format_of
from stages.importing.twins import float_twin, larq_twin
from stages.importing.zoo import build
from stages.layer_options import TensorQuantization
from stages.options import ZooOptions

Precision = Literal["float32", "int8", "bipolar", "as stored"]
QONNX_NUMERICS = "qonnx"
_FORMS = {"stages.importing.tflite": "tflite", "stages.importing.torch_export": "pt2"}
"""Module of a reader → the ending by which engines know the format."""

WITH_TWINS = (("onnx", "int8"), ("onnx", "as stored"))
"""Form and precision of files that engines with a form of their own may get a twin of."""


@dataclass(frozen=True)
class Variant:
    """A model file at a precision; `is_same` where it is the recipe's own file."""

    precision: Precision
    source: bytes
    form: str
    is_same: bool = False


def variants(plan: Plan, resolved: Resolved) -> list[Variant]:
    """Return the files that engines are asked to run for a recipe, its own first."""
    recipe = resolved.recipe
    source = agreement.source(plan)
    found = format_of(source)
    if found is not ONNX:
        form = _FORMS.get(found.module, "")
        return [Variant("as stored", source, form, is_same=recipe.calibration is None)]
    zoo = recipe_slices.zoo_options(recipe)
    if zoo is not None and recipe.calibration is None:
        return _of_zoo(zoo, source)
    if recipe.calibration is not None:
        return [Variant("float32", source, "onnx")]
    return _of_file(plan, source)


def _of_zoo(zoo: ZooOptions, source: bytes) -> list[Variant]:
    sizes = zoo.model_dump(include={"name", "seed", "image_size", "width", "batch"})
    plain = ZooOptions(format="float", **sizes)
    if zoo.format == "float":
        floats = Variant("float32", source, "onnx", is_same=True)
    elif zoo.format == "qdq":
        floats = Variant("float32", build(options=plain), "onnx")
    else:
        floats = Variant("float32", float_twin.build(source), "onnx")
    if zoo.format == "qdq":
        return [Variant("int8", source, "onnx", is_same=True), floats]
    integers = build(options=plain.model_copy(update={"format": "qdq"}))
    return [floats, Variant("int8", integers, "onnx"), *_larq_of_zoo(zoo)]


def _larq_of_zoo(zoo: ZooOptions) -> list[Variant]:
    """Of a network of single bits the twin of its shapes: to Larq every bit is a sign."""
    if (zoo.activations.bits, zoo.weights.bits) != (1, 1):
        return []
    sign = TensorQuantization(bits=1, encoding="bipolar")
    return _larq_twin(build(options=zoo.model_copy(update={"activations": sign, "weights": sign})))


def _larq_twin(source: bytes) -> list[Variant]:
    """The file for Larq, of a network that has bipolar layers and else what Larq can."""
    with contextlib.suppress(larq_twin.NoTwinError):
        return [Variant("bipolar", larq_twin.twin(source), "larq")]
    return []


def _of_file(plan: Plan, source: bytes) -> list[Variant]:
    model = PlanExecution(plan).load(plan.step(IMPORTING))
    if importing.numerics(model) != QONNX_NUMERICS:
        return [Variant("as stored", source, "onnx", is_same=True)]
    try:
        return [Variant("float32", float_twin.build(source), "onnx"), *_larq_twin(source)]
    except StageError as error:
        raise UserError(f"bench: {error}") from error
