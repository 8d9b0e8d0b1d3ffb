"""What a recipe says beside what its model file holds: everything that cannot both be true."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.documents.validate import Location
from pipelines.errors import UserError, did_you_mean
from pipelines.recipe import class_names
from pipelines.recipe.picture_sizes import pair
from pipelines.recipe.recipe import Recipe
from pipelines.recipe.resolved import Resolved
from pipelines.recipe.sections import CHANNELS, CLASSES, InputSpec
from stages.image_layout import layout
from stages.layer_options import is_match

Description = Mapping[str, Any]
"""What `stages.importing.describe` says of the model file."""

Found = tuple[Location, str]
"""The field at fault and one sentence."""

_TENSORS = ("activations", "weights")
_INT8 = 8
_ONLY_SHOWN = 4


def check(resolved: Resolved, description: Description) -> None:
    """Raise one UserError with every field of the recipe that the model file contradicts."""
    found = [
        *_inputs(resolved, description),
        *_outputs(resolved, description),
        *_patterns(resolved.recipe, description),
    ]
    if resolved.recipe.model.file is not None and resolved.recipe.calibration is None:
        precisions = _precisions if is_quantized(description) else _stated_in_vain
        found += precisions(resolved, description)
    if found:
        raise resolved.errors(found)


def is_quantized(description: Description) -> bool:
    """Whether anything in the file quantizes: an operator, or FINN's annotation of a tensor."""
    kinds = description["operators"]
    is_operator = any("quant" in kind.lower() or "finn" in kind for kind in kinds)
    is_operator |= any(kind.rpartition(".")[2] in ("MultiThreshold", "Sign") for kind in kinds)
    ends = [*description["inputs"], *description["outputs"]]
    is_stored = any("scale" in item for item in ends)
    layers = description["layers"]
    return is_operator or is_stored or any(layer[name] for layer in layers for name in _TENSORS)


def _stated_in_vain(resolved: Resolved, description: Description) -> Iterator[Found]:
    """Yield the first precision stated for a float model, which nothing gives it."""
    recipe = resolved.recipe
    assert recipe.model.file is not None
    is_layers = any(item.activations or item.weights for item in recipe.layers)
    place = "quantization" if recipe.quantization else "layers" if is_layers else None
    if place is not None:
        layers = [layer["layer"] for layer in description["layers"]]
        what = f"its {len(layers)} layers are float ({_some(layers)})" if layers else "it is float"
        yield (
            (place,),
            (
                f"{recipe.model.file.name} has no quantizers: {what}; name calibration data under "
                "calibration, train it with quantizers and export it as QONNX (Brevitas does), or "
                f"leave {place} out for a package that computes in float32"
            ),
        )


def _inputs(resolved: Resolved, description: Description) -> Iterator[Found]:
    known = {item["name"]: item["shape"] for item in description["inputs"]}
    for name, spec in resolved.recipe.inputs.items():
        if name not in known:
            yield ("inputs", name), f"the model has no such input{did_you_mean(name, [*known])}"
            continue
        shape = known[name]
        if spec.shape is not None:
            fits = len(shape) == len(spec.shape) and all(
                have in (None, want) for have, want in zip(shape, spec.shape, strict=True)
            )
            if not fits:
                said = ", ".join("?" if extent is None else str(extent) for extent in shape)
                sentence = f"says {list(spec.shape)}, but the model has [{said}]"
                yield ("inputs", name, "shape"), sentence
                continue
            shape = spec.shape
        # An open batch becomes 1; other open extents are reported by the importer.
        shape = [1 if extent is None and not at else extent for at, extent in enumerate(shape)]
        if None not in shape:
            yield from (
                (("inputs", name, field), sentence) for field, sentence in _picture(spec, shape)
            )


