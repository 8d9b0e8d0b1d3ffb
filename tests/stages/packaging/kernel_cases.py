"""Small networks that use every kernel form, with inputs that tell right from nearly so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import shape_of
from stages.kinds import Model
from stages.layer_options import Algorithm, LayerAlgorithm
from stages.numerics import qonnx_operators
from stages.options import LegalizeOptions
from tests.stages.networks import SourceNet, residual_block

Array = np.ndarray[Any, Any]


def options(**algorithms: Algorithm) -> LegalizeOptions:
    """Algorithms by layer name; `every` stands for all others."""
    layers = [LayerAlgorithm(match="*", algorithm=algorithms.pop("every"))]
    layers += [LayerAlgorithm(match=name, algorithm=a) for name, a in algorithms.items()]
    return LegalizeOptions(layers=tuple(layers))


BIT, MAC = options(every="bitserial"), options(every="mac8")


@dataclass(frozen=True)
class Case:
    """A model, its input (random where None), and packed operators that must occur in it."""

    model: Model
    options: LegalizeOptions = field(default_factory=LegalizeOptions)
    x: Array | None = None
    expects: tuple[str, ...] = ()

    def inputs(self) -> dict[str, Array]:
        """The input, by name."""
        if self.x is not None:
            return {"x": self.x.astype(np.float32)}
        shape = shape_of(self.model.module["main"].params[0].ty)
        return {"x": (np.random.default_rng(5).normal(size=shape) * 2).astype(np.float32)}


class Net(SourceNet):
    """A source network with the operators that the cases need."""

    def op(self, call: Any, name: str) -> Any:
        return self.builder.emit(call, name)

    def by(
        self, op: Callable[..., Any], x: Any, name: str, value: Any, reverse: bool = False
    ) -> Any:
        """An operator with a constant: one value, or one per channel."""
        array = np.asarray(value, np.float32)
        if array.ndim == 1 and len(x.ty.shape) == 4:
            array = array.reshape(1, -1, 1, 1)
        constant = self.constant(name, array)
        return self.op(op(constant, x) if reverse else op(x, constant), f"{name}.of")

    def quantized(self, x: Any, name: str, bits: int, scale: float, **attrs: Any) -> Any:
        """A Quant with any rounding and range."""
        operands = self.constant(f"{name}.s", scale), self.constant(f"{name}.z", 0.0)
        kind = {"signed": True, "narrow": False, "rounding": "ROUND", **attrs}
        return self.op(qonnx_operators.quant(x, *operands, bits=bits, **kind), name)

    def dense(self, x: Any, name: str, outputs: int, bits: int, encoding: str) -> Any:
        shape = (int(x.ty.shape[1]), outputs)
        return self.op(relax.op.matmul(x, self.weights(name, shape, bits, encoding)), name)


CASES: dict[str, Callable[[], Case]] = {}


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    CASES[build.__name__] = build
    return build


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
    """8-bit stem of three channels, mean over the picture, dense head with a float bias."""
    net = Net((1, 3, 8, 8))
    y = net.conv(net.quant(net.x, "a", 8, 2.0**-5, signed=True), "c", 40, 3, 2, 4, "signed")
    y = net.quant(net.batch_norm(y, "bn", 8.0), "b", 8, 0.125)
    y = net.quant(net.op(relax.op.mean(y, [2, 3], True), "mean"), "q", 8, 2.0**-4)
    y = net.op(relax.op.reshape(y, (1, 40)), "flat")
    y = net.dense(y, "fc", 10, 4, "signed")
    return Case(net.model(net.by(relax.op.add, y, "bias", net.rng.normal(size=10))), MAC)


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
def picture_into_dense() -> Case:
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
    x = net.quant(net.x, "a", 2, 0.5, zp=1.5)
    y = net.quant(net.conv(x, "c", 40, 3, 1, 2, "bipolar"), "b", 2, 16.0, zp=1.5)
    return Case(net.model(net.conv(y, "d", 9, 5, 1, 2), net.conv(y, "e", 9, 3, 2, 2)), BIT)
