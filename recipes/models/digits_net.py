"""The digits network in torch, quantized as a package computes it: float sums of it do not round.

While a network is trained, batch norms follow its convolutions. `DigitsNet.freeze` then makes each
of them a gain and an offset, as the file has them. Scales are powers of two, so all values are
whole numbers of a small unit, which float32 holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch.nn import functional

from stages.importing.zoo.qonnx_writer import Quantizer

Array: TypeAlias = torch.Tensor

CHANNELS = (32, 32, 32)
CLASSES = 10
EPSILON = 1e-5
GAIN_DIGITS = 8
"""Binary digits of a gain: its product with a sum is exact in float32."""

IMAGE = Quantizer(2.0**-4, 8)
"""Pixels are 0 to 16; the images hold them divided by 16."""
FEATURES = Quantizer(2.0**-6, 8)
"""Averages, which the last layer reads."""
BYTE = Quantizer(2.0**-7, 8, signed=True, narrow=True)
"""Weights of the first and the last layer: -127/128 to 127/128."""


@dataclass(frozen=True)
class Precision:
    """How a network is quantized; None stands for float32.

    `folds` says that gains become part of the weights, as files of 8 bits and of floats have them.
    """

    image: Quantizer | None
    ends: Quantizer | None
    activation: Quantizer | None
    weight: Quantizer | None
    features: Quantizer | None
    folds: bool = False


FLOAT = Precision(None, None, None, None, None, folds=True)
INT8 = Precision(IMAGE, BYTE, Quantizer(2.0**-5, 8), BYTE, FEATURES, folds=True)


def few_bits(activations: int, weights: int) -> Precision:
    """Unipolar activations up to about 2, bipolar weights up to about 1, 8 bits at both ends."""
    activation = Quantizer(2.0 ** (1 - activations), activations)
    if weights == 1:
        weight = Quantizer(0.5, 1, bipolar=True)
    else:
        weight = Quantizer(2.0 ** (1 - weights), weights, zero_point=(2**weights - 1) / 2)
    return Precision(IMAGE, BYTE, activation, weight, FEATURES)


def fake_quantized(x: Array, quantizer: Quantizer | None) -> Array:
    """The quantizer's values; gradients pass where it does not clip (straight-through)."""
    if quantizer is None:
        return x
    low, high = quantizer.levels()
    clipped = x.clamp(low, high)
    if quantizer.bipolar:
        rounded = torch.where(x >= 0, high, low)
    else:
        zero_point = quantizer.zero_point
        levels = torch.round(clipped / quantizer.scale + zero_point)  # half to even
        rounded = (levels - zero_point) * quantizer.scale
    return rounded.detach() + (clipped - clipped.detach())


def on_grid(x: Array, step: Array) -> Array:
    """The nearest multiples of a step, as offsets are stored; gradients pass."""
    return (torch.round(x / step) * step).detach() + (x - x.detach())


