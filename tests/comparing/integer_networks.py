"""Small random networks of 8 bits, as the QDQ files that quantization tools write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tests.comparing.onnx_graph import Graph, Value


def network(seed: int) -> bytes:
    """The network of a seed: each kind of layer once, in an order and of sizes that it chooses."""
    return _Network(seed).build()


class _Network:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        size = int(self.rng.integers(9, 17))
        self.graph = Graph((1, int(self.rng.choice([1, 3, 5])), size, size))
        # Every other one: what refuses a softmax of floats would hide all the rest.
        self.is_softmax = seed % 2 == 1
        self.activations = str(self.rng.choice(["uint8", "int8"]))
        self.scales: dict[str, float] = {}
        """Of what passed a quantizer, by the name of the tensor behind it."""

    def build(self) -> bytes:
        x = self.conv(self.through(self.graph.x), 32, (3, int(self.rng.choice([1, 2])), 1))
        kinds: list[Callable[[Value], Value]] = [
            *(self.plain, self.pointwise, self.residual, self.depthwise, self.grouped),
            *(self.pooled, self.gated),
        ]
        for index in self.rng.permutation(len(kinds)):
            x = kinds[index](x)
        features = self.through(self.graph.average(x))
        scores = self.through(self.dense(features, 24))
        last = self.through(self.product(scores, 10))
        if self.is_softmax:
            last = self.graph.node("Softmax", [last], last.shape, 1.0, axis=1)
        return self.graph.finish(last)

    def plain(self, x: Value) -> Value:
        step = int(self.rng.choice([1, 2])) if x.shape[2] > 6 else 1
        return self.conv(x, self.width(), (3, step, 1))

    def pointwise(self, x: Value) -> Value:
        return self.conv(x, self.width(), (1, 1, 0), relu=False)

    def residual(self, x: Value) -> Value:
        outputs = self.width()
        sides = [self.conv(x, outputs, window, relu=False) for window in ((3, 1, 1), (1, 1, 0))]
        return self.through(self.graph.node("Add", sides, sides[0].shape, sides[0].spread * 1.4))

    def depthwise(self, x: Value) -> Value:
        return self.conv(x, x.channels, (3, 1, 1), groups=x.channels)

    def grouped(self, x: Value) -> Value:
        return self.conv(x, self.width(), (3, 1, 1), groups=2)

    def pooled(self, x: Value) -> Value:
        """The largest of 2x2, on the grid of what it reads."""
        if min(x.shape[2:]) <= 3:
            return x
        return self.through(self.graph.max_pool(x), self.scales[x.name])

    def gated(self, x: Value) -> Value:
        """SiLU: a sigmoid, and its product with what it read."""
        gate = self.through(self.graph.node("Sigmoid", [x], x.shape, 0.5), 1 / 256)
        return self.through(self.graph.node("Mul", [x, gate], x.shape, x.spread * 0.6))

    def width(self) -> int:
        """A number of channels; all are even, so that groups divide them."""
        return int(self.rng.choice([16, 24, 32, 64]))

    def conv(
        self,
        x: Value,
        outputs: int,
        window: tuple[int, int, int],
        groups: int = 1,
        relu: bool = True,
    ) -> Value:
        shape = (outputs, x.channels // groups, window[0], window[0])
        y = self.graph.conv(x, self.weights(shape, self.scales[x.name]), window, groups)
        if relu:
            y = self.graph.node("Relu", [y], y.shape, y.spread * 0.7)
        return self.through(y)

    def dense(self, x: Value, outputs: int) -> Value:
        operands = self.weights((outputs, x.channels), self.scales[x.name])
        spread = x.spread * operands[0].spread * x.channels**0.5
        return self.graph.node("Gemm", [x, *operands], (1, outputs), spread, transB=1)

    def product(self, x: Value, outputs: int) -> Value:
        """A product by a matrix with one scale, without a bias."""
        stored = self.rng.integers(-127, 128, (x.channels, outputs)).astype(np.int8)
        weights = self.dequantized(stored, np.float32(2.0**-7))
        return self.graph.node("MatMul", [x, weights], (1, outputs), x.spread * x.channels**0.5)

    def weights(self, shape: tuple[int, ...], scale: float) -> list[Value]:
        """Weights with a scale per output channel, and a bias in steps of a product."""
        stored = self.rng.integers(-127, 128, shape).astype(np.int8)
        scales = (2.0**-7 * self.rng.uniform(0.5, 1.5, shape[0])).astype(np.float32)
        bias = self.rng.integers(-9999, 9999, shape[0]).astype(np.int32)
        steps = (scales * np.float32(scale)).astype(np.float32)
        return [
            replace(self.dequantized(stored, scales), spread=0.6),
            self.dequantized(bias, steps),
        ]

    def dequantized(self, stored: np.ndarray, scale: np.ndarray | np.float32) -> Value:
        zero_points = np.zeros(np.shape(scale), stored.dtype)
        operands = [self.graph.constant(value) for value in (stored, scale, zero_points)]
        axis = {"axis": 0} if np.ndim(scale) else {}
        return self.graph.node("DequantizeLinear", operands, stored.shape, 1.0, **axis)

    def through(self, x: Value, scale: float | None = None) -> Value:
        """The tensor behind a quantizer whose grid holds about four times its spread."""
        scale = scale or float(np.float32(x.spread * 6 / 255))
        lowest = int(np.iinfo(self.activations).min)
        # What a ReLU gives takes all of a grid, as quantization tools have it.
        middle = 0 if x.name.startswith("relu") else int(self.rng.integers(119, 138))
        zero_point = np.dtype(self.activations).type(lowest + middle)
        grid = [self.graph.scalar(scale), self.graph.constant(zero_point)]
        quantized = self.graph.node("QuantizeLinear", [x, *grid], x.shape, x.spread)
        result = self.graph.node("DequantizeLinear", [quantized, *grid], x.shape, x.spread)
        self.scales[result.name] = scale
        return result
