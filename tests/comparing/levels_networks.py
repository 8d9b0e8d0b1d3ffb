"""Small random networks with quantizers, as QONNX files: every kind of layer, at few bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.comparing.onnx_graph import QONNX, Graph, Value

# Bits of activations and of weights, and whether 1 bit is a sign. One pair a network: to find the
# kernels of a pair takes longer than all the rest of a build.
_PRECISIONS = ((2, 1, False), (2, 2, False), (1, 1, True), (3, 2, False), (1, 2, False))


def network(seed: int) -> bytes:
    """The network of a seed: each kind of layer once, in an order and of sizes that it chooses."""
    return _Network(seed).build()


class _Network:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.bits, self.weight_bits, self.is_bipolar = _PRECISIONS[seed % len(_PRECISIONS)]
        size = int(self.rng.integers(9, 17))
        self.graph = Graph((1, int(self.rng.choice([1, 3, 5])), size, size))

    def build(self) -> bytes:
        x = self.quant(self.graph.x, 8, 2.0**-6, signed=True)
        x = self.activation(self.conv(x, 32, (3, int(self.rng.choice([1, 2])), 1), bits=8))
        kinds: list[Callable[[Value], Value]] = [
            *(self.plain, self.pointwise, self.residual, self.depthwise, self.grouped),
            *(self.pooled, self.thresholds),
        ]
        for index in self.rng.permutation(len(kinds)):
            x = kinds[index](x)
        features = self.quant(self.graph.average(x), 8, 2.0**-7)
        return self.graph.finish(self.dense(features, 10))

    def plain(self, x: Value) -> Value:
        window = (3, int(self.rng.choice([1, 2])) if x.shape[2] > 6 else 1, 1)
        return self.activation(self.conv(x, self.width(), window))

    def pointwise(self, x: Value) -> Value:
        return self.activation(self.conv(x, self.width(), (1, 1, 0)))

    def residual(self, x: Value) -> Value:
        """Two layers on one grid of 8 bits, their sum on few."""
        outputs = self.width()
        sides = [
            self.quant(self.normalized(self.conv(x, outputs, window)), 8, 2.0**-5, signed=True)
            for window in ((3, 1, 1), (1, 1, 0))
        ]
        total = self.graph.node("Add", sides, sides[0].shape, 1.4)
        return self.activation(self.relu(total), is_normal=True)

    def depthwise(self, x: Value) -> Value:
        return self.activation(self.conv(x, x.channels, (3, 1, 1), groups=x.channels))

    def grouped(self, x: Value) -> Value:
        return self.activation(self.conv(x, self.width(), (3, 1, 1), groups=2))

    def pooled(self, x: Value) -> Value:
        return self.graph.max_pool(x) if min(x.shape[2:]) > 3 else x

    def thresholds(self, x: Value) -> Value:
        """MultiThreshold: levels that lie on no line."""
        sums = self.conv(x, self.width(), (1, 1, 0))
        count = 2**self.bits - 1
        table = np.sort(self.rng.normal(size=(sums.channels, count)) * sums.spread, axis=1)
        steps = self.graph.constant(table.astype(np.float32))
        kind = f"UINT{self.bits}"
        attributes: dict[str, Any] = {"out_dtype": kind, "out_scale": 1.0, "out_bias": 0.0}
        if self.is_bipolar:
            attributes |= {"out_dtype": "BIPOLAR", "out_scale": 2.0, "out_bias": -1.0}
        operands = [sums, steps]
        return self.graph.node(
            "MultiThreshold", operands, sums.shape, 1.5, domain=QONNX, **attributes
        )

    def width(self) -> int:
        """A number of channels; all are even, so that groups divide them."""
        return int(self.rng.choice([16, 32, 40, 64]))

    def conv(
        self,
        x: Value,
        outputs: int,
        window: tuple[int, int, int],
        bits: int | None = None,
        groups: int = 1,
    ) -> Value:
        shape = (outputs, x.channels // groups, window[0], window[0])
        return self.graph.conv(x, [self.weights(shape, bits)], window, groups)

    def dense(self, x: Value, outputs: int) -> Value:
        weights = self.weights((x.channels, outputs), 8)
        return self.graph.node("MatMul", [x, weights], (1, outputs), x.spread)

    def weights(self, shape: tuple[int, ...], bits: int | None) -> Value:
        """Quantized weights, of the network's bits unless others are said."""
        bits = bits or self.weight_bits
        stored = self.graph.constant(self.rng.normal(size=shape).astype(np.float32))
        if bits == 1:
            return self.bipolar(stored)
        return self.quant(stored, bits, 2.0 ** (2 - bits), signed=True, narrow=True)

    def activation(self, x: Value, is_normal: bool = False) -> Value:
        """Batch normalization, perhaps a ReLU, and a quantizer of the network's bits."""
        y = x if is_normal else self.normalized(x)
        if self.is_bipolar:
            return self.bipolar(y)
        if self.rng.random() < 0.5:
            y = self.relu(y)
        return self.quant(y, self.bits, 2.0 ** (1 - self.bits))

    def normalized(self, x: Value) -> Value:
        arrays = (
            self.rng.uniform(0.5, 1.5, x.channels) * self.rng.choice([1, 1, 1, -1], x.channels),
            self.rng.normal(size=x.channels) * 0.3 + 0.4,
            self.rng.normal(size=x.channels) * x.spread * 0.2,
            np.full(x.channels, x.spread**2),
        )
        constants = [self.graph.constant(array.astype(np.float32)) for array in arrays]
        return self.graph.node("BatchNormalization", [x, *constants], x.shape, 1.0, epsilon=1e-5)

    def relu(self, x: Value) -> Value:
        return self.graph.node("Relu", [x], x.shape, x.spread)

    def bipolar(self, x: Value) -> Value:
        scale = self.graph.scalar(1.0)
        return self.graph.node("BipolarQuant", [x, scale], x.shape, 1.0, domain=QONNX)

    def quant(
        self, x: Value, bits: int, scale: float, *, signed: bool = False, narrow: bool = False
    ) -> Value:
        operands = [x, *(self.graph.scalar(value) for value in (scale, 0.0, bits))]
        attributes = {"signed": int(signed), "narrow": int(narrow), "rounding_mode": "ROUND"}
        return self.graph.node("Quant", operands, x.shape, 1.0, domain=QONNX, **attributes)
