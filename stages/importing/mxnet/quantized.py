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
from stages.importing.mxnet.mxnet_builder import Scalars, Value, Values, Walk, real
from stages.importing.mxnet.mxnet_windows import (
    check_kernel,
    convolve,
    counts,
    pool_windows,
    windows_of,
)
from stages.importing.mxnet.quantized_ranges import (
    INT32_REACH,
    LIMITS,
    REACH,
    calibrated,
    check_range,
    product_range,
    reach,
    round_to,
    scale_of,
)
from stages.importing.mxnet.symbol import Node
from stages.importing.unsupported import UnsupportedError
from stages.numerics import rescale

_INT32 = (-(2**31), 2**31 - 128)
"""What a float32 that is no larger than int32 can become."""


def conv(walk: Walk, node: Node) -> Values:
    """`_contrib_quantized_conv`: uint8 data, int8 weights, int32 results."""
    has_bias = not node.attributes.flag("no_bias")
    shape, dtype = walk.image(node), walk.dtype(walk.value(node, 0))
    if dtype != "uint8" or walk.dtype(walk.value(node, 1)) != "int8":
        raise UnsupportedError(
            f"reads {dtype} data; MXNet's CPU kernel takes uint8 and int8 weights"
        )
    if node.attributes.integer("num_group", 1) != 1 or shape[1] < 1:
        raise UnsupportedError("has several groups; MXNet's quantized_conv knows one")
    weight = walk.constant(node, 1)
    total = accumulate(walk, node.name, walk.read(node, 0), weight, windows_of(node.attributes), 1)
    if has_bias:
        bias = walk.constant(node, 2).astype(np.int32)
        total = walk.emit(
            relax.op.add(total, walk.tensor(bias, f"{node.name}.bias")), f"{node.name}.sum"
        )
    ends = [walk.scalar(node, position) for position in range(2 + has_bias, 6 + has_bias)]
    scalars = Scalars(walk, node.name)
    low, high = product_range(scalars, 127, (ends[0], ends[1]), (ends[2], ends[3]))
    return [walk.emitter.to_nchw(total, node.name), low, high]


def accumulate(
    walk: Walk, name: str, data: Any, weight: np.ndarray[Any, Any], windows: Any, groups: int
) -> Any:
    """int32 sums, NHWC, of NCHW data and OIHW weights, which are stored as OHWI."""
    check_kernel(windows, weight.shape)
    stored = walk.tensor(np.ascontiguousarray(weight.transpose(0, 2, 3, 1)), f"{name}.weight")
    channels_last = walk.emitter.to_nhwc(data, name)
    return convolve(walk, channels_last, stored, windows, groups, f"{name}.conv2d")


def fully_connected(walk: Walk, node: Node) -> Values:
    """`_contrib_quantized_fully_connected`: int8 or uint8 data, int8 weights, int32 results."""
    has_bias = not node.attributes.flag("no_bias")
    first = 2 + has_bias
    ends = [walk.scalar(node, first + position) for position in range(4 + 2 * has_bias)]
    bias_range = (ends[4], ends[5]) if has_bias else None
    total, (low, high), _ = dense(
        walk, node, (ends[0], ends[1]), (ends[2], ends[3]), bias_range, rounded=False
    )
    return [total, low, high]


def dense(
    walk: Walk, node: Node, data_range: tuple[Value, Value], weight_range: tuple[Value, Value],
    bias_range: tuple[Value, Value] | None, *, rounded: bool,
) -> tuple[Any, tuple[Value, Value], tuple[Value, Value]]:  # fmt: skip
    """int32 sums [N, O] with the bias, their range, and the scales of data and weights.

    The int8 bias becomes int32 `rounded`, halves away from zero (mkldnn_fc.cc), or with its
    fraction cut off (mkldnn_quantized_fully_connected.cc).
    """
    name = node.name
    data, weight = flattened(walk, node), walk.constant(node, 1)
    dtype, scalars = walk.dtype(data), Scalars(walk, name)
    if weight.dtype != np.int8 or weight.ndim != 2:
        raise UnsupportedError(f"has weights {weight.dtype} {list(weight.shape)}; int8 [O, K]")
    scales = (
        scale_of(scalars, dtype, *data_range), scale_of(scalars, "int8", *weight_range),
    )  # fmt: skip
    call = integer.dense(data, walk.read(node, 1), data_zero_point_x2=0, weight_zero_point_x2=0)
    total = walk.emit(call, f"{name}.dense")
    if bias_range is not None:
        bias = walk.constant(node, 2).astype(np.float32)
        rescale_by = scalars.divide(
            scalars.multiply(scalars.multiply(*scales), scalars.largest(*bias_range)),
            real(REACH["int8"]),
        )
        products = scalars.multiply(bias, rescale_by)
        if rounded:
            products = scalars.add(products, np.copysign(np.float32(0.5), bias))
        if isinstance(products, np.ndarray):
            bias32 = walk.tensor(products.astype(np.int32), f"{name}.bias")
        else:
            bias32 = walk.emit(relax.op.astype(products, "int32"), f"{name}.bias")
        total = walk.emit(relax.op.add(total, bias32), f"{name}.sum")
    levels = 255 if dtype == "uint8" else 127
    return total, product_range(scalars, levels, data_range, weight_range), scales


