"""Train the digits network and write `digits_a2w2.onnx` and `digits_test.npz` beside this file.

Run as `python -m recipes.models.train_digits` (needs scikit-learn; about a minute). A small
convolutional net on scikit-learn's 8x8 digits: 2-bit activations, 2-bit bipolar weights inside,
8 bits in the first and last layer. Trained in NumPy by Adam with straight-through estimators: the
forward pass quantizes, the backward pass treats a quantizer as a clip.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stages.importing.zoo.writer import BatchNorm, QonnxWriter, Quantizer, Tensor

Array = np.ndarray[Any, Any]

SEED = 0
EPOCHS = 14
BATCH = 48
TEST_IMAGES = 360
EPSILON = 1e-5

IMAGE = Quantizer(2.0**-4, 8)
"""Pixels are 0 to 16; the images hold them divided by 16."""
ACTIVATION = Quantizer(0.5, 2)
LAST = Quantizer(2.0**-5, 8)
FEATURES = Quantizer(2.0**-6, 8)


@dataclass
class Parameter:
    """A trained tensor and Adam's state."""

    value: Array
    momentum: Array = field(init=False)
    variance: Array = field(init=False)

    def __post_init__(self) -> None:
        self.momentum = np.zeros_like(self.value)
        self.variance = np.zeros_like(self.value)

    def step(self, gradient: Array, rate: float, time: int) -> None:
        """One step of Adam."""
        self.momentum += 0.1 * (gradient - self.momentum)
        self.variance += 0.001 * (gradient**2 - self.variance)
        corrected = self.momentum / (1 - 0.9**time)
        self.value -= rate * corrected / (np.sqrt(self.variance / (1 - 0.999**time)) + 1e-8)


def straight_through(x: Array, quantizer: Quantizer) -> tuple[Array, Array]:
    """Quantized values, and where the gradient passes: inside the quantizer's range."""
    low, high = quantizer.levels()
    return quantizer.apply(x), (x >= low) & (x <= high)


