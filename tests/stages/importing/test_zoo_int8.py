"""Zoo networks in 8 bits: the papers' sizes, lively tensors, and one meaning in any runtime."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from stages.errors import StageError
from stages.graph import interpret
from stages.importing import run
from stages.importing.zoo import NETWORKS, build
from stages.layer_options import LayerOverride, TensorOverride, TensorQuantization
from stages.options import ImportOptions, ModelFormat, ZooName, ZooOptions
from tests.warm import scratch

Array = np.ndarray[Any, Any]

SIZES = {
    "mobilenet_v1": (4.22, 0.569),
    "mobilenet_v2": (3.49, 0.301),
    "inception_v1": (7.00, 1.583),
    "inception_v2": (11.19, 2.02),
    "inception_bn": (11.28, 1.987),
    "inception_v3": (23.82, 5.713),
    "inception_v4": (42.65, 12.25),
    "resnet18": (11.69, 1.827),
    "resnet50": (25.53, 4.089),
    "resnet50_v1": (25.53, 3.858),
    "resnet101": (44.50, 7.80),
    "resnet152": (60.12, 11.51),
    "resnet8": (0.0777, 0.0125),
    "mobilenet_v1_025": (0.2109, 0.00749),
    "ds_cnn": (0.0226, 0.00266),
    "autoencoder": (0.2662, 0.000264),
}
"""Millions of parameters and billions of multiply-accumulates of one image."""

OWN = {"inception_v3": 299, "inception_v4": 299, "resnet8": 32, "mobilenet_v1_025": 96}
"""Height and width of the papers' images, where these are not 224."""
SMALL = {"inception_v3": 107, "inception_v4": 107}
DEEP = ("resnet101", "resnet152", "inception_v4", "resnet50", "inception_v3", "resnet50_v1")
SAME: dict[ZooName, ZooName] = {"resnet50_v1b": "resnet50"}
"""Second names of a network, which is tried under the first."""
RESNET50: tuple[ZooName, ZooName] = ("resnet50_v1", "resnet50")
NAMES = [name for name in get_args(ZooName) if name not in SAME]


def is_tried(name: str, signed: bool) -> bool:
    """Whether a network is tried with activations of this type: of deep ones, with one of both."""
    return name not in DEEP or signed == bool(DEEP.index(name) % 2)


def int8(
    name: ZooName,
    size: int | None = None,
    form: ModelFormat = "qdq",
    signed: bool = False,
    seed: int = 0,
) -> bytes:
    encoding: Any = "signed" if signed else "unipolar"
    return build(
        options=ZooOptions(
            name=name,
            format=form,
            activations=TensorQuantization(bits=8, encoding=encoding),
            image_size=size or SMALL.get(name, 64),
            seed=seed,
        )
    )


@functools.cache
def made(name: ZooName, signed: bool) -> Path:
    """A file of a network that several tests look at; the largest have 60 MB."""
    path = scratch("zoo") / f"{name}-{signed}.onnx"
    path.write_bytes(int8(name, signed=signed))
    return path


def run_ort(
    source: bytes, data: Array, *, optimized: bool = True, outputs: list[str] | None = None
) -> list[Array]:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    # Without VNNI the runtime's sums of u8 x s8 saturate at 16 bits unless told not to.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimized:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(runtime.InferenceSession(source, options).run(outputs, {"data": data}))


def image(name: ZooName, seed: int, size: int | None = None) -> Array:
    """Noise, or for odd seeds noise sorted along the height, which is smooth."""
    shape = NETWORKS[name](size or SMALL.get(name, 64)).image
    pixels = np.random.default_rng(seed).integers(0, 256, (1, *shape))
    if seed % 2:
        pixels = np.sort(pixels, axis=2)
    return (pixels / np.float32(255)).astype(np.float32)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_the_papers(name: ZooName) -> None:
    network = NETWORKS[name](OWN.get(name, 224))
    layers = network.layers
    channels = {"data": network.image[0]} | {layer.name: layer.shape[0] for layer in layers}
    parameters = work = 0
    for layer in layers:
        if layer.op in ("conv", "dense"):
            depth = channels[layer.inputs[0]] // layer.groups
            weights = layer.shape[0] * depth * int(np.prod(layer.kernel))
            parameters += weights + layer.shape[0]
            work += weights * layer.shape[1] * layer.shape[2]
    assert (parameters / 1e6, work / 1e9) == pytest.approx(SIZES[name], rel=2e-3)
    last_map = next(layer.shape for layer in layers if layer.name == layers[-2].inputs[0])
    sizes = {
        "ds_cnn": (25, 5),
        "autoencoder": (1, 1),
        "resnet8": (8, 8),
        "mobilenet_v1_025": (3, 3),
    }
    assert last_map[1:] == sizes.get(name, (8, 8) if name in SMALL else (7, 7))


@pytest.mark.parametrize(("second", "first"), SAME.items())
def test_two_names_of_one_network(second: ZooName, first: ZooName) -> None:
    assert NETWORKS[second](224) == NETWORKS[first](224)


def test_resnet50_v1_halves_the_map_one_convolution_earlier() -> None:
    """All else of the two is equal, as are the names of their layers."""
    paper, v1b = ({layer.name: layer for layer in NETWORKS[name](224).layers} for name in RESNET50)
    assert list(paper) == list(v1b)
    moved = [f"layer{stage}.0.conv{at}" for stage in (2, 3, 4) for at in (1, 2)]
    assert [name for name in paper if paper[name] != v1b[name]] == moved
    assert [(paper[name].stride, v1b[name].stride) for name in moved] == [(2, 1), (1, 2)] * 3


