"""Converters of the Larq Compute Engine's custom operators.

Between them Larq packs 32 channels of +1 and -1 into an int32, where a bit of 1 means -1. Here such
a tensor is one level a channel, of the dialect's type uint1: 1 means +1, which is a zero point of
1/2, as the bit-serial layers have it. Only Larq's own operators may read it. The arithmetic is that
of Larq's reference kernel. Sources: larq_compute_engine/tflite/kernels/{bconv2d,bmaxpool,
quantization}.cc, larq_compute_engine/core/{bconv2d/reference.h,bitpacking/bitpack.h}.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from stages.dialect import integer
from stages.dialect.calls import is_op
from stages.dialect.padding import Padding
from stages.dialect.zero_point import BIPOLAR
from stages.importing.relax_builder import value_dtype, value_shape
from stages.importing.tflite.activations import (
    activated,
    activation_bounds,
    padding_of,
    steps,
    strides_of,
)
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Array, Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import bipolar, rule_names
from stages.numerics.bipolar import BIT

WORD = 32
"""Channels in one packed integer."""

MAX_OPTIONS = 4096
"""Bytes of options that are read."""

_RENAMED = {
    "stride_height": "stride_h",
    "stride_width": "stride_w",
    "dilation_height_factor": "dilation_h_factor",
    "dilation_width_factor": "dilation_w_factor",
}


def with_options(operator: Operator, names: tuple[str, ...]) -> Operator:
    """The operator with options from its flexbuffer, under the names that TensorFlow Lite has."""
    raw = operator.custom_options
    if not 3 <= len(raw) <= MAX_OPTIONS:
        raise UnsupportedError(f"has {len(raw)} bytes of options; up to {MAX_OPTIONS} are read")
    found = {}
    try:
        table = flexbuffers.GetRoot(raw).AsMap
        for name in names:
            found[_RENAMED.get(name, name)] = int(table[name].AsInt)
    except KeyError as error:
        raise UnsupportedError(f"states no option {error}") from error
    except (ValueError, TypeError, IndexError, struct.error, OverflowError) as error:
        raise UnsupportedError("has options that cannot be read as a flexbuffer") from error
    return replace(operator, options=found)


def bits_of(builder: TfliteBuilder, operator: Operator) -> Any:
    """The levels [N, H, W, C] that an operator reads as packed integers."""
    variable = builder.variables.get(operator.input(0))
    if variable is None or value_dtype(variable) != BIT:
        raise UnsupportedError("reads packed bits that no operator of Larq made")
    return variable


def levels(builder: TfliteBuilder, data: Any, centre: int, name: str) -> Any:
    """A tensor's values as levels: 1 from `centre` upwards."""
    shape, dtype = value_shape(data), value_dtype(data)
    limits = np.full((1, shape[-1]), centre, np.float32 if dtype == "float32" else np.int32)
    threshold = builder.tensor(f"{name}.threshold", limits)
    falling = builder.tensor(f"{name}.flip", np.zeros(shape[-1], np.uint8))
    return builder.emit(integer.threshold(data, threshold, falling, dtype=BIT, rising=True), name)


def quantized(builder: TfliteBuilder, index: int, name: str) -> Any:
    """The signs of floats, or of int8 around their zero point, as levels."""
    dtype = builder.dtype(index)
    if dtype not in ("float32", "int8"):
        raise UnsupportedError(f"takes the sign of {dtype}; float32 and int8 are accepted")
    centre = 0 if dtype == "float32" else builder.quantization(index).zero_point.whole
    return levels(builder, builder.read(index), centre, name)


def lce_quantize(builder: TfliteBuilder, operator: Operator) -> Any:
    """LceQuantize."""
    return quantized(builder, operator.input(0), operator.layer)


def lce_dequantize(builder: TfliteBuilder, operator: Operator) -> Any:
    """LceDequantize to float32, or to int8 at the output's scale."""
    bits, output = bits_of(builder, operator), operator.outputs[0]
    low, high, dtype = -1, 1, builder.dtype(output)
    if dtype == "int8":
        out = builder.quantization(output)
        zero_point, one = out.zero_point.whole, steps(1, out.scale)
        low, high = max(-128, zero_point - one), min(127, zero_point + one)
    elif dtype != "float32":
        raise UnsupportedError(f"gives {dtype}; float32 and int8 are accepted")
    return builder.emit(bipolar.from_bits(bits, low=low, high=high, dtype=dtype), operator.layer)


