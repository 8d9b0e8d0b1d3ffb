"""The zoo: networks at a chosen precision, with seeded weights, written as QONNX files.

A zoo network enters the pipeline through the same door as a user's file.
"""

from __future__ import annotations

from difflib import get_close_matches

from stages.errors import StageError
from stages.importing.zoo.resnet import ARCHITECTURES, Architecture, ResidualNetwork
from stages.options import LayerOverride, TensorQuantization, ZooOptions, is_match

FIXED = ("conv1", "fc")
"""Stem and head: their precision is the options' `stem` and `head`."""


def build(*, options: ZooOptions) -> bytes:
    """The bytes of a QONNX file; equal options give equal bytes.

    The graph maps `data`, float32 [1, 3, size, size] read in steps of 1/256 from 0 to 255/256, to
    `out`, float32 logits. Its float32 arithmetic never rounds before a quantizer except in the
    final mean, so every executor that keeps to the order of the operators agrees bit for bit.
    """
    architecture = ARCHITECTURES[options.name]
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
    return network.write()


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
