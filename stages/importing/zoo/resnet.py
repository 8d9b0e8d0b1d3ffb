"""Residual networks at any precision, written as QONNX files.

The shapes are those of ResNet-18 as Cowan et al. (CGO 2020, Table 1) list them. Their C3, a 1x1
convolution of 64 to 64 channels, exists only where the first block too has a projection on its
shortcut, so every stage here begins with one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from stages.importing.zoo.precision import (
    activation_quantizer,
    draw_weights,
    fit_batch_norm,
    weight_quantizer,
)
from stages.importing.zoo.qonnx_writer import QonnxWriter, Quantizer, Tensor
from stages.layer_options import TensorQuantization

INPUT = Quantizer(2.0**-8, 8)
RESIDUAL = Quantizer(2.0**-5, 8, signed=True)
SHORTCUT = Quantizer(2.0**-5, 8)
FEATURES = Quantizer(2.0**-5, 8)
HEAD = Quantizer(2.0**-8, 8, signed=True, narrow=True)
STEM_SHIFT = -1.0
"""Max pooling keeps the largest of nine: the stem's values start low, to end in the middle."""

INT8 = TensorQuantization(bits=8, encoding="signed")

Precision = Callable[[str], tuple[TensorQuantization, TensorQuantization]]
"""Layer name → quantization of its activations and of its weights."""


@dataclass(frozen=True)
class Architecture:
    """The dimensions of a residual network."""

    channels: tuple[int, ...]
    blocks: int
    stem_kernel: int
    stem_stride: int
    classes: int

    def widened(self, width: int) -> Architecture:
        """This architecture with so many times the channels."""
        return replace(self, channels=tuple(width * channels for channels in self.channels))


ARCHITECTURES = {
    "resnet18": Architecture((64, 128, 256, 512), 2, 7, 2, 1000),
    "residual_block": Architecture((64,), 1, 3, 1, 10),
}


@dataclass(frozen=True)
class Activation:
    """A quantized tensor and its quantizer."""

    tensor: Tensor
    quantizer: Quantizer


@dataclass
class Junction:
    """A float tensor with several readers; quantizers that are alike are shared.

    Unipolar readers see it behind a ReLU. Bipolar and signed ones do not: nothing below zero
    would be left for them to tell apart.
    """

    raw: Tensor
    relu_name: str
    rectified: Tensor | None = None
    quantized: dict[tuple[Quantizer, bool], Activation] = field(default_factory=dict)