def patches(x: Array) -> Array:
    """[N, C, H, W] → [N, H, W, C * 9]: the zero-padded 3x3 neighbourhood of each pixel."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.ascontiguousarray(windows.transpose(0, 2, 3, 1, 4, 5)).reshape(
        *x.shape[:1], *x.shape[2:], -1
    )


def unpatch(columns: Array, channels: int) -> Array:
    """The transpose of `patches`: adds every neighbourhood back where it came from."""
    n, height, width, _ = columns.shape
    parts = columns.reshape(n, height, width, channels, 3, 3).transpose(0, 3, 1, 2, 4, 5)
    padded = np.zeros((n, channels, height + 2, width + 2), np.float32)
    for row in range(3):
        for column in range(3):
            padded[:, :, row : row + height, column : column + width] += parts[..., row, column]
    return padded[:, :, 1:-1, 1:-1]


class ConvBlock:
    """3x3 convolution, batch norm, ReLU and an activation quantizer, then 2x2 max pooling."""

    def __init__(
        self,
        rng: np.random.Generator,
        shape: tuple[int, int],
        weights: Quantizer,
        activation: Quantizer,
        pools: bool,
    ) -> None:
        outputs, inputs = shape
        high = weights.levels()[1]
        drawn = rng.uniform(-high, high, (outputs, inputs * 9)).astype(np.float32)
        self.weight = Parameter(drawn)
        self.gamma = Parameter(np.ones(outputs, np.float32))
        self.beta = Parameter(np.zeros(outputs, np.float32))
        self.mean = np.zeros(outputs, np.float32)
        self.variance = np.ones(outputs, np.float32)
        self.weights, self.activation, self.pools, self.inputs = weights, activation, pools, inputs

    def forward(self, x: Array, training: bool) -> Array:
        """The block's output; in training also what `backward` needs."""
        columns = patches(x)
        weight, passes = straight_through(self.weight.value, self.weights)
        sums = columns @ weight.T
        if training:
            mean, variance = sums.mean(axis=(0, 1, 2)), sums.var(axis=(0, 1, 2))
            self.mean += 0.1 * (mean - self.mean)
            self.variance += 0.1 * (variance - self.variance)
        else:
            mean, variance = self.mean, self.variance
        deviation = np.sqrt(variance + np.float32(EPSILON))
        normal = (sums - mean) / deviation
        result = np.maximum(normal * self.gamma.value + self.beta.value, 0)
        alive = result > 0
        result, inside = straight_through(result, self.activation)
        alive &= inside
        result = result.transpose(0, 3, 1, 2)
        largest = np.zeros(0)
        if self.pools:
            unpooled, result = result, _pool(result)
            largest = unpooled == np.repeat(np.repeat(result, 2, axis=2), 2, axis=3)
        if training:
            self._kept = (columns, weight, passes, normal, deviation, alive, largest)
        return result

    def backward(self, gradient: Array, rate: float, time: int) -> Array:
        """Update the parameters; return the gradient with respect to the input."""
        columns, weight, passes, normal, deviation, alive, largest = self._kept
        if self.pools:
            spread = np.repeat(np.repeat(gradient, 2, axis=2), 2, axis=3) * largest
            ties = _pool_sum(largest.astype(np.float32))
            gradient = spread / np.repeat(np.repeat(ties, 2, axis=2), 2, axis=3)
        gradient = gradient.transpose(0, 2, 3, 1) * alive
        axes = (0, 1, 2)
        gamma_gradient, beta_gradient = (gradient * normal).sum(axis=axes), gradient.sum(axis=axes)
        count = np.float32(normal[..., 0].size)
        centred = gradient - beta_gradient / count - normal * gamma_gradient / count
        sums_gradient = centred * self.gamma.value / deviation
        flat = sums_gradient.reshape(-1, sums_gradient.shape[-1])
        weight_gradient = flat.T @ columns.reshape(-1, columns.shape[-1])
        back = unpatch(sums_gradient @ weight, self.inputs)
        self.weight.step(weight_gradient * passes, rate, time)
        low, high = self.weights.levels()
        np.clip(self.weight.value, low, high, out=self.weight.value)
        self.gamma.step(gamma_gradient, rate, time)
        self.beta.step(beta_gradient, rate, time)
        return back