def lce_bmaxpool_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """LceBMaxPool2d of packed bits; older files also take the sign of floats or int8 in it."""
    names = ("filter_height", "filter_width", "stride_height", "stride_width", "padding")
    stated = with_options(operator, names)
    if builder.dtype(operator.input(0)) == "int32":
        bits = bits_of(builder, operator)
    else:
        bits = quantized(builder, operator.input(0), f"{operator.layer}.bits")
    shape = value_shape(bits)
    kernel = int(stated.option("filter_height")), int(stated.option("filter_width"))
    if len(shape) != 4 or min(kernel) < 1:
        raise UnsupportedError(f"has a window of {list(kernel)} for data of {list(shape)}")
    strides = strides_of(stated)
    padding = padding_of(stated, (shape[1], shape[2]), kernel, strides)
    call = integer.max_pool2d(
        bits, kernel=list(kernel), strides=list(strides), padding=list(padding)
    )
    return builder.emit(call, operator.layer)


def unpacked(words: Array, channels: int) -> Array:
    """Packed weights [O, KH, KW, P] as levels [O, KH, KW, channels]; bit 0 of a word is first."""
    raw = np.ascontiguousarray(words.astype("<i4")).view(np.uint8)
    bits = np.unpackbits(raw, axis=-1, bitorder="little")
    return (1 - bits[..., :channels]).astype(np.uint8)


_CONVOLUTION = (
    "channels_in", "stride_height", "stride_width", "dilation_height_factor",
    "dilation_width_factor", "padding", "pad_values", "fused_activation_function",
)  # fmt: skip