def flattened(walk: Walk, node: Node) -> Any:
    """A node's data as [N, K]."""
    data = walk.read(node, 0)
    shape = walk.shape(data)
    if len(shape) == 2:
        return data
    if not shape:
        raise UnsupportedError("reads a tensor without axes")
    if not node.attributes.flag("flatten", default=True):
        raise UnsupportedError("keeps the axes of its data; flatten=True is accepted")
    call = relax.op.reshape(data, (shape[0], prod(shape[1:])))
    return walk.emit(call, f"{node.name}.flat")


def act(walk: Walk, node: Node) -> Values:
    """`_contrib_quantized_act`: relu, whose zero is 0."""
    kind = node.attributes.text("act_type", "")
    if kind != "relu":
        raise UnsupportedError(f"has act_type {kind}; relu is accepted")
    data = walk.read(node, 0)
    if walk.dtype(data) != "int8":
        raise UnsupportedError(f"reads {walk.dtype(data)}; MXNet's kernel takes int8")
    zero = walk.tensor(np.zeros((), walk.dtype(data)), f"{node.name}.zero")
    return [walk.emit(relax.op.maximum(data, zero), node.name), *_range(walk, node)]


def _range(walk: Walk, node: Node) -> Values:
    return [walk.scalar(node, 1), walk.scalar(node, 2)]


def flatten(walk: Walk, node: Node) -> Values:
    """`_contrib_quantized_flatten`: [N, ...] to [N, K]."""
    shape = walk.shape(walk.value(node, 0))
    call = relax.op.reshape(walk.read(node, 0), (shape[0], prod(shape[1:])))
    return [walk.emit(call, node.name), *_range(walk, node)]


def pooling(walk: Walk, node: Node) -> Values:
    """`_contrib_quantized_pooling`: largest values, or averages rounded half to even.

    oneDNN multiplies the int32 sum by the float32 reciprocal of the count.
    """
    kind, shape = node.attributes.text("pool_type", "max"), walk.image(node)
    windows = pool_windows(node.attributes, (shape[2], shape[3]))
    data, dtype = (
        walk.emitter.to_nhwc(walk.read(node, 0), node.name),
        walk.dtype(walk.value(node, 0)),
    )
    sizes: dict[str, Any] = {
        "kernel": list(windows.kernel),
        "strides": list(windows.strides),
        "padding": list(windows.pads),
    }
    if kind == "max":
        pooled = walk.emit(integer.max_pool2d(data, **sizes), f"{node.name}.pool")
    elif kind == "avg":
        total = walk.emit(integer.sum_pool2d(data, **sizes, zero_point=0), f"{node.name}.sum")
        if node.attributes.flag("count_include_pad", default=True):
            number = np.array([prod(windows.kernel)], np.float32)
        else:
            number = counts(windows, (shape[2], shape[3])).astype(np.float32)[..., None]
        scale = np.float32(1) / number
        pooled = round_to(walk, total, scale, dtype, f"{node.name}.pool")
    else:
        raise UnsupportedError(f"has pool_type {kind}; max and avg are accepted")
    return [walk.emitter.to_nchw(pooled, node.name), *_range(walk, node)]


