"""Small source networks that tests build in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.graph.builder import ModelBuilder
from stages.kinds import Model
from stages.numerics import qonnx_operators


class SourceNet:
    """A float NCHW source graph with QONNX quantizers, exact in float32 by construction."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        self.builder = ModelBuilder()
        self.rng = np.random.default_rng(seed)
        self.x = self.builder.input("x", shape, "float32")

    def constant(self, name: str, value: Any) -> Any:
        return self.builder.tensor(name, np.asarray(value, np.float32))

    def op(self, expr: Any, name: str) -> Any:
        """Bind any Relax or dialect expression."""
        return self.builder.emit(expr, name)

    def flatten(self, x: Any, name: str = "flat") -> Any:
        size = int(np.prod([int(extent) for extent in x.ty.shape]))
        return self.op(relax.op.reshape(x, (1, size)), name)

    def matmul(
        self, x: Any, name: str, features: int, bits: int = 2, encoding: str = "signed"
    ) -> Any:
        weight = self.weights(name, (int(x.ty.shape[-1]), features), bits, encoding)
        return self.op(relax.op.matmul(x, weight), name)

    def quant(
        self,
        x: Any,
        name: str,
        bits: int,
        scale: float,
        *,
        signed: bool = False,
        zero_point: float = 0.0,
    ) -> Any:
        return self.builder.emit(
            qonnx_operators.quant(
                x,
                self.constant(f"{name}.scale", scale),
                self.constant(f"{name}.zp", zero_point),
                bits=bits,
                signed=signed,
                narrow=False,
                rounding="ROUND",
            ),
            name,
        )

    def weights(self, name: str, shape: tuple[int, ...], bits: int, encoding: str) -> Any:
        value = self.constant(f"{name}.weight", self.rng.normal(size=shape))
        if encoding == "bipolar" and bits == 1:
            call = qonnx_operators.bipolar_quant(value, self.constant(f"{name}.wscale", 0.5))
            return self.builder.emit(call, f"{name}.wq")
        signed = encoding == "signed"
        zero_point = ((1 << bits) - 1) / 2 if encoding == "bipolar" else 0.0
        return self.quant(value, f"{name}.wq", bits, 0.5, signed=signed, zero_point=zero_point)

    def conv(
        self,
        x: Any,
        name: str,
        channels: int,
        kernel: int = 3,
        stride: int = 1,
        bits: int = 1,
        encoding: str = "bipolar",
        padding: int | None = None,
    ) -> Any:
        shape = (channels, int(x.ty.shape[1]), kernel, kernel)
        weight = self.weights(name, shape, bits, encoding)
        pad = kernel // 2 if padding is None else padding
        return self.builder.emit(relax.op.nn.conv2d(x, weight, stride, pad), name)

    def batch_norm(self, x: Any, name: str, spread: float) -> Any:
        channels = int(x.ty.shape[1])
        gamma = (
            2.0 ** self.rng.integers(-1, 2, channels) * self.rng.choice([-1, 1], channels) / spread
        )
        call = qonnx_operators.batch_norm(
            x,
            self.constant(f"{name}.gamma", gamma),
            self.constant(f"{name}.beta", self.rng.integers(-4, 5, channels) / 4),
            self.constant(f"{name}.mean", self.rng.integers(-8, 9, channels) / 2),
            self.constant(f"{name}.var", np.full(channels, 1 - 2.0**-16)),
            epsilon=2.0**-16,
        )
        return self.builder.emit(call, name)

    def model(self, *outputs: Any) -> Model:
        return self.builder.model(outputs, [f"y{number}" for number in range(len(outputs))])


def residual_block(
    activation_bits: int = 2,
    weight_bits: int = 1,
    *,
    channels: int = 64,
    size: int = 16,
    encoding: str = "bipolar",
    seed: int = 0,
) -> Model:
    """A projection block: one packed tensor read by a 3x3 and by a strided 1x1 convolution."""
    net = SourceNet((1, channels, size, size), seed)
    top = 2.0**-activation_bits * 4
    start = net.quant(net.x, "start", activation_bits, top)
    main = net.conv(start, "conv1", channels, 3, 2, weight_bits, encoding)
    main = net.builder.emit(relax.op.nn.relu(net.batch_norm(main, "bn1", 32.0)), "relu1")
    main = net.quant(main, "act1", activation_bits, top)
    main = net.batch_norm(
        net.conv(main, "conv2", channels, 3, 1, weight_bits, encoding), "bn2", 32.0
    )
    main = net.quant(main, "main8", 8, 2.0**-5, signed=True)
    side = net.batch_norm(
        net.conv(start, "down", channels, 1, 2, weight_bits, encoding), "bn3", 8.0
    )
    side = net.quant(side, "side8", 8, 2.0**-5, signed=True)
    total = net.builder.emit(
        relax.op.nn.relu(net.builder.emit(relax.op.add(main, side), "add")), "r"
    )
    low = net.quant(total, "low", activation_bits, top)
    wide = net.quant(total, "wide", 8, 2.0**-5)
    tail = net.batch_norm(
        net.conv(low, "conv3", channels, 3, 1, weight_bits, encoding), "bn4", 32.0
    )
    tail = net.quant(tail, "tail8", 8, 2.0**-5, signed=True)
    total2 = net.builder.emit(relax.op.add(tail, wide), "add2")
    return net.model(total2)
