"""Seeded 8-bit weights for a network's layers, and the scale of every tensor.

Layers are executed one by one on one seeded image, and each layer's scale and bias are chosen
from what its sums are there: every channel ends with a deviation near 1, as behind a batch norm.
All of it is arithmetic on whole numbers (and divisions of float64), so that a seed gives the same
file on every machine. Tensors' scales are powers of two and weights' scales have four binary
digits: products and quotients of scales are exact in float32, so that runtimes which compute with
integers and runtimes which compute with float32 tensors agree to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.importing.onnx import source_arithmetic as arithmetic
from stages.importing.sliding_windows import Windows
from stages.importing.zoo.network import INPUT, Layer, Network
from stages.numerics.quantization import Quantization

Array = np.ndarray[Any, Any]

UPPER = {"none": np.inf, "relu": np.inf, "relu6": 6.0}
CLIPPED_SHARE = 1 / 8192
"""A tensor's scale leaves at most this share of the sample's values out of its range."""
EXACT_IN_FLOAT32 = 1 << 21
"""Where sums stay below this, no partial sum of theirs comes near 2^24."""


@dataclass(frozen=True)
class Weights:
    """Parameters of a convolution (OIHW) or dense layer ([O, K]): `scales[o] * values[o]`.

    `values` is int8, `scales` float32 [O], and `bias` int32 [O] in steps of the input's scale
    times the channel's.
    """

    values: Array
    scales: Array
    bias: Array


@dataclass(frozen=True)
class Filled:
    """A network with its parameters by layer, and what every tensor means, `data` included."""

    network: Network
    weights: Mapping[str, Weights]
    tensors: Mapping[str, Quantization]


def fill(network: Network, seed: int, activations: str) -> Filled:
    """Draw the parameters; `activations` is the dtype of all tensors, uint8 or int8."""
    return _Filling(network, seed, activations).fill()


class _Filling:
    def __init__(self, network: Network, seed: int, dtype: str) -> None:
        self._network, self._dtype = network, dtype
        self._rng = np.random.default_rng(seed)
        self._weights: dict[str, Weights] = {}
        scale = 2.0**-7 if dtype == "int8" else 2.0**-8
        self._tensors = {INPUT: Quantization.of_type(scale, 0, dtype)}
        self._integers: dict[str, Array] = {}
        """Name of a tensor that is still needed → q - zero_point on the sample."""

    def fill(self) -> Filled:
        layers = self._network.layers
        last_use = {name: at for at, layer in enumerate(layers) for name in layer.inputs}
        self._integers[INPUT] = self._tensors[INPUT].steps(self._sample())
        for at, layer in enumerate(layers):
            value = self._value(layer)
            self._tensors[layer.name] = self._quantization(layer, value)
            self._integers[layer.name] = self._tensors[layer.name].steps(value)
            for name in layer.inputs:
                if last_use[name] == at:
                    self._integers.pop(name, None)
        return Filled(self._network, self._weights, self._tensors)

    def _sample(self) -> Array:
        """Images [N, C, H, W] in 0 .. 1: noise, squares of one colour, and halves of both."""
        channels, height, width = self._network.image
        count = 2 if height >= 128 else 8
        coarse = self._rng.integers(0, 256, (count, channels, 8, 8))
        smooth = coarse.repeat(-(-height // 8), axis=2).repeat(-(-width // 8), axis=3)
        images = self._rng.integers(0, 256, (count, channels, height, width))
        images[1::2] = smooth[1::2, :, :height, :width]
        images[:, :, : height // 4] = smooth[:, :, : height // 4, :width]
        return (images / np.float32(256)).astype(np.float32)

    def _value(self, layer: Layer) -> Array:
        """What the layer gives on the sample, float32 before quantization."""
        if layer.op in ("conv", "dense"):
            return self._linear(layer)
        inputs = [self._real(name) for name in layer.inputs]
        if layer.op == "add":
            return _activated(layer, inputs[0] + inputs[1])
        if layer.op == "concat":
            return np.concatenate(inputs, axis=1)
        if layer.op == "global_average_pool":
            return inputs[0].mean(axis=(2, 3), keepdims=True, dtype=np.float32)
        windows = windows_of_layer(layer)
        if layer.op == "max_pool":
            return arithmetic.max_pool2d(inputs[0], windows)
        return arithmetic.average_pool2d(inputs[0], windows, False)

    def _real(self, name: str) -> Array:
        return self._integers[name] * self._tensors[name].scale

    def _linear(self, layer: Layer) -> Array:
        source = layer.inputs[0]
        x, unit = self._integers[source], float(self._tensors[source].scale)
        shape = (layer.shape[0], x.shape[1] // layer.groups, *layer.kernel)
        values = self._draw(shape)
        sums = _convolve(x, values, windows_of_layer(layer), layer.groups)
        scales, bias = self._calibrated(layer, sums, unit)
        self._weights[layer.name] = Weights(
            values if layer.op == "conv" else values.reshape(shape[0], -1), scales, bias
        )
        per_channel = (1, -1, 1, 1)
        units = (scales * np.float32(unit)).reshape(per_channel)
        result = (sums + bias.reshape(per_channel)).astype(np.float32) * units
        return _activated(layer, result)

    def _draw(self, shape: tuple[int, ...]) -> Array:
        """Bell-shaped int8 weights in -126 .. 126, their deviation about 42."""
        total = np.zeros(shape, np.int8)
        for _ in range(3):
            total += self._rng.integers(-42, 43, shape, dtype=np.int8)
        return total

    def _calibrated(self, layer: Layer, sums: Array, unit: float) -> tuple[Array, Array]:
        """Scales and biases that give each channel's sums a deviation near 1, a mean within ±1/2.

        A classifier's deviation is that between its classes, and stays: all have one scale.
        """
        channels = sums.shape[1]
        whole = sums.astype(np.int64).transpose(1, 0, 2, 3).reshape(channels, -1)
        count = whole.shape[1]
        mean = (2 * whole.sum(axis=1) + count) // (2 * count)
        if layer.op == "dense":
            mean = np.zeros(channels, np.int64)
        squares = ((whole - mean[:, np.newaxis]) ** 2).sum(axis=1)
        if layer.op == "dense":
            squares = np.full(channels, squares.sum() // channels)
        deviation = np.sqrt(np.maximum(squares, 1) / count)
        fraction, exponent = np.frexp(1 / (deviation * unit))
        scales = np.ldexp(np.floor(np.ldexp(fraction, 4)), exponent - 4)
        wanted = self._rng.integers(-16, 17, channels) / 32
        bias = np.rint(wanted / (scales * unit)).astype(np.int64) - mean
        return scales.astype(np.float32), bias.astype(np.int32)

    def _quantization(self, layer: Layer, value: Array) -> Quantization:
        """The finest power of two under which hardly a value is clipped.

        A max pool keeps its input's scale, as the framework's quantizers have it. Zero points are
        even, so that a tie rounds alike whether the zero point is added before or after; one
        behind ReLU6 ends below 6, so that its range is all there is left of the clipping.
        """
        if layer.op == "max_pool":
            return self._tensors[layer.inputs[0]]
        lowest = float(value.min())
        if self._dtype == "int8":
            zero_point, reach = 0, 127
        elif lowest >= 0:
            zero_point, reach = 0, 255
        else:
            zero_point = 128 + 2 * int(self._rng.integers(-4, 5))
            reach = min(zero_point, 255 - zero_point)
        magnitudes = np.abs(value).reshape(-1)
        allowed = int(magnitudes.size * CLIPPED_SHARE)
        largest = float(np.partition(magnitudes, -1 - allowed)[-1 - allowed])
        exponent = int(np.frexp(max(largest, 2.0**-8) / reach)[1])
        if np.ldexp(0.5, exponent) * reach >= largest:
            exponent -= 1
        while np.ldexp(1.0, exponent) * reach > UPPER[layer.activation]:
            exponent -= 1
        return Quantization.of_type(np.ldexp(1.0, exponent), zero_point, self._dtype)


def windows_of_layer(layer: Layer) -> Windows:
    """The windows of a convolution or pool."""
    return Windows(layer.kernel, (layer.stride, layer.stride), (1, 1), layer.pads)


def _convolve(x: Array, values: Array, windows: Windows, groups: int) -> Array:
    """Exact sums of products of whole numbers, as float64."""
    sums = arithmetic.conv2d(x, values.astype(np.float32), windows, groups)
    assert np.abs(sums).max() < EXACT_IN_FLOAT32
    return sums.astype(np.float64)


def _activated(layer: Layer, x: Array) -> Array:
    if layer.activation == "none":
        return x
    return np.clip(x, np.float32(0), np.float32(UPPER[layer.activation]))
