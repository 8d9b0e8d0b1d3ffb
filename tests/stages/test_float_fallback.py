"""What stays in float in networks with quantizers computes the same after every stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.ir import Call

from stages import canonicalizing, quantizing
from stages.dialect.calls import is_op
from stages.graph.bindings import bindings_of, calls_of
from stages.graph.composites import calls_in
from stages.kinds import Model
from stages.numerics import float_elementwise, qonnx_operators
from tests.stages.layers import (
    activation_quant,
    added,
    batched_product,
    dilated,
    flattened_pool,
    half_integer_mean,
    max_pool,
    mixed_addends,
    normalized,
    normalized_features,
    of_input,
    other_scale,
    over_data,
    per_input_scale,
    pixel_reshaped,
    pooled,
    pooled_input,
    real_weights,
    reshaped,
    scaled_levels,
    step,
    thresholds_of_features,
    unquantized_input,
    weight_quant,
    wide_sum,
)
from tests.stages.networks import SourceNet
from tests.stages.pipeline import assert_stages_agree


def real(net: SourceNet, name: str, *shape: int) -> Any:
    """Weights of no quantizer."""
    return net.constant(name, net.rng.normal(size=shape) / np.sqrt(np.prod(shape[1:])))


def stem(channels: int) -> Callable[[SourceNet], Any]:
    """Pixels as they are, pooled before they are levels, and float weights at the end."""

    def build(net: SourceNet) -> Any:
        weight = real(net, "w", channels, 3, 7, 7)
        value = net.op(relax.op.nn.conv2d(net.x, weight, 2, 3), "stem")
        value = net.op(relax.op.nn.relu(net.batch_norm(value, "bn", 1.0)), "relu")
        value = net.quant(net.op(max_pool(value), "pool"), "data", 2, 0.25)
        value = net.quant(net.conv(value, "conv", 8), "last", 2, 0.5)
        return net.op(relax.op.matmul(net.flatten(value), real(net, "fc.w", 288, 10)), "fc")

    return build


def shortcut(net: SourceNet) -> Any:
    """A sum of floats, and what a function makes of it, between two quantized layers."""
    data = net.quant(net.x, "data", 2, 0.5)
    value = net.op(relax.op.add(net.conv(data, "conv1", 4), net.x), "sum")
    value = net.op(float_elementwise.sigmoid(value), "sigmoid")
    again = net.conv(net.quant(value, "middle", 2, 0.25), "conv2", 4)
    return net.quant(net.op(relax.op.add(again, value), "out"), "end", 2, 0.5)


def residual(net: SourceNet) -> Any:
    """Bi-Real networks: sums of floats go on beside their signs, from the first layer on."""
    weight = real(net, "w", 32, 3, 3, 3)
    value = net.op(relax.op.nn.conv2d(net.x, weight, padding=1), "stem")
    for number in range(2):
        bits = net.op(
            qonnx_operators.bipolar_quant(value, net.constant(f"s{number}", 1.0)), f"b{number}"
        )
        scaled = net.batch_norm(net.conv(bits, f"conv{number}", 32), f"bn{number}", 0.125)
        value = net.op(relax.op.add(scaled, value), f"sum{number}")
    bits = net.op(qonnx_operators.bipolar_quant(value, net.constant("s2", 1.0)), "b2")
    side = net.batch_norm(net.conv(bits, "side", 64, stride=2), "side.bn", 0.125)
    pooled = net.op(relax.op.nn.avg_pool2d(value, (2, 2), (2, 2)), "pool")
    bits = net.op(qonnx_operators.bipolar_quant(pooled, net.constant("s3", 1.0)), "b3")
    main = net.batch_norm(net.conv(bits, "main", 64, kernel=1), "main.bn", 0.125)
    total = net.op(relax.op.add(main, side), "total")
    weight = real(net, "fc.w", 64 * 16, 10)
    return net.op(
        relax.op.matmul(net.flatten(net.op(relax.op.nn.relu(total), "relu")), weight), "fc"
    )


def beside_itself(net: SourceNet) -> Any:
    """An image that is convolved, in float, and added to what that gives."""
    weight = real(net, "w", 3, 3, 3, 3)
    summed = net.op(relax.op.nn.conv2d(net.x, weight, padding=1), "conv")
    return net.op(relax.op.add(summed, net.x), "sum")


def depthwise(net: SourceNet) -> Any:
    """A float convolution of each channel on its own, between two quantizers."""
    data = net.quant(net.x, "data", 4, 0.5)
    weight = real(net, "w", 4, 1, 3, 3)
    value = net.op(relax.op.nn.conv2d(data, weight, padding=1, groups=4), "depthwise")
    return net.quant(value, "q", 4, 0.125)


def concatenated(net: SourceNet) -> Any:
    """Levels of two scales side by side, read by quantized weights."""
    parts = [net.quant(net.x, f"part{i}", 2, scale) for i, scale in enumerate((0.5, 0.3))]
    joined = net.op(relax.op.concat(parts, 1), "joined")
    return net.quant(net.conv(joined, "conv", 5), "q", 3, 0.25)


def wide_input(net: SourceNet) -> Any:
    """Levels of more bits than a byte has, read by quantized weights."""
    return net.conv(net.quant(net.x, "wide", 12, 0.01, signed=True), "conv", 3)


def joined(net: SourceNet) -> Any:
    """Levels of one scale, signed and unsigned, side by side, and added to others."""
    parts = [
        net.quant(net.x, f"part{i}", bits, 0.5, signed=signed)
        for i, (bits, signed) in enumerate(((2, False), (3, True)))
    ]
    both = net.op(relax.op.concat(parts, 1), "joined")
    value = net.quant(net.conv(both, "conv", 8, bits=2), "q", 3, 0.5)
    return net.quant(net.op(relax.op.add(value, both), "sum"), "end", 2, 1.0)


def shuffled(net: SourceNet) -> Any:
    """Channels of bits in another order, as ShuffleNet has them."""
    data = net.op(qonnx_operators.bipolar_quant(net.x, net.constant("s", 0.75)), "data")
    split = net.op(relax.op.reshape(data, (1, 2, 2, 6, 6)), "split")
    turned = net.op(relax.op.permute_dims(split, [0, 2, 1, 3, 4]), "turned")
    value = net.op(relax.op.reshape(turned, (1, 4, 6, 6)), "shuffled")
    return net.quant(net.conv(value, "conv", 5), "q", 2, 0.5)


def turned_round(net: SourceNet) -> Any:
    """Levels times a negative number, moved about."""
    data = net.quant(net.x, "data", 2, 0.5)
    value = net.op(relax.op.multiply(data, net.constant("minus", -1.0)), "minus")
    flipped = net.op(relax.op.permute_dims(value, [0, 1, 3, 2]), "turned")
    return net.quant(net.conv(flipped, "conv", 5), "q", 2, 0.5)


def surrounded(net: SourceNet) -> Any:
    """Levels with zeros around them, more on one side, as other frameworks pad."""
    data = net.quant(net.x, "data", 3, 0.5, signed=True)
    padded = net.op(relax.op.nn.pad(data, [0, 0, 0, 0, 0, 1, 0, 1]), "padded")
    return net.quant(net.conv(padded, "conv", 5, stride=2, padding=0), "q", 2, 0.5)


MOVED = {
    "joined": joined,
    "shuffled": shuffled,
    "turned_round": turned_round,
    "surrounded": surrounded,
}
NETWORKS: dict[str, Callable[[], Model]] = {
    "stem": lambda: of_input(stem(16), (1, 3, 24, 24)),
    "narrow_stem": lambda: of_input(stem(3), (1, 3, 24, 24)),
    "shortcut": lambda: of_input(shortcut, (1, 4, 6, 6)),
    "beside_itself": lambda: of_input(beside_itself, (1, 3, 8, 8)),
    "residual": lambda: of_input(residual, (1, 3, 8, 8)),
    "depthwise": lambda: of_input(depthwise, (1, 4, 6, 6)),
    **{name: partial(of_input, build, (1, 4, 6, 6)) for name, build in MOVED.items()},
    "concatenated": lambda: of_input(concatenated, (1, 4, 6, 6)),
}
STAYING: dict[str, Callable[[], Model]] = {
    **NETWORKS,
    "float_output": lambda: of_input(lambda net: net.op(relax.op.nn.relu(net.x), "relu"), (1, 4)),
    "unquantized_graph_input": lambda: of_input(
        lambda net: net.conv(net.x, "conv", 3), (1, 4, 6, 6)
    ),
    "unknown_operator": lambda: over_data(lambda net, data: net.op(relax.op.sign(data), "sign")),
    "unquantized_activation": lambda: over_data(unquantized_input),
    "inexact_view": lambda: over_data(scaled_levels),
    "unquantized_weights": lambda: over_data(real_weights),
    "weight_bits": lambda: over_data(weight_quant(bits=9)),
    "weight_zero_points": lambda: over_data(weight_quant(zero_point=[0.0, 1.0, 0.0])),
    "weight_zero_point": lambda: over_data(weight_quant(zero_point=0.25)),
    "weight_scale_shape": lambda: over_data(weight_quant(scale=np.full((3, 4, 1, 1), 0.5))),
    "weight_scale_axis": lambda: over_data(weight_quant(scale=[0.5, 0.25, 1.0])),
    "matrix_scale_axis": lambda: of_input(per_input_scale, (1, 5)),
    "threshold_features": lambda: over_data(thresholds_of_features),
    "normalized_features": lambda: over_data(normalized_features),
    "normalization_axis": lambda: over_data(normalized(axis=2)),
    "step_per_row": lambda: over_data(step("multiply", np.arange(1.0, 7.0))),
    "broadcast": lambda: over_data(
        lambda net, data: net.op(
            relax.op.add(net.conv(data, "conv", 1), net.constant("c", np.ones((4, 1, 1)))),
            "step",
        )
    ),
    "reciprocal": lambda: over_data(
        lambda net, data: net.op(relax.op.divide(net.constant("c", 1.0), data), "step")
    ),
    "product_of_activations": lambda: over_data(
        lambda net, data: net.op(relax.op.multiply(data, data), "step")
    ),
    "addend_scales": lambda: over_data(added(other_scale)),
    "addend_shapes": lambda: over_data(
        added(lambda net, data: net.quant(net.conv(data, "conv", 1), "one", 8, 0.5))
    ),
    "addend_float": lambda: over_data(added(lambda net, data: net.conv(data, "conv", 4))),
    "addend_bipolar": lambda: over_data(added(mixed_addends)),
    "dilation": lambda: over_data(dilated),
    "accumulator": lambda: of_input(wide_sum, (1, 70_000)),
    "rank_of_product": lambda: over_data(batched_product),
    "reshaped_convolution": lambda: of_input(pixel_reshaped, (1, 8)),
    "reshape": lambda: over_data(reshaped(1, 8, 3, 6)),
    "reshape_of_pool": lambda: of_input(flattened_pool, (1, 4, 6, 6)),
    "transpose": lambda: over_data(
        lambda net, data: net.op(relax.op.permute_dims(data, [0, 1, 3, 2]), "turn")
    ),
    "pool_before": lambda: over_data(pooled(max_pool, falls="before")),
    "pool_after": lambda: over_data(pooled(max_pool, falls="after")),
    "pool_of_input": lambda: of_input(pooled_input, (1, 4, 6, 6)),
    "pool_output": lambda: over_data(
        lambda net, data: net.op(max_pool(net.conv(data, "c", 4)), "pool")
    ),
    "average_padding": lambda: over_data(
        pooled(lambda x: relax.op.nn.avg_pool2d(x, (2, 2), (2, 2), (1, 1, 1, 1)))
    ),
    "mean_axes": lambda: over_data(pooled(lambda x: relax.op.mean(x, [1], True))),
    "mean_half_integer": lambda: of_input(half_integer_mean, (1, 4, 2, 2)),
    "activation_bits": lambda: over_data(activation_quant(bits=9)),
    "activation_scales": lambda: over_data(
        activation_quant(scale=np.arange(1.0, 5.0).reshape(4, 1, 1))
    ),
    "activation_zero_point": lambda: over_data(activation_quant(zero_point=0.3)),
    "wide_input": lambda: of_input(wide_input, (1, 4, 6, 6)),
    "floor_of_many_bits": lambda: over_data(activation_quant(bits=10, rounding="FLOOR")),
}


@pytest.mark.parametrize("name", STAYING)
def test_stages_agree(name: str) -> None:
    assert_stages_agree(STAYING[name](), "icelake")


@pytest.mark.parametrize("name", ["joined", "shuffled", "surrounded", "concatenated"])
def test_levels_that_move_about_stay_levels(name: str) -> None:
    """Unless their scales differ."""
    main = quantizing.run(model=NETWORKS[name]()).module["main"]
    names = [str(b.value.op.name) for b in bindings_of(main) if isinstance(b.value, Call)]
    is_float = name == "concatenated"
    assert ("relax.qnn.float_conv2d" in names) == is_float
    assert ("relax.qnn.conv2d" in names) != is_float


def test_a_residual_is_added_where_its_sums_are() -> None:
    """And what is quantized of it is levels there."""
    model = canonicalizing.run(model=quantizing.run(model=NETWORKS["residual"]()))
    composites = [function for _, function in calls_of(model)]
    kinds = Counter(str(function.attrs["composite"]) for function in composites)
    products = [f for f in composites if str(f.attrs["composite"]) == "qnn_conv2d"]
    added = [sum(is_op(call, "relax.add") for call in calls_in(f)) for f in products]
    # Of four layers of bits the third is added to by the last one; each has a sum of its norm.
    assert sorted(added) == [1, 2, 2, 2]
    assert kinds["elementwise"] == 2  # the signs of the first layer's result and of the pooled one