QUICK: tuple[tuple[ZooName, bool], ...] = (("mobilenet_v2", False), ("resnet18", True))
"""Networks, and whether activations are signed, that the fast tests import."""


@pytest.mark.parametrize(
    ("name", "signed"),
    [
        pytest.param(name, signed, marks=pytest.mark.slow if name in DEEP else [])
        for name in NAMES
        for signed in (False, True)
        if is_tried(name, signed)
    ],
)
def test_a_runtime_agrees_with_itself_fused_or_not(name: ZooName, signed: bool) -> None:
    """Integer kernels and float32 operators between quantizers give the same bits."""
    source = made(name, signed).read_bytes()
    onnx.checker.check_model(source)
    data = image(name, 1)
    (fused,) = run_ort(source, data)
    (plain,) = run_ort(source, data, optimized=False)
    np.testing.assert_array_equal(fused, plain)


@pytest.mark.parametrize(
    ("name", "signed"),
    [
        *QUICK,
        *(
            pytest.param(name, signed, marks=pytest.mark.slow)
            for name in SIZES
            for signed in (False, True)
            if is_tried(name, signed) and (name, signed) not in QUICK
        ),
    ],
)
def test_the_imported_network_is_the_runtime_s_to_the_bit(name: ZooName, signed: bool) -> None:
    source = made(name, signed).read_bytes()
    model = run(source=source, options=ImportOptions())
    data = image(name, 0)
    (expected,) = run_ort(source, data)
    (found,) = interpret.run(model, {"data": data}).values()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["mobilenet_v2", "inception_v2", "resnet18"])
def test_no_tensor_is_dead_or_saturated(name: ZooName) -> None:
    model = onnx.load_model_from_string(int8(name, 96))
    stored = [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    for tensor in stored:
        model.graph.output.append(helper.make_tensor_value_info(tensor, TensorProto.UINT8, None))
    source = model.SerializeToString()
    runs = [
        run_ort(source, image(name, seed, 96), optimized=False, outputs=stored) for seed in (2, 3)
    ]
    for tensor, *values in zip(stored, *runs, strict=True):
        levels, counts = np.unique(np.concatenate([v.ravel() for v in values]), return_counts=True)
        share = counts / counts.sum()
        entropy = -(share * np.log2(share)).sum()
        assert share[levels == 255].sum() < 0.08, tensor  # behind a max pool there are most
        assert entropy > 2.5, tensor


@pytest.mark.parametrize("name", ["mobilenet_v1", "inception_v1", "resnet18"])
def test_the_float_form_computes_nearly_the_same(name: ZooName) -> None:
    data = image(name, 4, 96)
    quantized, real = (run_ort(int8(name, 96, form), data)[0].ravel() for form in ("qdq", "float"))
    assert np.corrcoef(quantized, real)[0, 1] > 0.75


def test_equal_options_give_equal_bytes_and_seeds_differ() -> None:
    first = int8("residual_block", 16)
    assert int8("residual_block", 16) == first
    assert int8("residual_block", 16, seed=1) != first


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "resnet50"}, "resnet50 is made with 8 bits only; with fewer bits there are"),
        ({"format": "qdq", "weights": TensorQuantization(bits=2, encoding="signed")},
         "QDQ weights of 2 signed bits; 8 signed bits are accepted"),
        ({"format": "qdq", "activations": TensorQuantization(bits=8, encoding="bipolar")},
         "QDQ activations of 8 bipolar bits; 8 bits, unipolar (uint8) or signed (int8), are"),
        ({"format": "qdq", "image_size": 20, "name": "inception_v3"},
         "an image of 20 x 20 pixels is too small for this network; state a larger"),
        ({"format": "qdq",
          "layers": (LayerOverride(match="fc", weights=TensorOverride(bits=2)),)},
         "a network with 8 bits everywhere has no layer to change: 'fc'"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StageError) as caught:
        build(options=ZooOptions(**{"name": "resnet18", **changes}))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_of_twice_the_width(name: ZooName) -> None:
    """Every layer but the last has twice the channels, and all shapes agree."""
    size = SMALL.get(name, 64)
    plain = NETWORKS[name](size)
    wide = plain.widened(2)
    shapes = {"data": wide.image} | {layer.name: layer.shape for layer in wide.layers}
    for layer, other in zip(wide.layers, plain.layers, strict=True):
        is_last = layer is wide.layers[-1]
        assert layer.shape == (other.shape[0] * (1 if is_last else 2), *other.shape[1:])
        inputs = [shapes[each][0] for each in layer.inputs]
        if layer.op == "concat":
            assert layer.shape[0] == sum(inputs)
        elif layer.op in ("add", "max_pool", "average_pool", "global_average_pool"):
            assert set(inputs) == {layer.shape[0]}
        assert not inputs[0] % layer.groups and not layer.shape[0] % layer.groups
    assert plain.widened(1) == plain


@pytest.mark.parametrize("form", get_args(ModelFormat))
def test_a_wide_network_is_a_valid_file(form: ModelFormat) -> None:
    options = ZooOptions(name="residual_block", format=form, image_size=16, width=2)
    model = onnx.load_from_string(build(options=options))
    onnx.checker.check_model(model)
    shapes = [list(tensor.dims) for tensor in model.graph.initializer]
    assert [128, 3, 3, 3] in shapes and [128, 128, 3, 3] in shapes
