"""Quantizing is exact: the integer form computes what the unfolded float32 graph computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from stages import quantizing
from stages.dialect import integer
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of
from stages.graph.bindings import bindings_of, outputs_of, remap
from stages.graph.builder import ModelBuilder
from stages.kinds import Model
from stages.numerics import qonnx_operators
from tests.stages.networks import SourceNet
from tests.stages.test_quantizing_chains import (
    CHANNELS,
    Link,
    apply,
    assert_exact,
    batch_norm,
    operators,
)

Array = np.ndarray[Any, Any]


# -- whole layers --------------------------------------------------------------------------------


def residual(zero_point: float) -> tuple[SourceNet, Any]:
    net = SourceNet((1, 6, 7, 5))
    start = net.quant(net.x, "start", 2, 0.5)
    left = net.quant(net.conv(start, "a", 8), "left", 8, 0.5, signed=True)
    right = net.quant(net.conv(start, "b", 8), "right", 8, 0.5, zero_point=zero_point)
    return net, net.op(relax.op.add(left, right), "total")


@pytest.mark.parametrize("zero_point", [0.0, 100.0])
def test_a_residual_sum_stays_integer(zero_point: float) -> None:
    net, total = residual(zero_point)
    low = net.quant(total, "low", 2, 1.0)
    wide = net.quant(total, "wide", 8, 0.5, signed=True)
    result = assert_exact(net.model(low, wide, total))
    assert operators(result).count("add") == 1


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_residual_sum_at_its_ends(sign: float) -> None:
    """Thresholds are searched for up to the last sum that two levels can have."""
    net = SourceNet((1, 4, 3, 3))
    left = net.quant(net.x, "left", 3, 1.0, signed=True)
    right = net.quant(net.x, "right", 4, 1.0, signed=True)
    total = net.op(relax.op.add(left, right), "total")
    outputs = net.quant(total, "wide", 8, 1.0, signed=True), net.quant(total, "low", 3, 2.0)
    ends = np.full((1, 4, 3, 3), sign * 99, np.float32)
    assert_exact(net.model(*outputs), {"x": ends})


@pytest.mark.parametrize("bias", [-40.0, 40.0])
def test_padding_outside_the_levels(bias: float) -> None:
    """At the border a sum may lie outside what the levels alone can give: 0 is none of them."""
    net = SourceNet((1, 2, 4, 4))
    data = net.op(
        qonnx_operators.multi_threshold(
            net.x,
            net.constant("t", [[-1.0, 0.0, 1.0]]),
            out_scale=1.0,
            out_bias=bias,
            channel_axis=1,
        ),
        "data",
    )
    value = net.conv(data, "conv", 3, bits=2, encoding="unipolar")
    assert_exact(net.model(net.quant(value, "q", 8, 2.0, signed=True)))


def pooled(links: list[Link], padding: int = 0) -> Model:
    net = SourceNet((1, 2, 8, 8))
    data = net.quant(net.x, "data", 4, 1.0, signed=True)
    value = net.conv(data, "conv", CHANNELS, 1, bits=3, encoding="signed")
    for number, link in enumerate(links[:1]):
        value = apply(net, value, link, f"before{number}")
    pad = (padding,) * 4
    value = net.op(relax.op.nn.max_pool2d(value, (3, 3), (2, 2), pad), "pool")
    for number, link in enumerate(links[1:]):
        value = apply(net, value, link, f"after{number}")
    return net.model(net.quant(value, "q", 3, 1.5, signed=True))


@pytest.mark.parametrize("padding", [0, 1])
def test_max_pooling_moves_behind_the_quantizer(padding: int) -> None:
    result = assert_exact(pooled([batch_norm(0.7, 1, 2, 3), batch_norm(1.3, 0, 1, 2)], padding))
    names = operators(result)
    assert names.index("max_pool2d") == names.index("threshold") + 1


def test_a_constant_channel_may_be_pooled() -> None:
    gains = np.array([1, 0, 2, 0.5, 0], np.float32)
    assert_exact(pooled([Link("multiply", (gains,))]))


def test_pooling_a_quantized_tensor_and_what_follows_it() -> None:
    net = SourceNet((1, 3, 9, 9))
    data = net.quant(net.x, "data", 3, 0.5, signed=True)
    doubled = net.op(relax.op.multiply(data, net.constant("two", 2.0)), "doubled")
    value = net.op(relax.op.nn.max_pool2d(doubled, (3, 3), 2, 1), "pool")
    assert_exact(net.model(net.conv(value, "conv", 4), value))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("padding", [0, 1])
def test_average_pooling(signed: bool, padding: int) -> None:
    net = SourceNet((1, 3, 8, 8))
    data = net.quant(net.x, "data", 3, 0.5, signed=signed)
    pad = (padding,) * 4
    value = net.op(
        relax.op.nn.avg_pool2d(data, (4, 2), (2, 2), pad, count_include_pad=True), "pool"
    )
    result = assert_exact(net.model(net.quant(value, "q", 3, 0.25, signed=signed), value))
    assert operators(result).count("sum_pool2d") == 1


@pytest.mark.parametrize("keepdims", [False, True])
def test_a_mean_before_a_matrix_product(keepdims: bool) -> None:
    net = SourceNet((1, 8, 4, 4))
    data = net.quant(net.x, "data", 3, 0.5)
    value = net.op(relax.op.mean(data, [2, 3], keepdims), "mean")
    value = net.quant(value, "q", 4, 0.125)
    value = net.flatten(value) if keepdims else value
    assert_exact(net.model(net.matmul(value, "fc", 7)))


# -- shapes --------------------------------------------------------------------------------------


def flattened(order: str) -> Model:
    net = SourceNet((1, 5, 3, 2))
    value = net.quant(net.x, "data", 3, 0.5, signed=True)
    for step in order.split():
        if step == "flatten":
            value = net.flatten(value)
        elif step == "relu":
            value = net.op(relax.op.nn.relu(value), "relu")
        elif step == "double":
            value = net.op(relax.op.multiply(value, net.constant("two", 2.0)), "double")
        elif step == "unflatten":
            value = net.op(relax.op.reshape(value, (1, 5, 3, 2)), "unflat")
        elif step == "quant":
            value = net.quant(value, "q", 2, 1.0)
        elif step == "matmul":
            value = net.matmul(value, "fc", 6)
        elif step == "conv":
            value = net.conv(value, "conv", 5)
    return net.model(value)


@pytest.mark.parametrize(
    "order",
    [
        "flatten matmul",
        "flatten matmul quant matmul",
        "flatten quant matmul",
        "flatten relu quant matmul",
        "flatten double matmul",
        "conv flatten quant matmul",
        "quant flatten",
        "flatten",
        "conv flatten",
        "flatten quant",
        "flatten unflatten conv",
    ],
)
def test_flattening_counts_in_nchw_order(order: str) -> None:
    """The map stays NHWC; the weights of what reads it are permuted instead."""
    assert_exact(flattened(order))


@pytest.mark.parametrize("shape", [(), (1,), (10,), (1, 10)])
@pytest.mark.parametrize("features", [24, 10])
def test_scales_of_matrix_weights(shape: tuple[int, ...], features: int) -> None:
    """A square matrix must not hide along which axis its scales run."""
    net = SourceNet((1, features))
    data = net.quant(net.x, "data", 2, 0.5)
    weight = net.constant("w", net.rng.normal(size=(features, 10)))
    scale = net.constant("s", 2.0 ** net.rng.integers(-3, 2, shape))
    quantized = net.op(
        qonnx_operators.quant(
            weight, scale, net.constant("z", 0), bits=3, signed=True, narrow=True, rounding="ROUND"
        ),
        "wq",
    )
    assert_exact(net.model(net.op(relax.op.matmul(data, quantized), "fc")))


def test_transposed_weights_keep_their_scales() -> None:
    """Brevitas exports Linear as Quant [O, K], Transpose, MatMul."""
    net = SourceNet((1, 10))
    data = net.quant(net.x, "data", 2, 0.5)
    weight = net.constant("w", net.rng.normal(size=(10, 10)))
    scale = net.constant("s", 2.0 ** net.rng.integers(-3, 2, (10, 1)))
    quantized = net.op(
        qonnx_operators.quant(
            weight, scale, net.constant("z", 0), bits=3, signed=True, narrow=True, rounding="ROUND"
        ),
        "wq",
    )
    transposed = net.op(relax.op.permute_dims(quantized), "wt")
    assert_exact(net.model(net.op(relax.op.matmul(data, transposed), "fc")))


def test_an_affine_view_of_levels_is_absorbed() -> None:
    """FINN writes a bipolar tensor as 2 * threshold - 1; two layers may see two views."""
    net = SourceNet((1, 4, 6, 6))
    data = net.quant(net.x, "data", 2, 1.0)
    doubled = net.op(relax.op.multiply(data, net.constant("two", 2.0)), "doubled")
    odd = net.op(relax.op.subtract(doubled, net.constant("three", 3.0)), "odd")
    negative = net.op(relax.op.multiply(odd, net.constant("minus", -0.5)), "negative")
    outputs = [net.conv(x, f"conv{i}", 3) for i, x in enumerate((data, odd, negative))]
    result = assert_exact(net.model(*outputs))
    points = [
        attributes(b.value)["data_zero_point"].number
        for b in bindings_of(result.module["main"])
        if is_op(b.value, "relax.qnn.conv2d")
    ]
    assert points == [0, 1.5, 1.5]


# -- housekeeping --------------------------------------------------------------------------------


def test_dead_layers_are_dropped() -> None:
    net = SourceNet((1, 4, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5)
    net.op(relax.op.sign(net.conv(data, "dead", 4)), "unsupported")
    result = assert_exact(net.model(net.conv(data, "alive", 3)))
    assert operators(result).count("conv2d") == 1


def test_layers_keep_their_names() -> None:
    net = SourceNet((1, 4, 6, 6))
    value = net.quant(net.conv(net.quant(net.x, "data", 2, 0.5), "layer1.conv", 3), "act", 2, 0.5)
    names = {b.var.name for b in bindings_of(quantizing.run(model=net.model(value)).module["main"])}
    assert {"data", "layer1.conv", "act"} <= names


def test_check_finds_integers_of_floats() -> None:
    net = SourceNet((1, 4, 6, 6))
    data = net.quant(net.x, "data", 2, 0.5)
    value = net.quant(net.conv(data, "conv", 3), "act", 2, 0.5)
    good = quantizing.run(model=net.model(value))
    quantizing.check(good)
    with pytest.raises(AssertionError):
        quantizing.check(truncated(good))


def truncated(model: Model) -> Model:
    """The model with its output made levels by no quantizer."""
    builder = ModelBuilder()
    mapping: dict[Any, Any] = {}
    main = model.module["main"]
    for number, p in enumerate(main.params):
        shape = shape_of(p.ty)
        if number < int(main.attrs["num_input"]):
            mapping[p] = builder.input(str(p.name), shape, dtype_of(p.ty))
        else:
            mapping[p] = builder.tensor(str(p.name), model.params[p.name], dtype_of(p.ty))
    for b in bindings_of(main):
        mapping[b.var] = builder.emit(remap(b.value, mapping), str(b.var.name))
    last = mapping[outputs_of(main)[0]]
    one = builder.tensor("one", np.ones(1, np.float32))
    again = builder.emit(relax.op.astype(last, "uint8"), "again")
    real = builder.emit(integer.dequantize(again, one, zero_point=0), "real")
    return builder.model([real], ["y"])
