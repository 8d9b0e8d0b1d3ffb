"""BMXNet's binary layers (hpi-xnor/BMXNet, `smd_hpi/src`): 1-bit weights and activations.

A value is 1 where it is at least 0, else -1. A layer's result is not the product of signs but what
its kernel counts, the positions where bits agree: `(K + product) / 2` of K positions, as float32.
Positions in a convolution's padding hold 0, which counts as 1.

The converted weights of a file hold bits, the lowest first, in words of 32 or 64 bits that it calls
float32 or float64. A convolution's words run along rows [O, C * H * W]; those of a fully connected
layer stand for 32 or 64 inputs of one output, and run [K / bits, O] (`get_binary_col`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import integer
from stages.dialect.zero_point import BIPOLAR
from stages.importing.mxnet.mxnet_builder import MxnetBuilder, Values, real
from stages.importing.mxnet.mxnet_windows import convolve, windows_of
from stages.importing.mxnet.quantized import flattened
from stages.importing.mxnet.symbol import Node
from stages.importing.relax_builder import value_shape
from stages.importing.unsupported import UnsupportedError

Array = np.ndarray[Any, Any]


def activation(builder: MxnetBuilder, node: Node) -> Values:
    """QActivation: signs, or nothing at all where the layer after it takes them itself."""
    if node.attributes.flag("backward_only"):
        return [builder.read_at(node, 0)]
    if node.attributes.integer("act_bit", 1) != 1:
        raise UnsupportedError("has act_bit above 1; 1-bit activations are accepted")
    data = builder.read_at(node, 0)
    shape = value_shape(data)
    bits = _bits(builder, builder.emit(relax.op.reshape(data, (*shape, 1)), f"{node.name}.last"),
        node.name)  # fmt: skip
    scale = builder.held(np.array([2], np.float32), f"{node.name}.step")
    doubled = builder.emit(integer.dequantize(bits, scale, zero_point=0), f"{node.name}.doubled")
    one = builder.held(real(1), f"{node.name}.one")
    signs = builder.emit(relax.op.subtract(doubled, one), f"{node.name}.signs")
    return [builder.emit(relax.op.reshape(signs, shape), node.name)]


def convolution(builder: MxnetBuilder, node: Node) -> Values:
    """QConvolution: NCHW in and out."""
    _accept(node)
    channels = builder.image(node)[1]
    if node.attributes.integer("num_group", 1) != 1:
        raise UnsupportedError("has several groups; one is accepted")
    windows, outputs = windows_of(node.attributes), node.attributes.integer("num_filter")
    shape = (outputs, channels, *windows.kernel)
    weight = _row_bits(builder.constant_at(node, 1), shape, node.attributes)
    bits = _bits(builder, builder.to_nhwc(builder.read_at(node, 0), node.name), node.name)
    stored = builder.parameter(
        f"{node.name}.weight", np.ascontiguousarray(weight.transpose(0, 2, 3, 1)), "uint1"
    )
    product = convolve(
        builder, bits, stored, windows, 1, f"{node.name}.conv2d", BIPOLAR, padded_with=1
    )
    counted = _counts(builder, node, product, int(np.prod(shape[1:])))
    return [builder.to_nchw(_with_bias(builder, node, counted, outputs), node.name)]


def fully_connected(builder: MxnetBuilder, node: Node) -> Values:
    """QFullyConnected: [N, ...] to [N, O]."""
    _accept(node)
    data, outputs = flattened(builder, node), node.attributes.integer("num_hidden")
    depth = value_shape(data)[1]
    weight = _column_bits(builder.constant_at(node, 1), (outputs, depth), node.attributes)
    bits = _bits(builder, data, node.name)
    stored = builder.parameter(f"{node.name}.weight", weight, "uint1")
    call = integer.dense(bits, stored, data_zero_point=BIPOLAR, weight_zero_point=BIPOLAR)
    product = builder.emit(call, f"{node.name}.dense")
    return [_with_bias(builder, node, _counts(builder, node, product, depth), outputs)]


def _accept(node: Node) -> None:
    attributes = node.attributes
    bits = attributes.integer("act_bit", 1), attributes.integer("weight_bit", 1)
    if bits != (1, 1):
        raise UnsupportedError(
            f"has act_bit {bits[0]} and weight_bit {bits[1]}; 1 and 1 are accepted"
        )
    if attributes.text("scaling_mode", "none") not in ("none", "backward"):
        raise UnsupportedError("has scaling_mode forward; none is accepted")


def _word(weight: Array) -> int:
    if weight.dtype not in (np.float32, np.float64):
        raise UnsupportedError(f"has packed weights of {weight.dtype}; words of 32 or 64 bits")
    return weight.dtype.itemsize * 8


def _row_bits(weight: Array, shape: tuple[int, ...], attributes: Any) -> Array:
    if not attributes.flag("binarized_weights_only"):
        return _signs(weight, shape)
    _check_packed(weight, shape)
    return np.unpackbits(_bytes(weight), bitorder="little").reshape(shape)


def _column_bits(weight: Array, shape: tuple[int, int], attributes: Any) -> Array:
    if not attributes.flag("binarized_weights_only"):
        return _signs(weight, shape)
    _check_packed(weight, shape)
    word, (outputs, depth) = _word(weight), shape
    bits = np.unpackbits(_bytes(weight), bitorder="little").reshape(depth // word, outputs, word)
    return np.ascontiguousarray(bits.transpose(1, 0, 2)).reshape(shape)


def _bytes(weight: Array) -> Array:
    return np.frombuffer(np.ascontiguousarray(weight).tobytes(), np.uint8)


def _check_packed(weight: Array, shape: tuple[int, ...]) -> None:
    word = _word(weight)
    if shape[1] % word or weight.size * word != int(np.prod(shape)):
        raise UnsupportedError(
            f"has {weight.size} words of {word} bits for weights {list(shape)}, whose second "
            f"extent must be a multiple of {word}"
        )


def _signs(weight: Array, shape: tuple[int, ...]) -> Array:
    if weight.shape != shape:
        raise UnsupportedError(f"has weights {list(weight.shape)}; {list(shape)} is expected")
    return np.asarray(weight >= 0, np.uint8)


def _bits(builder: MxnetBuilder, data: Any, name: str) -> Any:
    """1 where a float is at least 0: uint1."""
    channels = value_shape(data)[-1]
    limits = builder.held(np.zeros((1, channels), np.float32), f"{name}.threshold")
    falling = builder.held(np.zeros(channels, np.uint8), f"{name}.flip")
    return builder.emit(
        integer.threshold(data, limits, falling, dtype="uint1", rising=True), f"{name}.bits"
    )


def _counts(builder: MxnetBuilder, node: Node, product: Any, depth: int) -> Any:
    """How many bits agree, as float32: exact below 2^24."""
    total = builder.emit(
        relax.op.add(product, builder.held(np.asarray(depth, np.int32), f"{node.name}.depth")),
        f"{node.name}.sum",
    )
    half = builder.held(np.array([0.5], np.float32), f"{node.name}.half")
    return builder.emit(integer.dequantize(total, half, zero_point=0), f"{node.name}.counts")


def _with_bias(builder: MxnetBuilder, node: Node, value: Any, outputs: int) -> Any:
    if node.attributes.flag("no_bias", default=True):
        return value
    bias = builder.held(builder.vector(node, 2, outputs), f"{node.name}.bias")
    return builder.emit(relax.op.add(value, bias), f"{node.name}.biased")