class Layer:
    """Weights [O, ...], and what sums of them are multiplied by and get added, [O] each.

    A convolution has a batch norm until it is frozen.
    """

    def __init__(
        self,
        generator: torch.Generator,
        shape: tuple[int, ...],
        reads: Quantizer | None,
        weights: Quantizer | None,
    ) -> None:
        drawn = torch.randn(shape, generator=generator) / math.prod(shape[1:]) ** 0.5
        if weights is not None and weights.bits < BYTE.bits:
            drawn = (2 * torch.rand(shape, generator=generator) - 1) * weights.levels()[1]
        self.weight = drawn.requires_grad_()
        self.reads, self.weights = reads, weights
        self.gain = torch.ones(shape[0])
        self.offset = torch.zeros(shape[0], requires_grad=True)
        self.has_norm = len(shape) > 2
        self.gamma = torch.ones(shape[0], requires_grad=True)
        self.mean, self.variance = torch.zeros(shape[0]), torch.ones(shape[0])

    @property
    def trained(self) -> list[Array]:
        """What the optimizer changes."""
        return [self.weight, self.offset, *([self.gamma] if self.has_norm else [])]

    def stored_weight(self) -> Array:
        """The weights as the file has them."""
        return fake_quantized(self.weight, self.weights)

    def stored_offset(self) -> Array:
        """The offsets as the file has them: of quantized layers on the grid of their sums."""
        if self.reads is None or self.weights is None:
            return self.offset
        last_digit = torch.exp2(torch.frexp(self.gain)[1] - GAIN_DIGITS)
        digit = torch.where(self.gain == 1, 1.0, last_digit)
        return on_grid(self.offset, digit * self.reads.unit * self.weights.unit)

    def clip(self) -> None:
        """Keep the weights where gradients pass."""
        if self.weights is not None:
            self.weight.data.clamp_(*self.weights.levels())

    def freeze(self, folds: bool) -> None:
        """Make the batch norm a gain and an offset, and fold the gain into the weights if asked."""
        with torch.no_grad():
            gain = self.gamma / torch.sqrt(self.variance + EPSILON)
            if self.has_norm:
                self.offset -= self.mean * gain
                if folds:
                    self.weight *= gain.reshape(-1, 1, 1, 1)
                else:
                    fraction, exponent = torch.frexp(gain)
                    digits = torch.round(fraction * 2**GAIN_DIGITS)
                    self.gain = digits * torch.exp2(exponent - GAIN_DIGITS)
                self.has_norm = False
            if folds and self.weights is not None:
                self.weights = fitted(self.weight)

    def convolved(self, x: Array, training: bool) -> Array:
        """[N, C, H, W] → [N, O, H, W]; 3x3 windows, zeros around the image."""
        sums = functional.conv2d(x, self.stored_weight().to(x.dtype), padding=1)
        if self.has_norm:
            statistics = (self.mean, self.variance, self.gamma, self.offset)
            return functional.batch_norm(sums, *statistics, training, 0.1, EPSILON)
        gain, offset = self.gain.to(x.dtype), self.stored_offset().to(x.dtype)
        return sums * gain.reshape(-1, 1, 1) + offset.reshape(-1, 1, 1)

    def multiplied(self, x: Array) -> Array:
        """[N, C] → [N, O]."""
        weight, offset = self.stored_weight(), self.stored_offset()
        return functional.linear(x, weight.to(x.dtype), offset.to(x.dtype))


def fitted(weight: Array) -> Quantizer:
    """The smallest quantizer of 8 bits for these weights, its scale a power of two."""
    largest = weight.abs().max().item()
    return Quantizer(2.0 ** math.ceil(math.log2(largest / 127)), 8, signed=True, narrow=True)


class DigitsNet:
    """Three convolutions, a 2x2 maximum behind the second, global average pooling, one linear
    layer."""

    def __init__(self, precision: Precision, generator: torch.Generator) -> None:
        self.precision = p = precision
        first, second, third = CHANNELS
        self.convolutions = [
            Layer(generator, (first, 1, 3, 3), p.image, p.ends),
            Layer(generator, (second, first, 3, 3), p.activation, p.weight),
            Layer(generator, (third, second, 3, 3), p.activation, p.weight),
        ]
        self.head = Layer(generator, (CLASSES, third), p.features, p.ends)

    @property
    def layers(self) -> list[Layer]:
        """All layers, the first one first."""
        return [*self.convolutions, self.head]

    def freeze(self, precision: Precision) -> None:
        """Replace batch norms by gains and offsets; a float network may become one of 8 bits."""
        reads = (precision.image, precision.activation, precision.activation, precision.features)
        weights = (precision.ends, precision.weight, precision.weight, precision.ends)
        for layer, *grids in zip(self.layers, reads, weights, strict=True):
            layer.reads, layer.weights = grids
            layer.freeze(precision.folds)
        self.precision = precision

    def logits(self, images: Array, training: bool = False) -> Array:
        """[N, 1, 8, 8] → [N, 10], in the images' float type."""
        p = self.precision
        x = fake_quantized(images, p.image)
        for number, layer in enumerate(self.convolutions):
            x = fake_quantized(functional.relu(layer.convolved(x, training)), p.activation)
            if number == 1:
                x = functional.max_pool2d(x, 2)
        return self.head.multiplied(fake_quantized(x.mean(dim=(2, 3)), p.features))
