"""Every operator of the dialect in a network of any size."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import float_linear as halves
from stages.dialect import integer
from stages.dialect.elementwise import ELEMENTWISE, WHOLE
from stages.dialect.names import PREFIX
from stages.dialect.padding import NO_PADDING
from stages.graph.collecting import collect
from stages.numerics import bipolar, qdq_pointwise_conv, qlinear, qonnx_operators, rescale
from stages.numerics import onnx_pointwise_conv as ties
from stages.numerics.onnx_resize import interpolate
from stages.numerics.onnx_sums import ORDERS, sum_in_order
from stages.numerics.quantization import Quantization
from tests.stages.dialect.examples import INTEGER
from tests.stages.packaging.sized import TARGETS, Row, Sized, partner

op = relax.op
NARROW = re.compile("u?int[1-7]|bfloat16")
"""Types that C has not."""
EVERY = len(TARGETS)
"""Turns in which the targets have all sizes, each of them one third."""
ALIKE, DEAR = 2 * EVERY, ("power", "center_sample")
"""Turns of operators that share their loops or kernels with others, such as elementwise ones; those
of them that LLVM takes long for have every second of these."""


def example(name: str) -> Row:
    """The example of an operator, with whatever has the last axis of its data made as long."""

    def build(sized: Sized, key: str, size: int) -> Any:
        call = INTEGER[name]
        shape = call.operands[0][0].shape
        own = shape[-1] if shape else 0
        operands = [(_stretched(v, own, size), _stored(d)) for v, d in call.operands]
        data, *others = operands
        variables = [sized.input(key, *data)]
        variables += [sized.tensor(f"{key}.{i}", *o) for i, o in enumerate(others)]
        return sized.emit(call.build(*variables, **call.attrs), f"{key}.y")

    is_alike = PREFIX + name in ELEMENTWISE and not WHOLE.get(PREFIX + name)
    turns = ALIKE * (1 + (name in DEAR)) if is_alike else EVERY
    return Row((name,), build, turns)


def _stored(dtype: str) -> str:
    """A type that a package can be given."""
    return "uint8" if NARROW.fullmatch(dtype) else dtype


def _stretched(value: Any, own: int, size: int) -> Any:
    if not own:  # an operator of numbers takes them by element, too
        return np.full(size, value)
    has_axis = value.ndim and value.shape[-1] == own
    return np.take(value, np.arange(size) % own, axis=-1) if has_axis else value


def convolved(sized: Sized, key: str, size: int) -> Any:
    x = sized.bytes(key, 1, 2, 3, size)
    return sized.net.conv(x, key, partner(size), kernel=1)


def dilated(sized: Sized, key: str, size: int) -> Any:
    x = sized.bytes(key, 1, 1, 3, size)
    attrs = {"window": (1, 2), "dilation": [1, 2], "padding": [0] * 4}
    return sized.net.conv(x, key, partner(size), **attrs)


def depthwise(sized: Sized, key: str, size: int) -> Any:
    x, least = sized.bytes(key, 1, 3, 3, size), sized.tensor(f"{key}.least", np.array(3, np.int8))
    x = sized.emit(op.maximum(x, least), f"{key}.bounded")
    return sized.net.conv(x, key, size, groups=size, zero_point=0)


def transformed(sized: Sized, key: str, size: int) -> Any:
    return sized.net.conv(sized.bytes(key, 1, 5, 6, 8), key, size, limit=9)


def pooled(sized: Sized, key: str, size: int) -> Any:
    x = sized.bytes(key, 1, 1, 3, size)
    attrs = {"kernel": [1, 2], "strides": [1, 1], "padding": [0, 1, 0, 0]}
    return sized.emit(integer.max_pool2d(x, **attrs), key)


def dense(sized: Sized, key: str, size: int, dtype: str = "int8") -> Any:
    x = sized.bytes(key, 1, size)
    if dtype != "int8":
        x = sized.emit(op.astype(x, dtype), f"{key}.wide")
    weight = sized.rng.integers(-128, 128, (partner(size), size)).astype(np.int8)
    points = {"data_zero_point": 1, "weight_zero_point": 0}
    sums = sized.emit(integer.dense(x, sized.tensor(f"{key}.w", weight), **points), key)
    return sized.net.requantize(sums, key) if dtype == "int8" else sums


def wide_dense(sized: Sized, key: str, size: int) -> Any:
    return dense(sized, key, size, "int16")


def batched(sized: Sized, key: str, size: int) -> Any:
    a, b = sized.bytes(key, 1, 3, size), sized.bytes(f"{key}.b", 1, size, partner(size))
    points = {"data_zero_point": -5, "weight_zero_point": 7}
    return sized.net.requantize(qlinear.product(sized.net.builder, key, a, b, None, **points), key)


def collected(sized: Sized, key: str, size: int) -> Any:
    """One of two images, of whose values both are read together."""
    sized.attrs["pictures"] = 2
    x = sized.net.builder.input(key, (1, size, 64), "int8")
    sized.inputs[key] = sized.rng.integers(-128, 128, (2, size, 64)).astype(np.int8)
    values = sized.rng.integers(-128, 128, 256).astype(np.int8)
    x = sized.emit(rescale.table(x, sized.tensor(f"{key}.values", values)), f"{key}.table")
    return sized.emit(op.max(sized.emit(collect(x, pictures=2), f"{key}.both"), [1]), key)


def near_ties(sized: Sized, key: str, size: int) -> Any:
    """Sums of which every 64th is a tie."""
    data = Quantization.of_type(0.1, 3, "int8")
    out = Quantization.of_type(0.003 * 64, -5, "int8")
    ws = np.full(partner(size), 0.03, np.float32)
    weight = sized.rng.integers(-127, 128, (partner(size), size)).astype(np.int8)
    bias = sized.rng.integers(-999, 999, len(weight)).astype(np.float32) * np.float32(0.003)
    x, tensor = sized.bytes(key, 1, 1, 3, size), sized.tensor(f"{key}.w", weight[:, None, None])
    attrs: dict[str, Any] = {"strides": [1, 2], "padding": NO_PADDING, "dilation": [1, 1]}
    points = {"data_zero_point": 3, "weight_zero_point": 0}
    sums = sized.emit(integer.conv2d(x, tensor, groups=1, **attrs, **points), f"{key}.sums")
    operands = qdq_pointwise_conv.operands_of(weight, ws, bias, data, out, 128)
    tensors = [sized.tensor(f"{key}.{name}", value) for name, value in operands.items()]
    kept = qdq_pointwise_conv.attributes_of(data, out, 128)
    return sized.emit(ties.near_ties(sums, x, tensor, *tensors, strides=[1, 2], **kept), key)


def bits(sized: Sized, key: str, size: int) -> Any:
    zero = sized.tensor(f"{key}.zero", np.array(0, np.int8))
    x = sized.emit(op.greater_equal(sized.bytes(key, 2, size), zero), f"{key}.signs")
    x = sized.emit(op.astype(x, "uint1"), f"{key}.bits")
    return sized.emit(bipolar.from_bits(x, low=-1, high=1, dtype="float32"), key)


def rounded_to(half: halves.HalfPrecision) -> Row:
    """There and back."""
    to, back = halves.HALF_PRECISION_CASTS[half]

    def build(sized: Sized, key: str, size: int) -> Any:
        narrow = sized.emit(to(sized.reals(key, 2, size)), f"{key}.half")
        return sized.emit(back(narrow), key)

    return Row((f"to_{half}", f"from_{half}"), build, ALIKE)


def interpolated(sized: Sized, key: str, size: int) -> Any:
    """Between the last axis's neighbours and between three rows."""
    sides = [sized.reals(f"{key}.{side}", 1, 3, size) for side in ("left", "right")]
    places = np.array([[0, 0, 1, 2], [0, 1, 2, 2]], np.int32)
    idle = np.zeros((2, 1), np.int32), np.zeros((2, 1), np.float32)
    weights = [sized.rng.random((2, n)).astype(np.float32) for n in (size, 4)]
    others = (weights[0], places, weights[1], *idle)
    tensors = [sized.tensor(f"{key}.{i}", other) for i, other in enumerate(others)]
    return sized.emit(interpolate(*sides, *tensors, axes=[2, 1]), key)


