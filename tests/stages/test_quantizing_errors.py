"""What quantizing refuses, and in which words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from stages import quantizing
from stages.errors import StageError
from stages.kinds import Model
from stages.qnn import source
from tests.stages.networks import SourceNet

Build = Callable[[SourceNet, Any], Any]
"""A network on a quantized picture [1, 4, 6, 6] of 2 bits, called `data`."""


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
        return net.op(source.quant(net.conv(data, "conv", 4), scale, zero_point, **attrs), "q")

    return build


def weight_quant(**changes: Any) -> Build:
    def build(net: SourceNet, data: Any) -> Any:
        shape = (3, 4, 3, 3)
        weight = net.constant("w", changes.get("value", net.rng.normal(size=shape)))
        scale = net.constant("s", changes.get("scale", 0.5))
        zero_point = net.constant("z", changes.get("zero_point", 0.0))
        bits = changes.get("bits", 2)
        call = source.quant(
            weight, scale, zero_point, bits=bits, signed=True, narrow=False, rounding="ROUND"
        )
        return net.op(relax.op.nn.conv2d(data, net.op(call, "wq")), "conv")

    return build


def thresholds(table: Any, scale: float = 1.0, bias: float = 0.0, axis: int = 1) -> Build:
    def build(net: SourceNet, data: Any) -> Any:
        call = source.multi_threshold(
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
        call = source.batch_norm(summed, *operands, epsilon=1e-5, channel_axis=axis)
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
    call = source.multi_threshold(flat, table, out_scale=1.0, out_bias=0.0, channel_axis=1)
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
    call = source.quant(
        weight, scale, net.constant("z", 0), bits=2, signed=True, narrow=False, rounding="ROUND"
    )
    return net.op(relax.op.matmul(data, net.op(call, "wq")), "fc")


def computed_scale(net: SourceNet, data: Any) -> Any:
    zero = net.constant("z", 0)
    call = source.quant(data, data, zero, bits=2, signed=False, narrow=False, rounding="ROUND")
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
    data = net.op(source.bipolar_quant(net.x, net.constant("s", 1.0)), "data")
    return net.quant(net.op(relax.op.mean(data, [2, 3], True), "mean"), "q", 2, 0.5)


def mixed_addends(net: SourceNet, data: Any) -> Any:
    return net.op(source.bipolar_quant(net.conv(data, "conv", 4), net.constant("s", 0.25)), "q")


def other_scale(net: SourceNet, data: Any) -> Any:
    return net.quant(net.conv(data, "conv", 4), "other", 8, 0.25)


def pooled_input(net: SourceNet) -> Any:
    value = net.op(max_pool(net.x), "pool")
    value = net.op(relax.op.multiply(value, net.constant("minus", -1.0)), "minus")
    return net.quant(value, "q", 2, 0.5)


def flattened_pool(net: SourceNet) -> Any:
    return net.quant(net.flatten(net.op(max_pool(net.x), "pool")), "q", 2, 0.5)


EVERY_BYTE = np.arange(256.0).reshape(1, 256)
CASES: dict[str, tuple[Callable[[], Model], str]] = {
    "batch": (
        lambda: of_input(
            lambda net: net.quant(net.op(relax.op.mean(net.x, [0], True), "mean"), "q", 2, 0.5),
            (2, 4),
        ),
        "mean: the 2 samples of a batch meet here, and can only be computed one by one; state a "
        "shape with a batch of 1 under inputs in the recipe",
    ),
    "rank": (
        lambda: of_input(lambda net: net.quant(net.x, "q", 2, 0.5), (1, 4, 6)),
        "q: an activation of rank 3; activations are [1, features] or [1, channels, height, width]",
    ),
    "float_output": (
        lambda: of_input(lambda net: net.op(relax.op.nn.relu(net.x), "relu"), (1, 4)),
        "y0: this output is float arithmetic on a graph input, without a quantizer; quantize the "
        "input, or leave this output out of the model",
    ),
    "unquantized_graph_input": (
        lambda: of_input(lambda net: net.conv(net.x, "conv", 3), (1, 4, 6, 6)),
        "conv: the graph input 'x' is not quantized; put a Quant behind it, or annotate it as "
        "UINT8 or INT8",
    ),
    "constant_output": (
        lambda: over_data(lambda net, data: net.constant("c", 1.0)),
        "y0: a constant stands where an activation is expected",
    ),
    "unknown_operator": (
        lambda: over_data(lambda net, data: net.op(relax.op.sign(data), "sign")),
        "sign: operator relax.sign has no integer form",
    ),
    "computed_scale": (
        lambda: over_data(computed_scale),
        "q: the scale is computed at run time; it must be constant",
    ),
    "unquantized_activation": (
        lambda: over_data(unquantized_input),
        "conv2: the input of this layer is not quantized; put a Quant, BipolarQuant or "
        "MultiThreshold in front of it",
    ),
    "inexact_view": (
        lambda: over_data(scaled_levels),
        "conv: the input of this layer is not quantized; put a Quant, BipolarQuant or "
        "MultiThreshold in front of it",
    ),
    "unquantized_weights": (
        lambda: over_data(real_weights),
        "conv: the weights are not quantized; put a Quant or BipolarQuant over them",
    ),
    "weight_bits": (
        lambda: over_data(weight_quant(bits=9)),
        "wq: weights of 9 bits; up to 8 are supported",
    ),
    "weight_zero_points": (
        lambda: over_data(weight_quant(zero_point=[0.0, 1.0, 0.0])),
        "wq: zero points [0.0, 1.0]; one multiple of 1/2 per tensor is supported",
    ),
    "weight_zero_point": (
        lambda: over_data(weight_quant(zero_point=0.25)),
        "wq: zero points [0.25]; one multiple of 1/2 per tensor is supported",
    ),
    "weight_scale_shape": (
        lambda: over_data(weight_quant(scale=np.full((3, 4, 1, 1), 0.5))),
        "wq: weight scale of shape [3, 4, 1, 1] for weights [3, 4, 3, 3]; one scale per tensor or "
        "per output channel is supported",
    ),
    "weight_scale_axis": (
        lambda: over_data(weight_quant(scale=[0.5, 0.25, 1.0])),
        "conv: the weights [3, 4, 3, 3] have a scale of shape [1, 1, 1, 3]; one scale per tensor "
        "or per output channel is supported",
    ),
    "matrix_scale_axis": (
        lambda: of_input(per_input_scale, (1, 5)),
        "fc: the weights [5, 5] have a scale of shape [5, 1]; one scale per tensor or per output "
        "channel is supported",
    ),
    "weight_scale_zero": (
        lambda: over_data(weight_quant(scale=0.0)),
        "wq: weights or their scale are not finite, or a scale is 0",
    ),
    "weight_nan": (
        lambda: over_data(weight_quant(value=np.full((3, 4, 3, 3), np.nan))),
        "wq: weights or their scale are not finite, or a scale is 0",
    ),
    "activation_bits": (
        lambda: over_data(activation_quant(bits=9)),
        "q: activations of 9 bits; up to 8 are supported",
    ),
    "activation_scales": (
        lambda: over_data(activation_quant(scale=np.arange(1.0, 5.0).reshape(4, 1, 1))),
        "q: an activation quantizer has a scale or zero point per channel; activations need one "
        "scale per tensor; per-channel scales belong to weights",
    ),
    "activation_scale": (
        lambda: over_data(activation_quant(scale=-0.5)),
        "q: a quantizer has scale -0.5; scales are positive",
    ),
    "activation_zero_point": (
        lambda: over_data(activation_quant(zero_point=0.3)),
        "q: zero points [0.30000001192092896]; one multiple of 1/2 per tensor is supported",
    ),
    "one_level": (
        lambda: over_data(activation_quant(bits=1, narrow=True)),
        "q: a narrow quantizer of 1 bit has one level, 0; use 2 bits, or BipolarQuant",
    ),
    "bipolar_scale": (
        lambda: over_data(
            lambda net, data: net.op(
                source.bipolar_quant(net.conv(data, "conv", 4), net.constant("s", -1.0)), "q"
            )
        ),
        "q: BipolarQuant of an activation needs one positive scale",
    ),
    "many_thresholds": (
        lambda: over_data(thresholds(EVERY_BYTE)),
        "mt: MultiThreshold with 256 thresholds and out_scale 1.0; up to 255 thresholds and a "
        "positive out_scale are supported",
    ),
    "threshold_scale": (
        lambda: over_data(thresholds([[0.0]], scale=-1.0)),
        "mt: MultiThreshold with 1 thresholds and out_scale -1.0; up to 255 thresholds and a "
        "positive out_scale are supported",
    ),
    "threshold_bias": (
        lambda: over_data(thresholds([[0.0]], bias=0.3)),
        "mt: zero points [-0.3]; one multiple of 1/2 per tensor is supported",
    ),
    "threshold_axis": (
        lambda: over_data(thresholds(np.zeros((6, 1)), axis=3)),
        "mt: thresholds of shape [6, 1] along axis 3 of [1, 4, 6, 6]; one row for all, or one per "
        "channel of axis 1, is supported",
    ),
    "threshold_features": (
        lambda: over_data(thresholds_of_features),
        "mt: a value per feature of a flattened map of 4 channels and 6 x 6 pixels; do this per "
        "channel, before flattening",
    ),
    "normalized_features": (
        lambda: over_data(normalized_features),
        "bn: a value per feature of a flattened map of 4 channels and 6 x 6 pixels; do this per "
        "channel, before flattening",
    ),
    "normalization_axis": (
        lambda: over_data(normalized(axis=2)),
        "bn: normalization along axis 2; axis 1 is supported",
    ),
    "variance": (
        lambda: over_data(normalized(variance=-1.0)),
        "bn: a normalization whose variance is not positive",
    ),
    "gain": (
        lambda: over_data(normalized(gain=np.inf)),
        "bn: the constant of this multiply is not finite, or 0 where it divides",
    ),
    "division_by_zero": (
        lambda: over_data(step("divide", 0.0)),
        "step: the constant of this divide is not finite, or 0 where it divides",
    ),
    "infinite_step": (
        lambda: over_data(step("add", np.inf)),
        "step: the constant of this add is not finite, or 0 where it divides",
    ),
    "step_per_row": (
        lambda: over_data(step("multiply", np.arange(1.0, 7.0))),
        "step: a constant of shape [6] for an activation of shape [1, 4, 6, 6]; one value, or one "
        "per channel, is supported",
    ),
    "broadcast": (
        lambda: over_data(
            lambda net, data: net.op(
                relax.op.add(net.conv(data, "conv", 1), net.constant("c", np.ones((4, 1, 1)))),
                "step",
            )
        ),
        "step: a constant of shape [4, 1, 1] for an activation of shape [1, 1, 6, 6]; one value, "
        "or one per channel, is supported",
    ),
    "reciprocal": (
        lambda: over_data(
            lambda net, data: net.op(relax.op.divide(net.constant("c", 1.0), data), "step")
        ),
        "step: divide of a constant by an activation has no integer form",
    ),
    "product_of_activations": (
        lambda: over_data(lambda net, data: net.op(relax.op.multiply(data, data), "step")),
        "step: multiply of two activations has no integer form",
    ),
    "addend_scales": (
        lambda: over_data(added(other_scale)),
        "sum: the addends are quantized at different scales, 0.5 and 0.25; quantize both at one "
        "shared scale",
    ),
    "addend_shapes": (
        lambda: over_data(
            added(lambda net, data: net.quant(net.conv(data, "conv", 1), "one", 8, 0.5))
        ),
        "sum: the addends have the shapes [1, 4, 6, 6] and [1, 1, 6, 6], or one has been reshaped "
        "and the other has not",
    ),
    "addend_float": (
        lambda: over_data(added(lambda net, data: net.conv(data, "conv", 4))),
        "sum: an addend is not quantized to integers; put a Quant of 8 bits on both inputs of the "
        "addition, at one scale",
    ),
    "addend_bipolar": (
        lambda: over_data(added(mixed_addends)),
        "sum: an addend is not quantized to integers; put a Quant of 8 bits on both inputs of the "
        "addition, at one scale",
    ),
    "dilation": (
        lambda: over_data(dilated),
        "conv: dilated convolution has no integer form yet",
    ),
    "accumulator": (
        lambda: of_input(wide_sum, (1, 70_000)),
        "fc: the accumulator can exceed 32 bits",
    ),
    "rank_of_product": (
        lambda: over_data(batched_product),
        "fc: a matrix product with a result of rank 4 and weights of rank 2; both must be 2",
    ),
    "reshaped_convolution": (
        lambda: of_input(pixel_reshaped, (1, 8)),
        "conv: a convolution of a reshaped activation has no integer form",
    ),
    "reshape": (
        lambda: over_data(reshaped(1, 8, 3, 6)),
        "reshape: reshape from [1, 4, 6, 6] to [1, 8, 3, 6] has no integer form",
    ),
    "reshape_of_pool": (
        lambda: of_input(flattened_pool, (1, 4, 6, 6)),
        "flat: a reshape behind pooling or per-channel arithmetic of a float input; put a "
        "quantizer in front of the reshape",
    ),
    "transpose": (
        lambda: over_data(
            lambda net, data: net.op(relax.op.permute_dims(data, [0, 1, 3, 2]), "turn")
        ),
        "turn: transposing an activation has no integer form",
    ),
    "pool_before": (
        lambda: over_data(pooled(max_pool, falls="before")),
        "pool: max pooling of a tensor that falls with its input",
    ),
    "pool_after": (
        lambda: over_data(pooled(max_pool, falls="after")),
        "q: max pooling before a quantizer that falls with its input; move the quantizer in front "
        "of the pooling in the source model",
    ),
    "pool_of_input": (
        lambda: of_input(pooled_input, (1, 4, 6, 6)),
        "q: max pooling before a quantizer that falls with its input; move the quantizer in front "
        "of the pooling in the source model",
    ),
    "pool_ceil": (
        lambda: over_data(pooled(lambda x: max_pool(x, ceil_mode=True))),
        "pool: pooling with ceil_mode or dilation has no integer form",
    ),
    "pool_padding": (
        lambda: over_data(pooled(lambda x: max_pool(x, padding=2))),
        "pool: pooling with padding [2, 2, 2, 2] for a window of [2, 2]",
    ),
    "pool_output": (
        lambda: over_data(lambda net, data: net.op(max_pool(net.conv(data, "c", 4)), "pool")),
        "y0: max pooling of a float output has no integer form",
    ),
    "average_padding": (
        lambda: over_data(
            pooled(lambda x: relax.op.nn.avg_pool2d(x, (2, 2), (2, 2), (1, 1, 1, 1)))
        ),
        "pool: average pooling that leaves padding out of its count",
    ),
    "mean_axes": (
        lambda: over_data(pooled(lambda x: relax.op.mean(x, [1], True))),
        "pool: a mean over other axes than height and width",
    ),
    "mean_half_integer": (
        lambda: of_input(half_integer_mean, (1, 4, 2, 2)),
        "mean: a mean of values with a half-integer zero point",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    build, sentence = CASES[name]
    with pytest.raises(StageError, match=f"^{re.escape(sentence)}$"):
        quantizing.run(model=build())
