"""The zoo: networks with seeded weights, written as ONNX files.

A zoo network enters the pipeline through the same door as a user's file. Three writers: QONNX at
any precision (residual networks), ONNX QDQ with 8 bits everywhere, and float32 ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial

from stages.errors import StageError
from stages.importing.zoo.filling import fill
from stages.importing.zoo.inception import inception_bn, inception_v1, inception_v2
from stages.importing.zoo.inception_deep import inception_v3, inception_v4
from stages.importing.zoo.mobilenet import mobilenet_v1, mobilenet_v2
from stages.importing.zoo.network import Network
from stages.importing.zoo.onnx_writer import write
from stages.importing.zoo.residual import BOTTLENECKS, basic, bottleneck
from stages.importing.zoo.resnet import ARCHITECTURES, Architecture, ResidualNetwork
from stages.importing.zoo.tiny import autoencoder, ds_cnn, mobilenet_v1_025, resnet8
from stages.layer_options import LayerOverride, TensorQuantization, is_match
from stages.options import LOW_BIT_NETWORKS, ZooName, ZooOptions

FIXED = ("conv1", "fc")
"""Stem and head of a QONNX network: their precision is the options' `stem` and `head`."""

NETWORKS: Mapping[ZooName, Callable[[int], Network]] = {
    "resnet18": partial(basic, ARCHITECTURES["resnet18"]),
    "resnet50": partial(bottleneck, BOTTLENECKS["resnet50"]),
    "resnet50_v1": partial(bottleneck, BOTTLENECKS["resnet50"], halving="conv1"),
    "resnet50_v1b": partial(bottleneck, BOTTLENECKS["resnet50"]),
    "resnet101": partial(bottleneck, BOTTLENECKS["resnet101"]),
    "resnet152": partial(bottleneck, BOTTLENECKS["resnet152"]),
    "inception_v1": inception_v1,
    "inception_v2": inception_v2,
    "inception_bn": inception_bn,
    "inception_v3": inception_v3,
    "inception_v4": inception_v4,
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "resnet8": resnet8,
    "mobilenet_v1_025": mobilenet_v1_025,
    "ds_cnn": ds_cnn,
    "autoencoder": autoencoder,
    "residual_block": partial(basic, ARCHITECTURES["residual_block"]),
}
"""Each network's layers, for a height and width of the image."""


def build(*, options: ZooOptions) -> bytes:
    """The bytes of an ONNX file; equal options give equal bytes.

    The graph maps `data`, float32 [batch, 3, size, size] of values in 0 to 1, to `out`, float32
    logits. StageError says which precisions a network has.
    """
    if options.format == "qonnx":
        return _low_bit(options)
    network = NETWORKS[options.name](options.image_size).widened(options.width)
    if options.format == "float":
        return write(fill(network, options.seed, "uint8"), options.batch, quantized=False)
    return write(fill(network, options.seed, _dtype(options)), options.batch, quantized=True)


def _dtype(options: ZooOptions) -> str:
    """The dtype of a QDQ network's tensors."""
    if options.layers:
        raise StageError(
            f"a network with 8 bits everywhere has no layer to change: '{options.layers[0].match}'",
            hint="leave the precision out of layers",
        )
    dtypes = {"unipolar": "uint8", "signed": "int8"}
    activations, weights = options.activations, options.weights
    if activations.bits != 8 or activations.encoding not in dtypes:
        raise StageError(
            f"QDQ activations of {activations.bits} {activations.encoding} bits; "
            "8 bits, unipolar (uint8) or signed (int8), are accepted"
        )
    if weights != TensorQuantization(bits=8, encoding="signed"):
        raise StageError(
            f"QDQ weights of {weights.bits} {weights.encoding} bits; 8 signed bits are accepted"
        )
    return dtypes[activations.encoding]


def _low_bit(options: ZooOptions) -> bytes:
    """A QONNX file whose float32 arithmetic never rounds before a quantizer.

    Except in the final mean, so that every executor that keeps to the order of the operators
    agrees bit for bit. `data` is read in steps of 1/256 from 0 to 255/256.
    """
    if options.name not in LOW_BIT_NETWORKS:
        raise StageError(
            f"{options.name} is made with 8 bits only",
            hint=f"with fewer bits there are {' and '.join(LOW_BIT_NETWORKS)}",
        )
    architecture = ARCHITECTURES[options.name].widened(options.width)
    inner = inner_layers(architecture)
    overrides = [item for item in options.layers if item.activations or item.weights]
    for override in overrides:
        _check(override, inner)

    def precision(layer: str) -> tuple[TensorQuantization, TensorQuantization]:
        activations, weights = options.activations, options.weights
        for override in overrides:
            if is_match(override.match, layer):
                activations = (
                    override.activations.apply(activations)
                    if override.activations
                    else (activations)
                )
                weights = override.weights.apply(weights) if override.weights else weights
        return activations, weights

    network = ResidualNetwork(architecture, precision, options.seed, options.image_size)
    return network.write(options.batch)


def inner_layers(architecture: Architecture) -> tuple[str, ...]:
    """Names of the convolutions whose precision can be chosen."""
    names = []
    for index in range(len(architecture.channels)):
        for position in range(architecture.blocks):
            block = f"layer{index + 1}.{position}"
            names += [f"{block}.conv1", f"{block}.conv2"]
            names += [f"{block}.downsample"] if not position else []
    return tuple(names)


def _check(override: LayerOverride, inner: tuple[str, ...]) -> None:
    if any(is_match(override.match, layer) for layer in inner):
        return
    fixed = [layer for layer in FIXED if is_match(override.match, layer)]
    if fixed:
        raise StageError(
            f"'{override.match}' matches only {' and '.join(fixed)}, whose precision is int8",
            hint="change the precision of inner layers, such as layer1.0.conv1",
        )
    close = get_close_matches(override.match, inner, n=1)
    raise StageError(
        f"the pattern '{override.match}' matches no layer",
        hint=f"did you mean '{close[0]}'?" if close else f"the layers are {', '.join(inner)}",
    )