class ResidualNetwork:
    """Writes one network; the order of the calls is the order of the nodes."""

    def __init__(
        self, architecture: Architecture, precision: Precision, seed: int, image_size: int
    ) -> None:
        self._architecture = architecture
        self._precision = precision
        self._rng = np.random.default_rng(seed)
        batch = 1 if image_size >= 128 else 8
        pixels = self._rng.integers(0, 256, (batch, 3, image_size, image_size))
        sample = (pixels * INPUT.scale).astype(np.float32)
        self._writer = QonnxWriter("residual_network", "data", sample)

    def write(self, batch: int) -> bytes:
        """The file's bytes, for `batch` inputs at a time."""
        current = self._stem()
        before = 0
        for index, channels in enumerate(self._architecture.channels):
            for position in range(self._architecture.blocks):
                block = f"layer{index + 1}.{position}"
                stride = 2 if index and not position else 1
                current = self._block(block, current, channels, stride, channels != before)
                before = channels
        return self._writer.finish(self._head(current), batch)

    def _stem(self) -> Junction:
        image = Activation(self._writer.quantize("input_quant", self._writer.input, INPUT), INPUT)
        channels, *_ = self._architecture.channels
        dimensions = channels, self._architecture.stem_kernel, self._architecture.stem_stride
        raw = self._conv_norm("conv1", "bn1", image, INT8, dimensions, STEM_SHIFT)
        return Junction(raw, "relu")

    def _block(
        self, block: str, entry: Junction, channels: int, stride: int, projects: bool
    ) -> Junction:
        """Two 3x3 convolutions and a shortcut, added on one 8-bit grid."""
        deviation = 1.0 if block == "layer1.0" else 2.0
        x = self._read(f"{block}.conv1", entry, deviation)
        weights = self._precision(f"{block}.conv1")[1]
        middle = self._conv_norm(
            f"{block}.conv1", f"{block}.bn1", x, weights, (channels, 3, stride)
        )
        x = self._read(f"{block}.conv2", Junction(middle, f"{block}.relu1"), 1.0)
        weights = self._precision(f"{block}.conv2")[1]
        main = self._conv_norm(f"{block}.conv2", f"{block}.bn2", x, weights, (channels, 3, 1))
        main = self._writer.quantize(f"{block}.residual_quant", main, RESIDUAL)
        if projects:
            shortcut = self._projection(f"{block}.downsample", entry, channels, stride, deviation)
        else:
            shortcut = self._shortcut(block, entry)
        return Junction(self._writer.add(f"{block}.add", main, shortcut), f"{block}.relu2")

    def _projection(
        self, layer: str, entry: Junction, channels: int, stride: int, deviation: float
    ) -> Tensor:
        x = self._read(layer, entry, deviation)
        weights = self._precision(layer)[1]
        norm = self._conv_norm(layer, f"{layer}.bn", x, weights, (channels, 1, stride))
        return self._writer.quantize(f"{layer}.residual_quant", norm, RESIDUAL)

    def _shortcut(self, block: str, entry: Junction) -> Tensor:
        """The block's input at 8 bits, behind the ReLU if its first convolution reads there."""
        rectifies = self._precision(f"{block}.conv1")[0].encoding == "unipolar"
        source = self._rectified(entry) if rectifies else entry.raw
        quantizer = SHORTCUT if rectifies else RESIDUAL
        return self._writer.quantize(f"{block}.shortcut_quant", source, quantizer)

    def _read(self, layer: str, junction: Junction, deviation: float) -> Activation:
        """The junction as this layer's activations; max pooled behind the stem."""
        wanted = self._precision(layer)[0]
        rectifies = wanted.encoding == "unipolar"
        key = (activation_quantizer(wanted, deviation), rectifies)
        if key not in junction.quantized:
            source = self._rectified(junction) if rectifies else junction.raw
            tensor = self._writer.quantize(f"{layer}.input_quant", source, key[0])
            if junction.relu_name == "relu":
                tensor = self._writer.max_pool(f"{layer}.maxpool", tensor, 3, 2, 1)
            junction.quantized[key] = Activation(tensor, key[0])
        return junction.quantized[key]

    def _rectified(self, junction: Junction) -> Tensor:
        if junction.rectified is None:
            junction.rectified = self._writer.relu(junction.relu_name, junction.raw)
        return junction.rectified

    def _conv_norm(
        self,
        layer: str,
        norm: str,
        x: Activation,
        weights: TensorQuantization,
        dimensions: tuple[int, int, int],
        shift: float = 0.0,
    ) -> Tensor:
        """Convolution and batch norm; `dimensions` is output channels, kernel, stride."""
        channels, kernel, stride = dimensions
        shape = (channels, x.tensor.value.shape[1], kernel, kernel)
        quantizer = weight_quantizer(weights, int(np.prod(shape[1:])))
        values = draw_weights(self._rng, shape, quantizer, x.quantizer.largest)
        weight = self._writer.weights(layer, values, quantizer)
        sums = self._writer.conv(layer, x.tensor, weight, stride, kernel // 2)
        reach = np.abs(values / np.float32(quantizer.unit)).reshape(channels, -1).sum(axis=1).max()
        parameters = fit_batch_norm(
            self._rng,
            layer,
            sums.value,
            quantizer.unit * x.quantizer.unit,
            int(reach) * x.quantizer.largest,
            shift,
        )
        return self._writer.batch_norm(norm, sums, parameters)

    def _head(self, junction: Junction) -> Tensor:
        last = self._writer.quantize("avgpool.input_quant", self._rectified(junction), SHORTCUT)
        pooled = self._writer.global_average_pool("avgpool", last)
        features = self._writer.quantize("fc.input_quant", pooled, FEATURES)
        flat = self._writer.flatten("flatten", features)
        shape = (self._architecture.classes, flat.value.shape[1])
        values = self._rng.integers(-127, 128, shape) * HEAD.scale
        weight = self._writer.weights("fc", values.astype(np.float32), HEAD)
        unit = HEAD.scale * FEATURES.scale
        bias = self._rng.integers(-(2**13), 2**13, shape[0]) * unit
        return self._writer.gemm("fc", flat, weight, bias.astype(np.float32), "out")
