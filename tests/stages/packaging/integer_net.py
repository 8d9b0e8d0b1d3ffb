"""Networks of integers, as importers give them: int8 activations, NHWC or NCHW."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import integer
from stages.dialect.padding import Padding, Sides
from stages.graph.builder import ModelBuilder
from stages.kinds import Model
from stages.numerics import rescale

Array = np.ndarray[Any, Any]


op = relax.op


class Net:
    """A network under construction: int8 activations, NHWC or NCHW."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "int8", seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = ModelBuilder()
        self.shape, self.dtype = shape, dtype
        self.x = self.builder.input("x", shape, dtype)

    def conv(self, x: Any, name: str, outputs: int, kernel: int = 3, **more: Any) -> Any:
        """A convolution with bias and requantization, of weights from -limit to less than it."""
        channels = int(x.ty.shape[-1])
        groups = more.pop("groups", 1)
        window = more.pop("window", (kernel, kernel))
        limit = more.pop("limit", 128)
        weight = self.rng.integers(-limit, limit, (outputs, *window, channels // groups))
        attrs = {
            "strides": [1, 1],
            "padding": Padding(
                Sides.of(more.pop("padding", [kernel // 2] * 4)), more.pop("padded_with", 0)
            ),
            "groups": groups,
            "data_zero_point": more.pop("zero_point", -5),
            "weight_zero_point": more.pop("weight_zero_point", 0),
        }
        kind, dtype = more.pop("weight_dtype", "int8"), more.pop("dtype", "int8")
        tensor = self.builder.tensor(f"{name}.weight", weight.astype(kind))
        sums = self.builder.emit(integer.conv2d(x, tensor, **(attrs | more)), name)
        bias = self.builder.tensor(
            f"{name}.bias", self.rng.integers(-999, 999, outputs).astype("int32")
        )
        moved = self.builder.emit(op.add(sums, bias), f"{name}.bias")
        return self.requantize(moved, name, dtype=dtype)

    def requantize(self, sums: Any, name: str, largest: float = 1e-3, dtype: str = "int8") -> Any:
        """To 8 bits."""
        channels = int(sums.ty.shape[-1])
        scale = self.rng.uniform(largest / 10, largest, channels).astype(np.float32)
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        call = rescale.rescale(
            sums,
            self.builder.tensor(f"{name}.scale", scale),
            zero_point=low + 123,
            low=low,
            high=high,
            dtype=dtype,
            fits=largest <= 0.5,
        )
        return self.builder.emit(call, f"{name}.q")

    def emit(self, call: Any, name: str) -> Any:
        return self.builder.emit(call, name)

    def model(self, *outputs: Any) -> Model:
        names = [f"y{number}" for number in range(len(outputs))]
        return self.builder.model(list(outputs), names, attrs={"numerics": "onnx"})

    def inputs(self) -> dict[str, Array]:
        limits = np.iinfo(self.dtype)
        values = self.rng.integers(limits.min, limits.max + 1, self.shape)
        return {"x": values.astype(self.dtype)}


def mobile() -> tuple[Model, dict[str, Array]]:
    """Strides, depthwise, pointwise, a residual addition, mean and a dense head."""
    net = Net((1, 12, 14, 3), "uint8")
    x = net.conv(net.x, "stem", 16, strides=[2, 2], zero_point=128)
    y = net.conv(x, "dw", 16, groups=16)
    y = net.conv(y, "pw", 16, kernel=1)
    total = net.emit(
        op.add(
            net.emit(op.astype(x, "int32"), "wide_x"), net.emit(op.astype(y, "int32"), "wide_y")
        ),
        "total",
    )
    x = net.requantize(total, "sum")
    x = net.conv(x, "dilated", 24, dilation=[2, 1], padding=[2, 1, 2, 1])
    x = net.conv(x, "asymmetric", 10, weight_dtype="uint8", weight_zero_point=117, kernel=2)
    x = net.emit(integer.max_pool2d(x, kernel=[2, 2], strides=[2, 2], padding=[0, 0, 1, 0]), "pool")
    flat = net.emit(op.reshape(x, (1, int(np.prod([int(e) for e in x.ty.shape])))), "flat")
    weight = net.rng.integers(-128, 128, (11, int(flat.ty.shape[1]))).astype("int8")
    sums = net.emit(
        integer.dense(
            flat, net.builder.tensor("w", weight), data_zero_point=1, weight_zero_point=0
        ),
        "dense",
    )
    return net.model(net.requantize(sums, "head"), x), net.inputs()