def added_in(order: str) -> Row:
    """Rows of values added up in an order of ONNX Runtime's."""

    def build(sized: Sized, key: str, size: int) -> Any:
        x = sized.reals(key, 3, size, 1 if "vector" in order else 5)
        return sized.emit(sum_in_order(x, order=order), f"{key}.sums")

    return Row(("sum_in_order",), build, ALIKE)


def float_convolved(sized: Sized, key: str, size: int) -> Any:
    x = sized.input(key, sized.whole(1, size, 1, 3))
    weight = sized.tensor(f"{key}.w", sized.whole(partner(size), size, 1, 1))
    return sized.emit(op.nn.conv2d(x, weight), key)


def float_dense(sized: Sized, key: str, size: int) -> Any:
    weight = sized.tensor(f"{key}.w", sized.whole(size, partner(size)))
    return sized.emit(op.matmul(sized.input(key, sized.whole(3, size)), weight), key)


def float_batched(sized: Sized, key: str, size: int) -> Any:
    a = sized.input(key, sized.whole(1, 3, size))
    b = sized.input(f"{key}.b", sized.whole(1, size, partner(size)))
    return sized.emit(op.matmul(a, b), key)


def counted(sized: Sized, key: str, size: int) -> Any:
    net = sized.net
    y = net.quant(sized.reals(key, 1, size, 1, 3), f"{key}.a", 2, 0.5)
    y = net.batch_norm(net.conv(y, f"{key}.c", partner(size), 1), f"{key}.bn", 8.0)
    y = net.op(qonnx_operators.bipolar_quant(y, net.constant(f"{key}.one", 1.0)), f"{key}.signs")
    y = net.op(op.nn.max_pool2d(y, (1, 2)), f"{key}.pool")
    return net.conv(y, f"{key}.last", 9, 1)


