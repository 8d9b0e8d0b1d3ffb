"""What a recipe may say, and the slice of it that each stage sees."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from pipelines.documents import fields
from pipelines.recipe.consistency import contradictions
from pipelines.recipe.recipe import Recipe, flatten
from pipelines.recipe.recipe_slices import (
    calibrate_options,
    golden_options,
    import_options,
    legalize_options,
    package_options,
    zoo_options,
)
from pipelines.recipe.sections import IMAGE_SIZES
from stages import layer_options, options

BASE: dict[str, Any] = {
    "model": {"zoo": "resnet18"},
    "quantization": {"activations": {"bits": 2}, "weights": {"bits": 1}},
}


def recipe(**changes: Any) -> Recipe:
    return Recipe.model_validate_json(json.dumps({**BASE, **changes}))


def test_encodings_are_those_of_the_paper_unless_said_otherwise() -> None:
    made = zoo_options(recipe())
    assert made is not None
    assert made.activations == layer_options.TensorQuantization(bits=2, encoding="unipolar")
    assert made.weights == layer_options.TensorQuantization(bits=1, encoding="bipolar")


def test_zoo_sees_precision_and_nothing_else() -> None:
    layers = [
        {"match": "layer4.*", "weights": {"bits": 2}, "algorithm": "bitserial"},
        {"match": "layer1.*", "algorithm": "mac8"},
    ]
    made = zoo_options(recipe(layers=layers, hardware="rpi3"))
    same = zoo_options(recipe(layers=[{"match": "layer4.*", "weights": {"bits": 2}}]))
    assert made == same
    assert made is not None
    assert made.layers == (
        layer_options.LayerOverride(match="layer4.*", weights=layer_options.TensorOverride(bits=2)),
    )
    assert legalize_options(recipe(layers=layers)).layers == (
        layer_options.LayerAlgorithm(match="layer4.*", algorithm="bitserial"),
        layer_options.LayerAlgorithm(match="layer1.*", algorithm="mac8"),
    )


@pytest.mark.parametrize("name", IMAGE_SIZES)
def test_zoo_networks_have_their_own_image_size(name: str) -> None:
    made = zoo_options(recipe(model={"zoo": name}))
    assert made is not None
    assert made.image_size == IMAGE_SIZES[made.name]
    small = zoo_options(recipe(model={"zoo": name, "image_size": 32, "seed": 7, "width": 2}))
    assert small is not None
    assert (small.image_size, small.seed, small.width) == (32, 7, 2)


@pytest.mark.parametrize(
    ("activations", "encoding"),
    [
        ({}, "unipolar"),
        ({"encoding": "asymmetric"}, "unipolar"),
        ({"encoding": "symmetric"}, "signed"),
    ],
)
def test_eight_bits_everywhere_are_qdq(activations: dict[str, Any], encoding: str) -> None:
    precision = {"activations": {"bits": 8, **activations}, "weights": {"bits": 8}}
    made = recipe(model={"zoo": "mobilenet_v1"}, quantization=precision)
    assert list(contradictions(made)) == []
    options_ = zoo_options(made)
    assert options_ is not None
    assert (options_.format, options_.activations.encoding) == ("qdq", encoding)
    assert options_.weights == layer_options.TensorQuantization(bits=8, encoding="signed")


def test_fewer_bits_somewhere_are_qonnx() -> None:
    layers = [{"match": "layer4.*", "weights": {"bits": 2, "encoding": "signed"}}]
    precision = {"activations": {"bits": 8}, "weights": {"bits": 8}}
    made = zoo_options(recipe(quantization=precision, layers=layers))
    assert made is not None
    assert made.format == "qonnx"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": {"zoo": "mobilenet_v2"}}, "quantization"),
        ({"quantization": {"activations": {"bits": 8},
                           "weights": {"bits": 8, "granularity": "per_tensor"}}},
         "quantization.weights"),
        ({"quantization": {"activations": {"bits": 8},
                           "weights": {"bits": 8, "encoding": "asymmetric"}}},
         "quantization.weights"),
        ({"quantization": None}, "model.zoo"),
    ],
)  # fmt: skip
def test_precisions_a_zoo_network_does_not_have(changes: dict[str, Any], field: str) -> None:
    assert [item.field for item in contradictions(recipe(**changes))] == [field]


@pytest.mark.parametrize("encoding", ["asymmetric", "symmetric"])
def test_scales_and_zero_points_are_for_8_bits(encoding: str) -> None:
    with pytest.raises(ValidationError, match=f"{encoding} is for 8 bits; with 4, use unipolar"):
        recipe(
            quantization={"activations": {"bits": 4, "encoding": encoding}, "weights": {"bits": 1}}
        )


def test_a_float_zoo_network_has_no_precision_of_its_own() -> None:
    made = recipe(model={"zoo": "resnet50", "format": "float"}, quantization=None)
    assert list(contradictions(made)) == []
    options_ = zoo_options(made)
    assert options_ is not None
    assert (options_.format, options_.image_size) == ("float", 224)


def test_calibration_sees_method_and_precision() -> None:
    made = recipe(
        model={"file": "/net.onnx"},
        quantization={
            "activations": {"bits": 8, "encoding": "symmetric"},
            "weights": {"bits": 8, "encoding": "asymmetric"},
        },
        calibration={"data": "/pictures", "method": "entropy", "samples": 7},
    )
    assert calibrate_options(made) == options.CalibrateOptions(
        activations=options.ActivationScheme(encoding="symmetric"),
        weights=options.WeightScheme(encoding="asymmetric", granularity="per_tensor"),
        method="entropy",
    )
    assert calibrate_options(recipe()) is None
    plain = recipe(model={"file": "/n.onnx"}, quantization=None, calibration={"data": "/d"})
    assert calibrate_options(plain) == options.CalibrateOptions()


def test_a_file_needs_no_zoo() -> None:
    made = recipe(model={"file": "/net.onnx"}, quantization=None)
    assert zoo_options(made) is None
    assert list(contradictions(made)) == []


def test_import_sees_shapes_only() -> None:
    made = recipe(inputs={"data": {"shape": [1, 3, 8, 8], "crop": 8}, "mask": {"color": "gray"}})
    assert import_options(made) == options.ImportOptions(inputs={"data": (1, 3, 8, 8)})


def test_the_other_slices() -> None:
    made = recipe(golden={"samples": 5}, package={"formats": ["executable", "shared"]})
    assert golden_options(made) == options.GoldenOptions(samples=5)
    assert package_options(made, "net") == options.PackageOptions(
        name="net", formats=("shared", "executable")
    )
    assert package_options(recipe(package={"name": "own"}), "net").name == "own"


def test_the_order_of_formats_is_no_difference() -> None:
    one = recipe(package={"formats": ["static", "shared"]})
    other = recipe(package={"formats": ["shared", "static"]})
    assert package_options(one, "n") == package_options(other, "n")


@pytest.mark.parametrize("name", ["Net", "1net", "net-1", "net_", "a__b", "", "a" * 64, "né"])
def test_package_names_prefix_c_symbols(name: str) -> None:
    with pytest.raises(ValidationError):
        options.PackageOptions(name=name)


def test_an_override_changes_what_it_says() -> None:
    base = layer_options.TensorQuantization(bits=2, encoding="unipolar")
    override = layer_options.TensorOverride
    assert override(bits=3).apply(base) == layer_options.TensorQuantization(
        bits=3, encoding="unipolar"
    )
    assert override(encoding="signed").apply(base).encoding == "signed"
    assert override().apply(base) == base


@pytest.mark.parametrize("bits", [True, 0, 9, 2.0, "2", None])
def test_bits_are_whole_numbers_from_1_to_8(bits: object) -> None:
    with pytest.raises(ValidationError):
        recipe(quantization={"activations": {"bits": bits}, "weights": {"bits": 1}})
    with pytest.raises(ValidationError):
        layer_options.TensorQuantization(bits=bits, encoding="unipolar")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "layer", "matches"),
    [
        ("layer4.*", "layer4.0.conv1", True),
        ("layer4.*", "layer40", False),
        ("Layer4.*", "layer4.0", False),
        ("*", "conv1", True),
        ("conv[12]", "conv2", True),
    ],
)
def test_layer_patterns_are_globs(pattern: str, layer: str, matches: bool) -> None:
    assert layer_options.is_match(pattern, layer) is matches


def models() -> set[type[BaseModel]]:
    """Every model a recipe is made of, and the options of every stage."""
    found: set[type[BaseModel]] = set()
    todo: list[type[BaseModel]] = [
        Recipe,
        *(
            item
            for item in {**vars(layer_options), **vars(options)}.values()
            if isinstance(item, type) and issubclass(item, layer_options.Options)
        ),
    ]
    while todo:
        model = todo.pop()
        if model in found:
            continue
        found.add(model)
        for field in model.model_fields.values():
            kind, inner = fields.kind_of(field.annotation)
            while kind in ("list", "mapping"):
                kind, inner = fields.kind_of(inner)
            if kind == "model":
                todo.append(inner)
    return found


@pytest.mark.parametrize("model", sorted(models(), key=str), ids=lambda model: model.__name__)
def test_every_model_is_closed_strict_frozen_and_described(model: type[BaseModel]) -> None:
    config = model.model_config
    assert (config.get("extra"), config.get("strict"), config.get("frozen")) == (
        "forbid",
        True,
        True,
    )
    for name, field in model.model_fields.items():
        assert field.description, f"{model.__name__}.{name} has no description"


def test_flatten_keeps_lists_of_plain_values_whole() -> None:
    data = {"a": {"b": 1, "c": []}, "d": [1, 2], "e": [{"f": 1}, {"f": [2]}], "g": {}}
    assert dict(flatten(data)) == {
        "a.b": 1,
        "a.c": [],
        "d": [1, 2],
        "e[0].f": 1,
        "e[1].f": [2],
        "g": {},
    }
