"""Layers over a quantized image that tests build, one kind each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from stages.kinds import Model
from stages.numerics import qonnx_operators
from tests.stages.networks import SourceNet

Build = Callable[[SourceNet, Any], Any]
"""A network on a quantized image [1, 4, 6, 6] of 2 bits, called `data`."""


def over_data(build: Build) -> Model:
    net = SourceNet((1, 4, 6, 6))
    return net.model(build(net, net.quant(net.x, "data", 2, 0.5)))


def step(op: str, value: Any) -> Build:
    def build(net: SourceNet, data: Any) -> Any:
        summed = net.conv(data, "conv", 4)
        return net.quant(
            net.op(getattr(relax.op, op)(summed, net.constant("c", value)), "step"), "q", 2, 0.5
        )

    return build


def activation_quant(**changes: Any) -> Build:
    operands = {"scale": 0.5, "zero_point": 0.0}
    attrs = {"bits": 2, "signed": False, "narrow": False, "rounding": "ROUND"}
    for key, value in changes.items():
        (operands if key in operands else attrs)[key] = value

    def build(net: SourceNet, data: Any) -> Any:
        scale, zero_point = (net.constant(name, value) for name, value in operands.items())
        return net.op(
            qonnx_operators.quant(net.conv(data, "conv", 4), scale, zero_point, **attrs), "q"
        )

    return build


def weight_quant(**changes: Any) -> Build:
    def build(net: SourceNet, data: Any) -> Any:
        shape = (3, 4, 3, 3)
        weight = net.constant("w", changes.get("value", net.rng.normal(size=shape)))
        scale = net.constant("s", changes.get("scale", 0.5))
        zero_point = net.constant("z", changes.get("zero_point", 0.0))
        bits = changes.get("bits", 2)
        call = qonnx_operators.quant(
            weight, scale, zero_point, bits=bits, signed=True, narrow=False, rounding="ROUND"
        )
        return net.op(relax.op.nn.conv2d(data, net.op(call, "wq")), "conv")

    return build


def thresholds(table: Any, scale: float = 1.0, bias: float = 0.0, axis: int = 1) -> Build:
    def build(net: SourceNet, data: Any) -> Any:
        call = qonnx_operators.multi_threshold(
            net.conv(data, "conv", 4),
            net.constant("t", table),
            out_scale=scale,
            out_bias=bias,
            channel_axis=axis,
        )
        return net.op(call, "mt")

    return build


def normalized(variance: float = 1.0, axis: int = 1, gain: float = 1.0) -> Build:
    def build(net: SourceNet, data: Any) -> Any:
        summed = net.conv(data, "conv", 4) if axis == 1 else net.conv(data, "conv", 6)
        values = (gain, 0.0, 0.0, variance)
        operands = [
            net.constant(f"b{i}", np.full(6 if axis > 1 else 4, v)) for i, v in enumerate(values)
        ]
        call = qonnx_operators.batch_norm(summed, *operands, epsilon=1e-5, channel_axis=axis)
        return net.quant(net.op(call, "bn"), "q", 2, 0.5)

    return build


def of_input(build: Callable[[SourceNet], Any], shape: tuple[int, ...]) -> Model:
    net = SourceNet(shape)
    return net.model(build(net))


def pooled(call: Callable[[Any], Any], *, falls: str = "") -> Build:
    def build(net: SourceNet, data: Any) -> Any:
        value = net.conv(data, "conv", 4)
        minus = net.constant("minus", -1.0)
        if falls == "before":
            value = net.op(relax.op.multiply(value, minus), "before")
        value = net.op(call(value), "pool")
        if falls == "after":
            value = net.op(relax.op.multiply(value, minus), "after")
        return net.quant(value, "q", 2, 0.5)

    return build


def max_pool(x: Any, padding: int = 0, ceil_mode: bool = False) -> Any:
    pad = (padding,) * 4
    return relax.op.nn.max_pool2d(x, (2, 2), (2, 2), pad, ceil_mode=ceil_mode)


def added(other: Callable[[SourceNet, Any], Any]) -> Build:
    def build(net: SourceNet, data: Any) -> Any:
        return net.op(relax.op.add(data, other(net, data)), "sum")

    return build


def dilated(net: SourceNet, data: Any) -> Any:
    weight = net.weights("conv", (3, 4, 3, 3), 1, "bipolar")
    return net.op(relax.op.nn.conv2d(data, weight, dilation=2), "conv")


def reshaped(*shape: int) -> Build:
    return lambda net, data: net.op(relax.op.reshape(data, shape), "reshape")


def normalized_features(net: SourceNet, data: Any) -> Any:
    return net.quant(net.batch_norm(net.flatten(data), "bn", 1.0), "q", 2, 0.5)


def thresholds_of_features(net: SourceNet, data: Any) -> Any:
    table = net.constant("t", np.ones((144, 3)))
    flat = net.flatten(data)
    call = qonnx_operators.multi_threshold(flat, table, out_scale=1.0, out_bias=0.0, channel_axis=1)
    return net.op(call, "mt")


def wide_sum(net: SourceNet) -> Any:
    """Sums that 32 bits cannot hold: 8 bits times 8 bits, 70,000 times."""
    data = net.quant(net.x, "data", 8, 1.0)
    weight = net.constant("w", np.full((70_000, 1), 127.0))
    return net.op(relax.op.matmul(data, weight), "fc")


def per_input_scale(net: SourceNet) -> Any:
    data = net.quant(net.x, "data", 2, 0.5)
    weight = net.constant("w", net.rng.normal(size=(5, 5)))
    scale = net.constant("s", np.arange(1.0, 6.0).reshape(5, 1))
    call = qonnx_operators.quant(
        weight, scale, net.constant("z", 0), bits=2, signed=True, narrow=False, rounding="ROUND"
    )
    return net.op(relax.op.matmul(data, net.op(call, "wq")), "fc")


def computed_scale(net: SourceNet, data: Any) -> Any:
    zero = net.constant("z", 0)
    call = qonnx_operators.quant(
        data, data, zero, bits=2, signed=False, narrow=False, rounding="ROUND"
    )
    return net.op(call, "q")


def scaled_levels(net: SourceNet, data: Any) -> Any:
    """Levels times 0.1 and times 0.3: no float32 is the scale of both."""
    levels = net.quant(data, "levels", 2, 0.1)
    return net.conv(net.op(relax.op.multiply(levels, net.constant("c", 0.3)), "scaled"), "conv", 3)


def real_weights(net: SourceNet, data: Any) -> Any:
    weight = net.constant("w", net.rng.normal(size=(3, 4, 1, 1)))
    return net.op(relax.op.nn.conv2d(data, weight), "conv")


def unquantized_input(net: SourceNet, data: Any) -> Any:
    return net.conv(net.op(relax.op.nn.relu(net.conv(data, "conv1", 4)), "relu"), "conv2", 4)


def pixel_reshaped(net: SourceNet) -> Any:
    data = net.quant(net.x, "data", 2, 0.5)
    return net.conv(net.op(relax.op.reshape(data, (1, 8, 1, 1)), "pixel"), "conv", 3, 1)


def batched_product(net: SourceNet, data: Any) -> Any:
    weight = net.constant("w", np.ones((6, 3)))
    return net.op(relax.op.matmul(data, weight), "fc")


def half_integer_mean(net: SourceNet) -> Any:
    data = net.op(qonnx_operators.bipolar_quant(net.x, net.constant("s", 1.0)), "data")
    return net.quant(net.op(relax.op.mean(data, [2, 3], True), "mean"), "q", 2, 0.5)


def mixed_addends(net: SourceNet, data: Any) -> Any:
    return net.op(
        qonnx_operators.bipolar_quant(net.conv(data, "conv", 4), net.constant("s", 0.25)), "q"
    )


def other_scale(net: SourceNet, data: Any) -> Any:
    return net.quant(net.conv(data, "conv", 4), "other", 8, 0.25)


def pooled_input(net: SourceNet) -> Any:
    value = net.op(max_pool(net.x), "pool")
    value = net.op(relax.op.multiply(value, net.constant("minus", -1.0)), "minus")
    return net.quant(value, "q", 2, 0.5)


def flattened_pool(net: SourceNet) -> Any:
    return net.quant(net.flatten(net.op(max_pool(net.x), "pool")), "q", 2, 0.5)