def looked_up(sized: Sized, key: str, size: int) -> Any:
    net = sized.net
    y = net.quant(sized.reals(key, 1, size, 1, 3), f"{key}.a", 2, 0.5)
    y = net.conv(y, f"{key}.c", partner(size), 1)
    table = net.constant(f"{key}.t", np.sort(net.rng.normal(size=(partner(size), 4)) * 3, axis=1))
    attrs = {"out_scale": 1.0, "out_bias": 0.0, "channel_axis": 1}
    return net.op(qonnx_operators.multi_threshold(y, table, **attrs), f"{key}.levels")


def summed(sized: Sized, key: str, size: int) -> Any:
    """A residual sum of bytes, and an average."""
    net, kind = sized.net, {"signed": True}
    x = net.quant(sized.reals(key, 1, size, 1, 3), f"{key}.a", 8, 2.0**-5, **kind)
    y = net.conv(x, f"{key}.c", partner(size), 1, bits=3, encoding="signed")
    x = net.quant(net.batch_norm(y, f"{key}.bn", 8.0), f"{key}.b", 8, 0.125, **kind)
    y = net.quant(net.batch_norm(x, f"{key}.bn2", 8.0), f"{key}.e", 8, 0.125, **kind)
    y = net.quant(net.op(op.add(x, y), f"{key}.sum"), f"{key}.f", 8, 0.125, **kind)
    y = net.op(op.nn.avg_pool2d(y, (1, 2), count_include_pad=True), f"{key}.pool")
    return net.by(op.multiply, y, f"{key}.g", 0.3)


def perceptron(sized: Sized, key: str, size: int) -> Any:
    y = sized.net.quant(sized.reals(key, 1, size), f"{key}.a", 2, 0.5)
    return sized.net.dense(y, f"{key}.c", partner(size), 1, "bipolar")


def resummed(sized: Sized, key: str, size: int) -> Any:
    net = sized.net
    weight = net.constant(f"{key}.w", net.rng.normal(size=(partner(size), size, 1, 1)))
    y = net.op(op.nn.conv2d(sized.reals(key, 1, size, 1, 3), weight), f"{key}.f")
    return net.quant(y, f"{key}.a", 3, 0.5)


PRODUCTS = {
    "convolved": Row(("conv2d", "packed_conv2d", "to_bytes"), convolved, EVERY),
    "dilated": Row(("direct_conv2d",), dilated, EVERY),
    "depthwise": Row(("packed_depthwise",), depthwise, EVERY),
    "transformed": Row(("to_tiles", "packed_winograd"), transformed, EVERY, "winograd"),
    "pooled": Row(("max_pool2d",), pooled, EVERY),
    "dense": Row(("dense",), dense, ALIKE),
    "wide_dense": Row(("direct_dense",), wide_dense, ALIKE),
    "near_ties": Row(("near_ties",), near_ties, EVERY),
    "batched": Row(("batch_dense", "pack_matrices"), batched, EVERY),
    "bits": Row(("from_bits",), bits, ALIKE),
    "rounded": rounded_to("bfloat16"),
    "halved": rounded_to("float16"),
    "interpolated": Row(("interpolate",), interpolated, ALIKE),
    **{f"added_{order.replace(' ', '_')}": added_in(order) for order in ORDERS},
    "float_convolved": Row(("float_conv2d",), float_convolved, EVERY),
    "float_dense": Row(("float_dense",), float_dense, ALIKE),
    "float_batched": Row(("float_batch_dense",), float_batched, EVERY),
}
COLLECTED = {"collected": Row(("collect",), collected, EVERY)}
_OF_LEVELS = ("quant", "quantize", "dequantize", "take_channels", "pad_channels")
LEVELS = {
    "counted": Row(
        (
            *("bipolar_quant", "batch_norm", "bitserial_conv2d", "bitpack", "from_planes"),
            *("threshold", *_OF_LEVELS),
        ),
        counted, EVERY, "bitserial", is_integer=False,
    ),
    "looked_up": Row(
        ("multi_threshold", "lookup_conv2d", "to_tables"),
        looked_up, EVERY, "lookup", is_integer=False,
    ),
    "summed": Row(
        ("add", "saturate", "requantize", "sum_pool2d", "from_bytes"),
        summed, EVERY, "mac8", is_integer=False,
    ),
    "dense_counted": Row(
        ("bitserial_dense",), perceptron, ALIKE, "bitserial", is_integer=False
    ),
    "dense_looked_up": Row(("lookup_dense",), perceptron, ALIKE, "lookup", is_integer=False),
    "resummed": Row(("resum",), resummed, EVERY, "mac8", is_integer=False),
}  # fmt: skip
_OTHERS = {**PRODUCTS, **COLLECTED, **LEVELS}
_BUILT = {operator for row in _OTHERS.values() for operator in row.operators}
SINGLE = {name: example(name) for name in INTEGER if name not in _BUILT}
"""Operators whose kernels are their own expressions."""
ROWS = {**SINGLE, **_OTHERS}
"""By name."""
