"""Small networks that use every kernel form, with inputs that tell right from nearly so."""

from __future__ import annotations

import numpy as np
from tvm import relax

from stages.numerics import qonnx_operators
from stages.options import LegalizeOptions
from tests.stages.networks import residual_block
from tests.stages.packaging.input_cases import INPUT_CASES
from tests.stages.packaging.level_net import BIT, MAC, Case, Cases, Net, options, registering

CASES: Cases = dict(INPUT_CASES)
"""All cases, by name."""
case = registering(CASES)


def full_counters(channels: int) -> Case:
    """Every bit differs: levels 1 against weights -1, so that byte counters reach their limit."""
    net = Net((1, channels, 4, 3))
    weights = net.constant("w", np.full((33, channels, 3, 3), -1))
    weights = net.op(qonnx_operators.bipolar_quant(weights, net.constant("half", 1.0)), "wq")
    x = net.quant(net.x, "a", 1, 1.0)
    y = net.op(relax.op.nn.conv2d(x, weights, 1, 1), "c")
    return Case(net.model(y), BIT, np.full((1, channels, 4, 3), 2.0), ("packed_conv2d",))


@case
def counters_emptied_every_row() -> Case:
    return full_counters(160)


@case
def counters_emptied_within_a_row() -> Case:
    return full_counters(352)


# Channels in and out, kernel, stride, padding (top, left, bottom, right), height, width.
Geometry = tuple[int, int, int, int, tuple[int, int, int, int], int, int]


GEOMETRIES: tuple[Geometry, ...] = (
    (10, 48, 3, 1, (1, 1, 1, 1), 5, 6),
    (48, 10, 5, 2, (2, 1, 3, 0), 9, 4),
    (3, 32, 7, 2, (3, 3, 3, 3), 11, 3),
    (64, 33, 1, 1, (0, 0, 0, 0), 1, 1),
    (32, 32, 1, 2, (0, 0, 0, 0), 5, 5),
    (1, 7, 5, 1, (2, 2, 2, 2), 1, 9),
    (40, 5, 1, 1, (1, 0, 0, 2), 2, 3),
    (36, 64, 3, 1, (1, 1, 1, 1), 4, 4),
)


def geometry(shape: Geometry, algorithm: LegalizeOptions, encoding: str = "signed") -> Case:
    """Two convolutions, the first of the given geometry."""
    c, o, k, stride, padding, height, width = shape
    net = Net((1, c, height, width))
    x = net.quant(net.x, "a", 2, 0.5)
    weights = net.weights("c", (o, c, k, k), 2, encoding)
    y = net.op(relax.op.nn.conv2d(x, weights, stride, padding), "c")
    y = net.quant(net.batch_norm(y, "bn", 8.0), "b", 2, 0.5)
    return Case(net.model(net.conv(y, "d", 9, 3, 1, 1, "bipolar")), algorithm)


@case
def residual_a2w1() -> Case:
    return Case(residual_block(channels=48, size=7), BIT, expects=("saturate",))


@case
def residual_a2w2() -> Case:
    return Case(residual_block(2, 2, channels=48, size=7), MAC, expects=("saturate",))


@case
def residual_a3w3_signed() -> Case:
    return Case(residual_block(3, 3, channels=10, size=5, encoding="signed"), BIT)


@case
def residual_a1w1_unipolar() -> Case:
    return Case(residual_block(1, 1, channels=33, size=3, encoding="unipolar"), BIT)


@case
def ternary_levels_of_falling_channels() -> Case:
    """Two thresholds, flipped where the batch norm's gain is negative; read as planes and bytes.

    Weights of 0 and 1 have no negatives, with which channels could be turned instead.
    """
    net = Net((1, 40, 4, 5))
    y = net.conv(net.quant(net.x, "a", 2, 0.5), "c", 40, encoding="unipolar")
    y = net.quantized(net.batch_norm(y, "bn", 8.0), "t", 2, 0.5, narrow=True)
    outputs = net.conv(y, "d", 9), net.conv(y, "m", 9)
    mixed = options(every="bitserial", m="mac8")
    return Case(net.model(*outputs), mixed, None, ("threshold", "bitpack", "to_bytes"))


@case
def seven_thresholds_of_falling_channels() -> Case:
    net = Net((1, 40, 4, 5))
    y = net.conv(net.quant(net.x, "a", 1, 1.0), "c", 64, bits=3, encoding="unipolar")
    y = net.quant(net.batch_norm(y, "bn", 16.0), "t", 3, 0.25)
    return Case(net.model(net.conv(y, "d", 9)), BIT, None, ("threshold", "bitpack"))


@case
def eight_bits_rounded_down() -> Case:
    """255 thresholds are a line that is rounded."""
    net = Net((1, 40, 3, 4))
    y = net.batch_norm(net.conv(net.quant(net.x, "a", 2, 0.5), "c", 40), "bn", 8.0)
    y = net.quantized(y, "t", 8, 2.0**-5, rounding="FLOOR")
    return Case(net.model(net.conv(y, "d", 9)), MAC, None, ("requantize", "to_bytes"))


@case
def long_thresholds() -> Case:
    """200 thresholds on no line, so that each is compared, with sums that saturate or do not."""
    net = Net((1, 40, 3, 4))
    outputs = []
    for name, bits, spread in (("short", 2, 60), ("long", 8, 200000)):
        x = net.quant(net.x, f"{name}.a", bits, 2.0**-bits)
        sums = net.conv(x, f"{name}.c", 40, bits=8, encoding="signed")
        table = np.sort(net.rng.normal(size=(40, 200)) * spread * 2.0 ** -(bits + 7), axis=1)
        call = qonnx_operators.multi_threshold(
            sums, net.constant(f"{name}.t", table), out_scale=1.0, out_bias=0.0, channel_axis=1
        )
        outputs.append(net.conv(net.op(call, f"{name}.q"), f"{name}.d", 9))
    return Case(net.model(*outputs), MAC, None, ("threshold", "to_bytes"))


