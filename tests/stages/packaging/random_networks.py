"""Networks drawn at random, for what nobody thought of."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import shape_of
from stages.layer_options import Algorithm
from tests.stages.packaging.level_net import Case, Net, options


class RandomNet(Net):
    """A chain of random layers with residual sums and side outputs, exact in float32."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        shape = (1, *(int(self.random.integers(1, n)) for n in (70, 9, 9)))
        super().__init__(shape, seed)
        self.algorithms: dict[str, Algorithm] = {}
        self.bits = int(self.random.integers(1, 4))

    def perhaps(self, chance: float) -> bool:
        return bool(self.random.random() < chance)

    def case(self) -> Case:
        random = self.random
        x = self.quantized(self.x, "a", self.bits, 0.5, signed=self.bits > 1 and self.perhaps(0.3))
        outputs = []
        for number in range(int(random.integers(1, 4))):
            y = self.block(x, str(number))
            if self.perhaps(0.2):
                outputs.append(y)
            x = self.activation(y, f"q{number}")
            if self.perhaps(0.3) and min(shape_of(x.ty)[2:]) > 1:
                x = self.op(relax.op.nn.max_pool2d(x, (2, 2), (2, 2)), f"p{number}")
        outputs.append(self.layer(x, "last", self.shape(x)))
        return Case(self.model(*outputs), options(every="mac8", **self.algorithms))

    def block(self, x: Any, number: str) -> Any:
        """A normalized layer, or the sum of two on one 8-bit grid."""
        shape = self.shape(x)
        spread = 2.0 ** self.random.integers(2, 6)
        y = self.batch_norm(self.layer(x, f"c{number}", shape), f"bn{number}", spread)
        if self.perhaps(0.4):
            other = self.layer(x, f"d{number}", shape)
            other = self.batch_norm(other, f"bnd{number}", spread)
            left = self.quant(y, f"left{number}", 8, 2.0**-4, signed=True)
            right = self.quant(other, f"right{number}", 8, 2.0**-4, signed=True)
            y = self.op(relax.op.add(left, right), f"add{number}")
        return self.op(relax.op.nn.relu(y), f"relu{number}") if self.perhaps(0.3) else y

    def activation(self, y: Any, name: str) -> Any:
        self.bits = int(self.random.choice([1, 2, 2, 3, 8]))
        scale = 2.0 ** (1 - self.bits) if self.bits < 8 else 2.0**-5
        kind = {
            "signed": self.bits > 1 and self.perhaps(0.5),
            "narrow": self.bits > 1 and self.perhaps(0.3),
            "rounding": str(self.random.choice(["ROUND", "FLOOR", "CEIL"])),
        }
        return self.quantized(y, name, self.bits, scale, **kind)

    def shape(self, x: Any) -> tuple[int, int, int, tuple[int, ...]]:
        """Outputs, kernel, stride and padding of a convolution that fits."""
        outputs, kernel = int(self.random.choice([1, 9, 32, 33, 64])), self.random.choice([1, 3, 5])
        padding = tuple(int(self.random.integers(0, kernel)) for _ in range(4))
        height, width = shape_of(x.ty)[2:]
        if height + padding[0] + padding[2] < kernel or width + padding[1] + padding[3] < kernel:
            padding = (int(kernel) // 2,) * 4
        return outputs, int(kernel), int(self.random.integers(1, 3)), padding

    def layer(self, x: Any, name: str, shape: tuple[int, int, int, tuple[int, ...]]) -> Any:
        outputs, kernel, stride, padding = shape
        bits = int(self.random.integers(1, 4))
        encodings = ["bipolar", "unipolar", "signed"][: 3 if bits > 1 else 2]
        encoding = str(self.random.choice(encodings))
        size = (outputs, shape_of(x.ty)[1], kernel, kernel)
        if self.bits <= 3 and self.perhaps(0.6):
            self.algorithms[name] = "bitserial"
        weights = self.weights(name, size, bits, encoding)
        return self.op(relax.op.nn.conv2d(x, weights, stride, padding), name)
