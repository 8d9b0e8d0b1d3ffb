"""MXNet's quantized operators of `src/operator/quantization`, as release 1.9.1 runs them on CPUs.

There, oneDNN does the work: it converts with one float32 product, rounds halves to even and
saturates. Two habits of that release are kept, because a result equal to the framework's has them:
`_contrib_quantized_conv` adds its int8 bias to the accumulators as it is, whatever its range, and
counts 127 levels for uint8 data too where it states the range of its result.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import integer
from stages.importing.mxnet.mxnet_builder import MxnetBuilder, Scalars, Values, real
from stages.importing.mxnet.mxnet_windows import (
    check_kernel,
    convolve,
    counts,
    pool_windows,
    windows_of,
)
from stages.importing.mxnet.quantized_ranges import (
    REACH,
    calibrated,
    check_range,
    product_range,
    round_to,
    scale_of,
)
from stages.importing.mxnet.symbol import Node
from stages.importing.relax_builder import Value, value_dtype, value_shape
from stages.importing.unsupported import UnsupportedError
from stages.numerics import rescale


def conv(builder: MxnetBuilder, node: Node) -> Values:
    """`_contrib_quantized_conv`: uint8 data, int8 weights, int32 results."""
    has_bias = not node.attributes.flag("no_bias")
    shape, dtype = builder.image(node), value_dtype(builder.value_at(node, 0))
    if dtype != "uint8" or value_dtype(builder.value_at(node, 1)) != "int8":
        raise UnsupportedError(
            f"reads {dtype} data; MXNet's CPU kernel takes uint8 and int8 weights"
        )
    if node.attributes.integer("num_group", 1) != 1 or shape[1] < 1:
        raise UnsupportedError("has several groups; MXNet's quantized_conv knows one")
    weight = builder.constant_at(node, 1)
    total = accumulate(
        builder, node.name, builder.read_at(node, 0), weight, windows_of(node.attributes), 1
    )
    if has_bias:
        bias = builder.constant_at(node, 2).astype(np.int32)
        total = builder.emit(
            relax.op.add(total, builder.held(bias, f"{node.name}.bias")), f"{node.name}.sum"
        )
    ends = [builder.range_bound(node, position) for position in range(2 + has_bias, 6 + has_bias)]
    scalars = Scalars(builder, node.name)
    low, high = product_range(scalars, 127, (ends[0], ends[1]), (ends[2], ends[3]))
    return [builder.to_nchw(total, node.name), low, high]


def accumulate(
    builder: MxnetBuilder,
    name: str,
    data: Any,
    weight: np.ndarray[Any, Any],
    windows: Any,
    groups: int,
) -> Any:
    """int32 sums, NHWC, of NCHW data and OIHW weights, which are stored as OHWI."""
    check_kernel(windows, weight.shape)
    stored = builder.held(np.ascontiguousarray(weight.transpose(0, 2, 3, 1)), f"{name}.weight")
    channels_last = builder.to_nhwc(data, name)
    return convolve(builder, channels_last, stored, windows, groups, f"{name}.conv2d")


def fully_connected(builder: MxnetBuilder, node: Node) -> Values:
    """`_contrib_quantized_fully_connected`: int8 or uint8 data, int8 weights, int32 results."""
    has_bias = not node.attributes.flag("no_bias")
    first = 2 + has_bias
    ends = [builder.range_bound(node, first + position) for position in range(4 + 2 * has_bias)]
    bias_range = (ends[4], ends[5]) if has_bias else None
    total, (low, high), _ = dense(
        builder, node, (ends[0], ends[1]), (ends[2], ends[3]), bias_range, rounded=False
    )
    return [total, low, high]


def dense(
    builder: MxnetBuilder, node: Node, data_range: tuple[Value, Value],
    weight_range: tuple[Value, Value],
    bias_range: tuple[Value, Value] | None, *, rounded: bool,
) -> tuple[Any, tuple[Value, Value], tuple[Value, Value]]:  # fmt: skip
    """int32 sums [N, O] with the bias, their range, and the scales of data and weights.

    The int8 bias becomes int32 `rounded`, halves away from zero (mkldnn_fc.cc), or with its
    fraction cut off (mkldnn_quantized_fully_connected.cc).
    """
    name = node.name
    data, weight = flattened(builder, node), builder.constant_at(node, 1)
    dtype, scalars = value_dtype(data), Scalars(builder, name)
    if weight.dtype != np.int8 or weight.ndim != 2:
        raise UnsupportedError(f"has weights {weight.dtype} {list(weight.shape)}; int8 [O, K]")
    scales = (
        scale_of(scalars, dtype, *data_range), scale_of(scalars, "int8", *weight_range),
    )  # fmt: skip
    call = integer.dense(data, builder.read_at(node, 1), data_zero_point=0, weight_zero_point=0)
    total = builder.emit(call, f"{name}.dense")
    if bias_range is not None:
        bias = builder.constant_at(node, 2).astype(np.float32)
        rescale_by = scalars.divide(
            scalars.multiply(scalars.multiply(*scales), scalars.largest(*bias_range)),
            real(REACH["int8"]),
        )
        products = scalars.multiply(bias, rescale_by)
        if rounded:
            products = scalars.add(products, np.copysign(np.float32(0.5), bias))
        if isinstance(products, np.ndarray):
            bias32 = builder.held(products.astype(np.int32), f"{name}.bias")
        else:
            bias32 = builder.emit(relax.op.astype(products, "int32"), f"{name}.bias")
        total = builder.emit(relax.op.add(total, bias32), f"{name}.sum")
    levels = 255 if dtype == "uint8" else 127
    return total, product_range(scalars, levels, data_range, weight_range), scales


def flattened(builder: MxnetBuilder, node: Node) -> Any:
    """A node's data as [N, K]."""
    data = builder.read_at(node, 0)
    shape = value_shape(data)
    if len(shape) == 2:
        return data
    if not shape:
        raise UnsupportedError("reads a tensor without axes")
    if not node.attributes.flag("flatten", default=True):
        raise UnsupportedError("keeps the axes of its data; flatten=True is accepted")
    call = relax.op.reshape(data, (shape[0], prod(shape[1:])))
    return builder.emit(call, f"{node.name}.flat")