def _picture(spec: InputSpec, shape: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a picture that do not go with the input's shape."""
    found = layout(shape)
    stated = [name for name in ("color", "resize", "crop") if getattr(spec, name) is not None]
    if found is None:
        for name in stated:
            yield name, f"is for pictures, and the input takes {list(shape)}, which holds none"
        return
    takes = f"the input takes {list(shape)}"
    if spec.color is not None and CHANNELS[spec.color] != found.channels:
        yield (
            "color",
            f"{spec.color} has {CHANNELS[spec.color]} channels, and {takes}: {found.channels}",
        )
    for name, values in (("mean", spec.mean), ("std", spec.std)):
        if len(values) not in (0, 1, found.channels):
            yield name, f"has {len(values)} values, and {takes}: {found.channels} channels"
    if spec.crop is not None and (found.height, found.width) != pair(spec.crop):
        height, width = pair(spec.crop)
        yield "crop", f"gives {width} x {height} pixels, and {takes}"
    elif spec.crop is None and isinstance(spec.resize, int):
        if spec.resize != min(found.height, found.width):
            yield "resize", f"gives a shorter side of {spec.resize} pixels, and {takes}; state crop"
    elif spec.crop is None and spec.resize not in (None, (found.height, found.width)):
        yield "resize", f"covers {list(pair(spec.resize))}, and {takes}; state crop"


def _outputs(resolved: Resolved, description: Description) -> Iterator[Found]:
    known = {item["name"]: item["shape"] for item in description["outputs"]}
    for name, spec in resolved.recipe.outputs.items():
        if name not in known:
            sentence = f"the model has no such output{did_you_mean(name, [*known])}"
            yield ("outputs", name), sentence
        elif spec.labels is not None:
            try:
                class_names.read(spec.labels, _classes(known[name]))
            except UserError as error:
                yield ("outputs", name, "labels"), error.message
    evaluation = resolved.recipe.evaluation
    if evaluation is not None and len(known) == 1:
        classes = _classes(next(iter(known.values())))
        if classes is not None and 1 < classes < CLASSES[evaluation.metric]:
            sentence = f"{evaluation.metric} says nothing about {classes} classes; accepted: top1"
            yield ("evaluation", "metric"), sentence


def _classes(shape: Sequence[int | None] | None) -> int | None:
    """Return how many numbers an output holds, None if the importer could not tell."""
    extents = [] if shape is None else [*shape]
    if shape is None or None in extents:
        return None
    return math.prod(extent for extent in extents if extent is not None)


def _patterns(recipe: Recipe, description: Description) -> Iterator[Found]:
    names = [layer["layer"] for layer in description["layers"]]
    for index, item in enumerate(recipe.layers):
        if not any(is_match(item.match, name) for name in names):
            sentence = f"matches no layer{_or_layers(item.match, names)}"
            yield ("layers", index, "match"), sentence


def _or_layers(pattern: str, names: list[str]) -> str:
    said = did_you_mean(pattern, names)
    return said if "did you mean" in said else f"; the layers are {_some(names, 40)}"


@dataclass(frozen=True)
class _StatedValue:
    """A value that a recipe states of a tensor, and the field that says so."""

    value: Any
    place: Location
    is_inner: bool = False
    """Whether it is for inner layers, so that the first and last may have 8 bits instead."""


def _precisions(resolved: Resolved, description: Description) -> Iterator[Found]:
    """Yield each field that states another precision than the file has, with the first layer."""
    layers = description["layers"]
    differing: dict[Location, list[str]] = {}
    excused: dict[Location, list[str]] = {}
    held: set[Location] = set()
    for position, layer in enumerate(layers):
        is_edge = position in (0, len(layers) - 1)
        for tensor in _TENSORS:
            found = layer[tensor] or {}
            phrase = f"layer '{layer['layer']}' has {_described(layer[tensor])} {tensor}"
            for name, stated in _stated_values(
                resolved, layer["layer"], position, len(layers), tensor
            ):
                if found.get(name) == stated.value:
                    held.add(stated.place)
                elif is_edge and stated.is_inner and found.get("bits") == _INT8:
                    excused.setdefault(stated.place, []).append(phrase)
                else:
                    differing.setdefault(stated.place, []).append(phrase)
    # A precision that every layer is excused from would be stated for nothing.
    idle = {place: phrases for place, phrases in excused.items() if place not in held}
    differing = idle | differing
    for place, phrases in differing.items():
        more = f", and {len(phrases) - 1} more differ" if len(phrases) > 1 else ""
        yield (
            place,
            f"says {_stated(resolved.recipe, place)}, but in the model file {phrases[0]}{more}; "
            "the file brings its own precision, so leave this out",
        )


def _stated_values(
    resolved: Resolved, layer: str, position: int, count: int, tensor: str
) -> Iterator[tuple[str, _StatedValue]]:
    """Yield what the recipe states of one tensor of a layer, bits and encoding; the last word."""
    recipe = resolved.recipe
    values: dict[str, _StatedValue] = {}
    if recipe.quantization is not None:
        whole = getattr(recipe.quantization, tensor)
        for name in ("bits", "encoding"):
            if resolved.is_stated(f"quantization.{tensor}.{name}"):
                place: Location = ("quantization", tensor, name)
                values[name] = _StatedValue(getattr(whole, name), place, is_inner=True)
        edges = {0: "stem", count - 1: "head"}
        edge = edges.get(position)
        if edge is not None and resolved.is_stated(f"quantization.{edge}"):
            values = {"bits": _StatedValue(_INT8, ("quantization", edge))}
    for index, item in enumerate(recipe.layers):
        override = getattr(item, tensor)
        if override is not None and is_match(item.match, layer):
            for name in ("bits", "encoding"):
                if getattr(override, name) is not None:
                    place = ("layers", index, tensor, name)
                    values[name] = _StatedValue(getattr(override, name), place)
    yield from values.items()


def _stated(recipe: Recipe, place: Location) -> str:
    value: Any = recipe
    for part in place:
        value = value[part] if isinstance(part, int) else getattr(value, part)
    return f"{value}-bit" if place[-1] == "bits" else str(value)


def _described(found: Mapping[str, Any] | None) -> str:
    return f"{found['bits']}-bit {found['encoding']}" if found else "float"


def _some(names: Sequence[str], most: int = _ONLY_SHOWN) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