def batch_norm(walk: Walk, node: Node) -> Values:
    """`_contrib_quantized_batch_norm`: int8, one fused product and sum a channel.

    oneDNN normalizes by a mean of 0 and a variance of 1, to which it adds epsilon once more. The
    kernel takes gamma as it is stored, whatever fix_gamma says.
    """
    channels, dtype, known = walk.image(node)[1], walk.dtype(walk.value(node, 0)), calibrated(node)
    if dtype != "int8" or known is None or node.attributes.integer("axis", 1) != 1:
        raise UnsupportedError(f"reads {dtype}; int8 NCHW and a calibrated range are accepted")
    gamma, beta, mean, variance = (walk.vector(node, i, channels) for i in range(1, 5))
    epsilon, scalars = node.attributes.number("eps", 1e-3), Scalars(walk, node.name)
    if not (variance + epsilon > 0).all():
        raise UnsupportedError("has a variance that is not positive")
    inverse = (1 / np.sqrt(variance.astype(np.float64) + epsilon)).astype(np.float32)
    largest, out = (
        scalars.largest(walk.scalar(node, 5), walk.scalar(node, 6)),
        scalars.largest(*known),
    )
    check_range(out)
    slope = scalars.divide(scalars.multiply(gamma * inverse, largest), out)
    again = np.sqrt(np.float32(1) + np.float32(epsilon))
    offset = scalars.divide((beta - mean * gamma * inverse) * np.float32(REACH["int8"]), out)
    data = walk.emitter.to_nhwc(walk.read(node, 0), node.name)
    call = rescale.rescaled_sum(
        walk.tensor(offset, f"{node.name}.offset"), data, walk.tensor(real(1), f"{node.name}.one"),
        walk.tensor(scalars.divide(slope, real(again)), f"{node.name}.scale"),
        fused=True, low=-128, high=127, dtype="int8",
    )  # fmt: skip
    return [walk.emitter.to_nchw(walk.emit(call, f"{node.name}.result"), node.name), *known]


def elemwise_add(walk: Walk, node: Node) -> Values:
    """`_contrib_quantized_elemwise_add`, as mkldnn_quantized_elemwise_add.cc has it.

    Where one addend is uint8 and the other int8, the former is first rescaled to int8.
    """
    operands, scalars = [walk.read(node, 0), walk.read(node, 1)], Scalars(walk, node.name)
    dtypes = [walk.dtype(operand) for operand in operands]
    if not all(dtype in REACH for dtype in dtypes):
        raise UnsupportedError(f"reads {' and '.join(dtypes)}; int8 and uint8 are accepted")
    ranges = [(walk.scalar(node, 2 + i), walk.scalar(node, 3 + i)) for i in (0, 2)]
    largest = [scalars.largest(*each) for each in ranges]
    known = calibrated(node)
    mixed = dtypes[0] != dtypes[1]
    if known:
        dtype = "int8" if "int8" in dtypes else "uint8"
        out_scale = scale_of(scalars, dtype, *known)
        scales = [
            scalars.divide(out_scale, scale_of(scalars, kind, *each))
            for kind, each in zip(dtypes, ranges, strict=True)
        ]
    else:
        dtype = "int32"
        both = scalars.add(*largest)
        check_range(both)
        known = scalars.negative(both), both
        levels = dtypes if mixed else [dtypes[0]] * 2
        scales = [
            scalars.divide(
                scalars.multiply(size, real(INT32_REACH)),
                scalars.multiply(both, real(reach(kind))),
            )
            for size, kind in zip(largest, levels, strict=True)
        ]
    if mixed:
        at = dtypes.index("uint8")
        operands[at] = round_to(walk, operands[at], scales[at], "int8", f"{node.name}.as_int8")
        scales[at] = real(1)
    low, high = _INT32 if dtype == "int32" else LIMITS[dtype]
    factors = [walk.tensor(scale, f"{node.name}.scale") for scale in scales]
    call = rescale.rescaled_sum(*operands, *factors, fused=False, low=low, high=high, dtype=dtype)
    return [walk.emit(call, node.name), *known]


def concat(walk: Walk, node: Node) -> Values:
    """`_contrib_quantized_concat`: operands rescaled to the range that holds them all."""
    count = node.attributes.integer("num_args")
    if not 1 <= count <= len(node.inputs) // 3:
        raise UnsupportedError(f"has num_args {count} and {len(node.inputs)} inputs")
    scalars, low, high = Scalars(walk, node.name), real(0), real(0)
    ranges = [(walk.scalar(node, count + 2 * i), walk.scalar(node, count + 2 * i + 1))
        for i in range(count)]  # fmt: skip
    for smallest, greatest in ranges:
        low, high = scalars.minimum(low, smallest), scalars.maximum(high, greatest)
    dtypes = [walk.dtype(walk.value(node, i)) for i in range(count)]
    dtype = "int8" if "int8" in dtypes else "uint8"
    out_scale = scale_of(scalars, dtype, low, high)
    parts = []
    for i, (kind, each) in enumerate(zip(dtypes, ranges, strict=True)):
        scale = scale_of(scalars, kind, *each)
        same = all(isinstance(s, np.ndarray) for s in (scale, out_scale)) and scale == out_scale
        factor = scalars.divide(out_scale, scale)
        part = walk.read(node, i)
        name = f"{node.name}.part{i}"
        parts.append(part if same and kind == dtype else round_to(walk, part, factor, dtype, name))
    axis = node.attributes.integer("dim", 1)
    return [walk.emit(relax.op.concat(parts, axis), node.name), low, high]