def act(builder: MxnetBuilder, node: Node) -> Values:
    """`_contrib_quantized_act`: relu, whose zero is 0."""
    kind = node.attributes.text("act_type", "")
    if kind != "relu":
        raise UnsupportedError(f"has act_type {kind}; relu is accepted")
    data = builder.read_at(node, 0)
    if value_dtype(data) != "int8":
        raise UnsupportedError(f"reads {value_dtype(data)}; MXNet's kernel takes int8")
    zero = builder.held(np.zeros((), value_dtype(data)), f"{node.name}.zero")
    return [builder.emit(relax.op.maximum(data, zero), node.name), *_range(builder, node)]


def _range(builder: MxnetBuilder, node: Node) -> Values:
    return [builder.range_bound(node, 1), builder.range_bound(node, 2)]


def flatten(builder: MxnetBuilder, node: Node) -> Values:
    """`_contrib_quantized_flatten`: [N, ...] to [N, K]."""
    shape = value_shape(builder.value_at(node, 0))
    call = relax.op.reshape(builder.read_at(node, 0), (shape[0], prod(shape[1:])))
    return [builder.emit(call, node.name), *_range(builder, node)]


def pooling(builder: MxnetBuilder, node: Node) -> Values:
    """`_contrib_quantized_pooling`: largest values, or averages rounded half to even.

    oneDNN multiplies the int32 sum by the float32 reciprocal of the count.
    """
    kind, shape = node.attributes.text("pool_type", "max"), builder.image(node)
    windows = pool_windows(node.attributes, (shape[2], shape[3]))
    data, dtype = (
        builder.to_nhwc(builder.read_at(node, 0), node.name),
        value_dtype(builder.value_at(node, 0)),
    )
    sizes: dict[str, Any] = {
        "kernel": list(windows.kernel),
        "strides": list(windows.strides),
        "padding": list(windows.pads),
    }
    if kind == "max":
        pooled = builder.emit(integer.max_pool2d(data, **sizes), f"{node.name}.pool")
    elif kind == "avg":
        total = builder.emit(integer.sum_pool2d(data, **sizes, zero_point=0), f"{node.name}.sum")
        if node.attributes.flag("count_include_pad", default=True):
            number = np.array([prod(windows.kernel)], np.float32)
        else:
            number = counts(windows, (shape[2], shape[3])).astype(np.float32)[..., None]
        scale = np.float32(1) / number
        pooled = round_to(builder, total, scale, dtype, f"{node.name}.pool")
    else:
        raise UnsupportedError(f"has pool_type {kind}; max and avg are accepted")
    return [builder.to_nchw(pooled, node.name), *_range(builder, node)]


def batch_norm(builder: MxnetBuilder, node: Node) -> Values:
    """`_contrib_quantized_batch_norm`: int8, one fused product and sum a channel.

    oneDNN normalizes by a mean of 0 and a variance of 1, to which it adds epsilon once more. The
    kernel takes gamma as it is stored, whatever fix_gamma says.
    """
    channels, dtype, known = (
        builder.image(node)[1],
        value_dtype(builder.value_at(node, 0)),
        calibrated(node),
    )
    if dtype != "int8" or known is None or node.attributes.integer("axis", 1) != 1:
        raise UnsupportedError(f"reads {dtype}; int8 NCHW and a calibrated range are accepted")
    gamma, beta, mean, variance = (builder.vector(node, i, channels) for i in range(1, 5))
    epsilon, scalars = node.attributes.number("eps", 1e-3), Scalars(builder, node.name)
    if not (variance + epsilon > 0).all():
        raise UnsupportedError("has a variance that is not positive")
    inverse = (1 / np.sqrt(variance.astype(np.float64) + epsilon)).astype(np.float32)
    largest, out = (
        scalars.largest(builder.range_bound(node, 5), builder.range_bound(node, 6)),
        scalars.largest(*known),
    )
    check_range(out)
    slope = scalars.divide(scalars.multiply(gamma * inverse, largest), out)
    again = np.sqrt(np.float32(1) + np.float32(epsilon))
    offset = scalars.divide((beta - mean * gamma * inverse) * np.float32(REACH["int8"]), out)
    data = builder.to_nhwc(builder.read_at(node, 0), node.name)
    call = rescale.rescaled_sum(
        builder.held(offset, f"{node.name}.offset"), data,
        builder.held(real(1), f"{node.name}.one"),
        builder.held(scalars.divide(slope, real(again)), f"{node.name}.scale"),
        fused=True, low=-128, high=127, dtype="int8",
    )  # fmt: skip
    return [builder.to_nchw(builder.emit(call, f"{node.name}.result"), node.name), *known]