def lce_bconv_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """LceBconv2d: products of +-1 and what follows them, of any of the three types of result."""
    stated, bits = with_options(operator, _CONVOLUTION), bits_of(builder, operator)
    _, height, width, channels = value_shape(bits)
    words = builder.constant(operator.input(1))
    if words.ndim != 4 or words.dtype != np.int32 or int(stated.option("channels_in")) != channels:
        raise UnsupportedError(f"has weights of {list(words.shape)} for {channels} channels")
    groups = max(1, -(-channels // WORD) // words.shape[3])
    depth = channels // groups
    if channels % groups or -(-depth // WORD) != words.shape[3] or (groups > 1 and depth % WORD):
        raise UnsupportedError(f"has weights of {list(words.shape)} for {channels} channels")
    if stated.option("pad_values") not in (0, 1):
        raise UnsupportedError(f"pads with {stated.option('pad_values')}; 0 and 1 are accepted")
    dilation = [int(stated.option(f"dilation_{axis}_factor")) for axis in "hw"]
    if min(dilation) < 1:
        raise UnsupportedError(f"has the dilation {dilation}")
    span = (words.shape[1] - 1) * dilation[0] + 1, (words.shape[2] - 1) * dilation[1] + 1
    strides = strides_of(stated)
    sides = padding_of(stated, (height, width), span, strides)
    name = builder.stated(operator.input(1)).name
    call = integer.conv2d(
        bits,
        builder.tensor(name, unpacked(words, depth), BIT),
        strides=list(strides),
        padding=Padding(sides, int(stated.option("pad_values"))),
        groups=groups,
        data_zero_point=BIPOLAR,
        weight_zero_point=BIPOLAR,
        dilation=dilation,
    )
    total = builder.emit(call, operator.layer)
    count = words.shape[1] * words.shape[2] * depth
    if builder.dtype(operator.outputs[0]) == "int32":
        return _signs(builder, operator, total, count)
    return _reals(builder, stated, total, count)


def _signs(builder: TfliteBuilder, operator: Operator, total: Any, count: int) -> Any:
    """A packed result: -1 where more products than the threshold are -1."""
    limits = builder.constant(operator.input(4)).astype(np.int64)
    units = int(total.ty.shape[-1])
    if limits.shape != (units,):
        raise UnsupportedError(f"has thresholds of shape {list(limits.shape)} for {units} channels")
    info = np.iinfo(np.int32)
    reached = np.clip(count - 2 * limits, info.min, info.max).astype(np.int32)
    threshold = builder.tensor(f"{operator.layer}.threshold", reached[None])
    falling = builder.tensor(f"{operator.layer}.flip", np.zeros(units, np.uint8))
    call = integer.threshold(total, threshold, falling, dtype=BIT, rising=True)
    return builder.emit(call, f"{operator.layer}.sign")


def _reals(builder: TfliteBuilder, operator: Operator, total: Any, count: int) -> Any:
    """A result of float32 or int8: activation, then a factor and a sum in float32."""
    output = operator.outputs[0]
    dtype, units = builder.dtype(output), int(total.ty.shape[-1])
    if dtype not in ("float32", "int8"):
        raise UnsupportedError(f"gives {dtype}; float32, int8 and packed int32 are accepted")
    factor, addend = (
        builder.constant(operator.input(position)).astype(np.float64) for position in (2, 3)
    )
    if factor.shape != (units,) or addend.shape != (units,):
        raise UnsupportedError(f"has factors of shape {list(factor.shape)} for {units} channels")
    scale, zero_point = (1.0, 0) if dtype == "float32" else builder.quantization(output).stated
    # The kernel derives these in float64 and stores them as float32.
    multiplier = (-factor / scale).astype(np.float32)
    bias = ((addend + count * factor) / scale + zero_point).astype(np.float32)
    below, above = activation_bounds(operator)
    least = -count if below is None else max(int(below), -count)
    most = count if above is None else min(int(above), count)
    layer = operator.layer
    call = bipolar.larq_output(
        total,
        builder.tensor(f"{layer}.multiplier", multiplier),
        builder.tensor(f"{layer}.bias", bias),
        depth=count,
        low=count - most,
        high=count - least,
        dtype=dtype,
    )
    return builder.emit(call, f"{layer}.output")


def sign_source(builder: TfliteBuilder, index: int) -> Any:
    """The floats whose signs a tensor holds, where Bsign made it; else None."""
    call = builder.expression_of(builder.variables.get(index))
    return call.args[0] if call is not None and is_op(call, rule_names.QNN_SIGN) else None


def is_binarised(builder: TfliteBuilder, operator: Operator) -> bool:
    """Whether a CONV_2D multiplies signs with weights of one size a channel."""
    data, weight = operator.input(0), operator.input(1)
    if not builder.is_constant(weight) or sign_source(builder, data) is None:
        return False
    sizes = np.abs(builder.constants[weight].reshape(builder.shape(weight)[0], -1))
    return bool(sizes.size and (sizes == sizes[:, :1]).all() and (sizes > 0).all())


def binarised_conv_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """CONV_2D of signs, padded with 0: the same float32 values by way of exact sums of +-1.

    A sum of n times +-c is n * c exactly before it is rounded to float32, in whichever way it is
    computed.
    """
    source, layer = sign_source(builder, operator.input(0)), operator.layer
    weight = builder.constants[operator.input(1)]
    shape = builder.shape(operator.input(0))
    dilation = [int(operator.option(f"dilation_{axis}_factor", 1)) for axis in "hw"]
    if len(shape) != 4 or weight.ndim != 4 or shape[3] % weight.shape[3] or min(dilation) < 1:
        raise UnsupportedError(f"has data of {list(shape)} and weights of {list(weight.shape)}")
    strides = strides_of(operator)
    span = (weight.shape[1] - 1) * dilation[0] + 1, (weight.shape[2] - 1) * dilation[1] + 1
    call = integer.conv2d(
        levels(builder, source, 0, f"{layer}.bits"),
        builder.tensor(builder.stated(operator.input(1)).name, (weight > 0).astype(np.uint8), BIT),
        strides=list(strides),
        padding=Padding(padding_of(operator, (shape[1], shape[2]), span, strides)),
        groups=shape[3] // weight.shape[3],
        data_zero_point=BIPOLAR,
        weight_zero_point=BIPOLAR,
        dilation=dilation,
    )
    total = builder.emit(call, layer)
    sizes = np.abs(weight[:, 0, 0, 0]).astype(np.float32)
    bias = np.zeros(len(sizes), np.float32)
    if operator.has(2):
        bias = builder.constant(operator.input(2)).reshape(len(sizes))
    count = int(np.prod(weight.shape[1:]))
    call = bipolar.larq_output(
        total,
        builder.tensor(f"{layer}.multiplier", -sizes),
        builder.tensor(f"{layer}.bias", bias),
        depth=0,
        low=-count,
        high=count,
        dtype="float32",
    )
    return activated(builder, operator, builder.emit(call, f"{layer}.output"))


def bsign(builder: TfliteBuilder, operator: Operator) -> Any:
    """Bsign of Larq's first converters: the sign of floats, in float32."""
    return builder.emit(bipolar.sign(builder.read(operator.input(0))), operator.layer)


CONVERTERS = {
    "LceQuantize": lce_quantize,
    "LceDequantize": lce_dequantize,
    "LceBconv2d": lce_bconv_2d,
    "LceBMaxPool2d": lce_bmaxpool_2d,
    "Bsign": bsign,
}