def _pool(x: Array) -> Array:
    n, channels, height, width = x.shape
    return np.asarray(x.reshape(n, channels, height // 2, 2, width // 2, 2).max(axis=(3, 5)))


def _pool_sum(x: Array) -> Array:
    n, channels, height, width = x.shape
    return np.asarray(x.reshape(n, channels, height // 2, 2, width // 2, 2).sum(axis=(3, 5)))


class DigitsNet:
    """Three convolutions, global average pooling, one linear layer."""

    def __init__(self, rng: np.random.Generator) -> None:
        int8 = Quantizer(2.0**-7, 8, signed=True, narrow=True)
        bipolar = Quantizer(2.0**-3, 2, zero_point=1.5)
        self.blocks = [
            ConvBlock(rng, (32, 1), int8, ACTIVATION, pools=False),
            ConvBlock(rng, (64, 32), bipolar, ACTIVATION, pools=True),
            ConvBlock(rng, (64, 64), bipolar, LAST, pools=False),
        ]
        self.head_weights = int8
        self.head = Parameter((rng.standard_normal((10, 64)) / 8).astype(np.float32))
        self.bias = Parameter(np.zeros(10, np.float32))

    def forward(self, images: Array, training: bool = False) -> Array:
        """Logits of a batch."""
        x = IMAGE.apply(images)
        for block in self.blocks:
            x = block.forward(x, training)
        features, inside = straight_through(x.mean(axis=(2, 3)), FEATURES)
        weight, passes = straight_through(self.head.value, self.head_weights)
        if training:
            self._kept = (features, inside, weight, passes, x.shape)
        return features @ weight.T + self.bias.value

    def backward(self, gradient: Array, rate: float, time: int) -> None:
        """One training step from the gradient with respect to the logits."""
        features, inside, weight, passes, shape = self._kept
        back = (gradient @ weight) * inside
        self.head.step(gradient.T @ features * passes, rate, time)
        self.bias.step(gradient.sum(axis=0), rate, time)
        back = np.broadcast_to(back[:, :, None, None] / (shape[2] * shape[3]), shape)
        for block in reversed(self.blocks):
            back = block.backward(np.asarray(back, np.float32), rate, time)

    def to_qonnx(self, images: Array) -> bytes:
        """The network as a QONNX file; `images` is any batch."""
        writer = QonnxWriter("digits", "image", images)
        x = writer.quantize("input_quant", writer.input, IMAGE)
        for index, block in enumerate(self.blocks):
            x = self._write_block(writer, f"conv{index + 1}", block, x)
        x = writer.quantize("fc.input_quant", writer.global_average_pool("avgpool", x), FEATURES)
        weight = writer.weights("fc", self.head_weights.apply(self.head.value), self.head_weights)
        unit = self.head_weights.scale * FEATURES.scale
        bias = (np.rint(self.bias.value / unit) * unit).astype(np.float32)
        return writer.finish(writer.gemm("fc", writer.flatten("flatten", x), weight, bias, "out"))

    @staticmethod
    def _write_block(writer: QonnxWriter, layer: str, block: ConvBlock, x: Tensor) -> Tensor:
        shape = (-1, block.inputs, 3, 3)
        stored = block.weights.apply(block.weight.value).reshape(shape)
        x = writer.conv(layer, x, writer.weights(layer, stored, block.weights), 1, 1)
        norm = BatchNorm(block.gamma.value, block.beta.value, block.mean, block.variance, EPSILON)
        x = writer.relu(f"{layer}.relu", writer.batch_norm(f"{layer}.bn", x, norm))
        x = writer.quantize(f"{layer}.act_quant", x, block.activation)
        return writer.max_pool(f"{layer}.pool", x, 2, 2, 0) if block.pools else x


def shifted(rng: np.random.Generator, images: Array) -> Array:
    """Each image moved by up to one pixel in each direction."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    moves = rng.integers(0, 3, (len(images), 2))
    return np.stack([p[:, y : y + 8, x : x + 8] for p, (y, x) in zip(padded, moves, strict=True)])


def train(images: Array, labels: Array) -> DigitsNet:
    """The trained network; equal arguments give an equal network on one machine."""
    rng = np.random.default_rng(SEED)
    net = DigitsNet(rng)
    steps, time = EPOCHS * (len(images) // BATCH), 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(images))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            logits = net.forward(shifted(rng, images[chosen]), training=True)
            shares = np.exp(logits - logits.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            shares[np.arange(BATCH), labels[chosen]] -= 1
            time += 1
            rate = 0.004 * 0.5 * (1 + np.cos(np.pi * time / steps))
            net.backward(shares / np.float32(BATCH), rate, time)
    return net


def load_digits() -> tuple[Array, Array]:
    """scikit-learn's digits: images float32 [1797, 1, 8, 8] in 0 .. 1, labels int64 [1797]."""
    from sklearn import datasets

    data = datasets.load_digits()
    images = (data.images / 16).astype(np.float32)[:, np.newaxis]
    order = np.random.default_rng(SEED).permutation(len(images))
    return images[order], data.target[order].astype(np.int64)


def main() -> None:
    """Train, report, and write both files."""
    images, labels = load_digits()
    held_out, held_labels = images[:TEST_IMAGES], labels[:TEST_IMAGES]
    net = train(images[TEST_IMAGES:], labels[TEST_IMAGES:])
    right = (net.forward(held_out).argmax(axis=1) == held_labels).mean()
    print(f"{right:.1%} of {TEST_IMAGES} test digits")
    folder = Path(__file__).parent
    (folder / "digits_a2w2.onnx").write_bytes(net.to_qonnx(held_out))
    file = io.BytesIO()
    np.savez_compressed(file, images=held_out, labels=held_labels)
    (folder / "digits_test.npz").write_bytes(file.getvalue())


if __name__ == "__main__":
    main()
