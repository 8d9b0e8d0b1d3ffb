"""Cases of networks that begin with floats, or with a pool."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.numerics import qonnx_operators
from tests.stages.packaging.level_net import BIT, MAC, Array, Case, Cases, Net, registering

INPUT_CASES: Cases = {}
case = registering(INPUT_CASES)


@case
def float_output_chain() -> Case:
    """y1 is y0 * k + b, every operation rounded on its own; y2 goes on with all the others."""
    net = Net((1, 10, 4, 3))
    rng = np.random.default_rng(3)
    sums = net.conv(net.quant(net.x, "a", 2, 1.0), "c", 40, bits=4, encoding="signed")

    def operand() -> Array:
        return (rng.normal(size=40) + 0.1).astype(np.float32)

    line = net.by(relax.op.multiply, sums, "k", operand())
    line = net.by(relax.op.add, line, "b", operand())
    y = net.by(relax.op.subtract, line, "s", operand())
    y = net.by(relax.op.divide, y, "d", operand())
    y = net.by(relax.op.multiply, y, "m", operand())
    y = net.by(relax.op.subtract, y, "r", operand(), reverse=True)
    y = net.by(relax.op.add, y, "one", 1.7)
    return Case(net.model(sums, line, net.op(relax.op.nn.relu(y), "relu")), MAC)


@case
def float_input_chain() -> Case:
    net = Net((1, 3, 5, 4))
    y = net.by(relax.op.multiply, net.x, "g", [1.3, -0.7, 2.1])
    y = net.by(relax.op.subtract, y, "b", [0.3, -0.7, 1.1])
    y = net.by(relax.op.divide, y, "d", 0.9)
    y = net.quantized(y, "q", 8, 2.0**-5)
    return Case(net.model(net.conv(y, "c", 9)), MAC, None, ("quantize", "multiply", "divide"))


def rounding(mode: str, x: Array) -> Case:
    """A float input quantized to 4 bits by a QONNX rounding mode."""
    net = Net((1, 3, 6, 7))
    y = net.quantized(net.x, "q", 4, 0.25, rounding=mode)
    return Case(net.model(net.conv(y, "d", 9, bits=2, encoding="signed")), MAC, x, ("quantize",))


@case
def bipolar_input() -> Case:
    net = Net((1, 35, 4, 5))
    y = net.by(relax.op.subtract, net.x, "b", 0.25)
    y = net.op(qonnx_operators.bipolar_quant(y, net.constant("half", 0.5)), "q")
    return Case(net.model(net.conv(y, "d", 9)), BIT, None, ("threshold", "pad_channels"))


@case
def input_thresholds() -> Case:
    net = Net((1, 5, 4, 5))
    table = np.sort(net.rng.normal(size=(5, 4)), axis=1)
    call = qonnx_operators.multi_threshold(
        net.x, net.constant("t", table), out_scale=1.0, out_bias=0.0, channel_axis=1
    )
    return Case(net.model(net.conv(net.op(call, "q"), "d", 9)), BIT, None, ("threshold",))


@case
def long_input_thresholds() -> Case:
    net = Net((1, 5, 4, 5))
    table = np.sort(net.rng.normal(size=(1, 20)), axis=1)
    call = qonnx_operators.multi_threshold(
        net.x, net.constant("t", table), out_scale=1.0, out_bias=0.0, channel_axis=1
    )
    return Case(net.model(net.conv(net.op(call, "q"), "d", 9)), MAC, None, ("threshold",))


def pooled(kind: str, kernel: int, stride: int, padding: Any) -> Case:
    """A pool behind the input, before or behind a quantizer, or an average."""
    net = Net((1, 40, 9, 7))
    x = net.quant(net.x, "a", 2, 0.5)
    window = (kernel, kernel), (stride, stride), padding
    if kind == "input":
        pool = net.op(relax.op.nn.max_pool2d(x, *window), "p")
        return Case(net.model(net.conv(pool, "c", 9)), BIT)
    y = net.conv(x, "c", 40)
    if kind == "sums":
        y = net.op(relax.op.nn.max_pool2d(y, *window), "p")
        y = net.quant(net.by(relax.op.multiply, y, "g", 0.3), "b", 2, 0.5)
        return Case(net.model(net.conv(y, "d", 9)), BIT)
    y = net.batch_norm(y, "bn", 8.0)
    if kind == "signs":
        y = net.op(qonnx_operators.bipolar_quant(y, net.constant("b", 1.0)), "b.of")
        y = net.op(relax.op.nn.max_pool2d(y, *window), "p")
        return Case(net.model(net.conv(y, "d", 9)), BIT, expects=("from_planes",))
    if kind == "levels":
        y = net.op(relax.op.nn.max_pool2d(net.quant(y, "b", 2, 0.5), *window), "p")
        return Case(net.model(net.conv(y, "d", 9)), BIT)
    y = net.quant(y, "b", 8, 0.125, signed=True)
    if kind == "average":
        y = net.op(relax.op.nn.avg_pool2d(y, *window, count_include_pad=True), "p")
    else:
        y = net.op(relax.op.mean(y, [2, 3], True), "p")
    return Case(net.model(net.by(relax.op.multiply, y, "g", 0.3)), expects=("sum_pool2d",))


@case
def max_pool_of_sums() -> Case:
    return pooled("sums", 3, 2, 1)


@case
def max_pool_of_levels() -> Case:
    return pooled("levels", 3, 1, (1, 0, 1, 1))


@case
def max_pool_of_signs() -> Case:
    return pooled("signs", 3, 2, (1, 0, 1, 1))


@case
def average_pool() -> Case:
    return pooled("average", 3, 2, 1)


@case
def stem_and_head() -> Case:
    """8-bit stem of three channels, mean over the image, dense head with a float bias."""
    net = Net((1, 3, 8, 8))
    y = net.conv(net.quant(net.x, "a", 8, 2.0**-5, signed=True), "c", 40, 3, 2, 4, "signed")
    y = net.quant(net.batch_norm(y, "bn", 8.0), "b", 8, 0.125)
    y = net.quant(net.op(relax.op.mean(y, [2, 3], True), "mean"), "q", 8, 2.0**-4)
    y = net.op(relax.op.reshape(y, (1, 40)), "flat")
    y = net.dense(y, "fc", 10, 4, "signed")
    return Case(net.model(net.by(relax.op.add, y, "bias", net.rng.normal(size=10))), MAC)