@case
def weights_that_no_byte_holds() -> Case:
    """Odd numbers up to 255 on both sides of 0, by activations that narrow lanes could add up."""
    net = Net((1, 40, 3, 4))
    sums = net.conv(net.quant(net.x, "a", 2, 0.25), "c", 40, bits=8)
    y = net.quant(net.by(relax.op.multiply, sums, "g", 0.3), "b", 8, 0.5)
    return Case(net.model(net.conv(y, "d", 9)), MAC, None, ("requantize",))


@case
def requantize_at_ties() -> Case:
    """y1 is y0 * gain + offset in 8 bits: ties, which a fused multiply-add would not see."""
    net = Net((1, 1, 4, 8))
    rng = np.random.default_rng(3)
    q = rng.choice([-7, -5, 3, 7], 48).astype(np.float32)
    gain = rng.uniform(3, 9, 48).astype(np.float32)
    product = (q * rng.integers(3, 14, 48)).astype(np.float32) * gain
    offset = -product + rng.integers(20, 200, 48).astype(np.float32) + np.float32(0.5)
    kernel = net.constant("w", q.reshape(48, 1, 1, 1))
    weights = net.quant(kernel, "wq", 4, 1.0, signed=True)
    sums = net.op(relax.op.nn.conv2d(net.quant(net.x, "a", 4, 1.0), weights), "c")
    y = net.by(relax.op.add, net.by(relax.op.multiply, sums, "gain", gain), "offset", offset)
    y = net.quant(y, "b", 8, 1.0)
    x = np.arange(32).reshape(1, 1, 4, 8) % 16
    return Case(net.model(sums, y), MAC, x, ("requantize", "dequantize"))


def perceptron(bits: int, encoding: str, algorithm: LegalizeOptions) -> Case:
    """Three dense layers."""
    net = Net((1, 100))
    x = net.quant(net.x, "a", bits, 0.5)
    for layer, outputs in enumerate((48, 33)):
        y = net.dense(x, f"fc{layer}", outputs, bits, encoding)
        y = net.by(relax.op.multiply, y, f"g{layer}", net.rng.choice([-0.25, 0.25, 0.5], outputs))
        y = net.by(relax.op.add, y, f"b{layer}", net.rng.integers(-3, 3, outputs) / 4)
        x = net.quant(y, f"q{layer}", bits, 0.5)
    return Case(net.model(net.dense(x, "last", 10, bits, encoding)), algorithm)


@case
def dense_bits() -> Case:
    return perceptron(1, "bipolar", BIT)


@case
def dense_bytes() -> Case:
    return perceptron(3, "signed", MAC)


@case
def image_into_dense() -> Case:
    net = Net((1, 10, 4, 3))
    y = net.conv(net.quant(net.x, "a", 2, 0.5), "c", 33)
    y = net.quant(net.batch_norm(y, "bn", 8.0), "b", 2, 0.5)
    y = net.op(relax.op.reshape(y, (1, 33 * 12)), "flat")
    return Case(net.model(net.dense(y, "fc", 10, 1, "bipolar")), BIT)


@case
def groups() -> Case:
    net = Net((1, 12, 5, 5))
    weights = net.weights("w", (24, 3, 3, 3), 3, "signed")
    x = net.quant(net.x, "a", 3, 0.5)
    return Case(net.model(net.op(relax.op.nn.conv2d(x, weights, 1, 1, groups=4), "g")), MAC)


@case
def outputs_of_every_kind() -> Case:
    """Sums, scaled sums, a quantized input and one value twice, all from shared composites."""
    net = Net((1, 12, 5, 5))
    x = net.quant(net.x, "a", 3, 0.5)
    sums = net.conv(x, "c", 9)
    scaled = net.by(relax.op.multiply, sums, "g", 0.3)
    last = net.conv(net.quant(scaled, "q", 2, 0.5), "d", 9)
    return Case(net.model(sums, scaled, x, last, sums), BIT)


def forked(bits: int, first: tuple[int, str], second: tuple[int, str]) -> Case:
    """One activation, read by products with weights of two precisions: planes and sums of both."""
    net = Net((1, 40, 5, 4))
    y = net.conv(net.quant(net.x, "a", bits, 0.5), "c", 40, bits=first[0], encoding=first[1])
    y = net.quant(net.batch_norm(y, "bn", 8.0), "b", bits, 0.5)
    one = net.conv(y, "one", 9, 3, 1, first[0], first[1])
    other = net.conv(y, "other", 35, 1, 1, second[0], second[1])
    return Case(net.model(one, other), BIT, None, ("bitpack",))


@case
def digits_beside_ternary_digits() -> Case:
    return forked(2, (1, "bipolar"), (2, "bipolar"))


@case
def chosen_planes_beside_digits_and_sums() -> Case:
    return forked(3, (1, "unipolar"), (3, "bipolar"))


@case
def halos_of_complements() -> Case:
    """Two paddings of one edge, whose planes hold ones at level 0."""
    net = Net((1, 33, 6, 5))
    x = net.quant(net.x, "a", 2, 0.5, zero_point=1.5)
    y = net.quant(net.conv(x, "c", 40, 3, 1, 2, "bipolar"), "b", 2, 16.0, zero_point=1.5)
    return Case(net.model(net.conv(y, "d", 9, 5, 1, 2), net.conv(y, "e", 9, 3, 2, 2)), BIT)
