"""Convolutions and fully connected layers that MXNet fused for oneDNN (`src/operator/subgraph`).

`_sg_mkldnn_conv`, called `_sg_onednn_conv` later, carries float32 weights, which its first run
quantizes per channel, batch normalization folded in. All of it happens here at import, in the
order and the float32 roundings of mkldnn_conv.cc and mkldnn_common.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import integer
from stages.importing.mxnet.fused_weights import (
    Weights,
    float_weights,
    only_inner,
    saturate,
    weight_scales,
)
from stages.importing.mxnet.mxnet_builder import MxnetBuilder, Scalars, Values, real
from stages.importing.mxnet.mxnet_windows import windows_of
from stages.importing.mxnet.quantized import accumulate, dense, flattened
from stages.importing.mxnet.quantized_ranges import (
    LIMITS,
    REACH,
    calibrated,
    product_range,
    round_to,
    scale_of,
)
from stages.importing.mxnet.symbol import Node
from stages.importing.relax_builder import Value, value_dtype, value_shape
from stages.importing.unsupported import UnsupportedError
from stages.numerics import rescale

Array = np.ndarray[Any, Any]
_EXACT = 1 << 24
"""Integers up to here are exact in float32: oneDNN adds a bias there."""


@dataclass(frozen=True)
class Limits:
    """What an activation leaves of float32 values: from `low` to `high`, in real units."""

    low: float | None = None
    high: float | None = None


def conv(builder: MxnetBuilder, node: Node) -> Values:
    """A quantized fused convolution; without calibration its result is int32."""
    attributes = node.attributes
    if not attributes.flag("quantized"):
        raise UnsupportedError("is not quantized; quantize the model with calibration")
    shape, inner = builder.image(node), only_inner(node, "Convolution")
    has_bias = not inner.flag("no_bias")
    weights, position = float_weights(builder, node, has_bias)
    with_sum = attributes.flag("with_sum")
    first_end = position + with_sum
    ends = [builder.range_bound(node, first_end + i) for i in range(2 + 2 * with_sum)]
    data, known = builder.read_at(node, 0), calibrated(node)
    groups = inner.integer("num_group", 1)
    if weights.weight.ndim != 4 or groups < 1 or weights.weight.shape[1] * groups != shape[1]:
        raise UnsupportedError(
            f"has weights of shape {list(weights.weight.shape)} and {groups} groups for "
            f"{shape[1]} channels"
        )
    scalars = Scalars(builder, node.name)
    data_scale = scale_of(scalars, value_dtype(data), ends[0], ends[1])
    scales = weight_scales(weights, data_scale, per_channel=known is not None)
    stored = saturate(weights.weight * scales.reshape(-1, 1, 1, 1), "int8")
    total = accumulate(builder, node.name, data, stored, windows_of(inner), groups)
    total = _add_bias(
        builder, node, total, stored, weights.bias, scalars.multiply(scales, data_scale)
    )
    if known is None:
        low, high = _product_range(builder, node, weights, (ends[0], ends[1]))
        if with_sum or _limits(node, 0) != Limits():
            raise UnsupportedError("has no calibrated range; quantize the model with calibration")
        return [builder.to_nchw(_as_int32(builder, node, total), node.name), low, high]
    limits = _limits(node, 1 if with_sum else 0)
    if with_sum and _limits(node, 0) != Limits():
        raise UnsupportedError("has an activation before its sum")
    dtype = "int8" if limits.low is None else "uint8"
    out_scale = scale_of(scalars, dtype, *known)
    factor = scalars.divide(scalars.divide(out_scale, data_scale), scales)
    bounds = _bounds(limits, out_scale, dtype)
    if not with_sum:
        result = round_to(builder, total, factor, dtype, f"{node.name}.result", bounds)
    else:
        result = _sum(builder, node, position, total, factor, (ends[2], ends[3]), out_scale, bounds)
    return [builder.to_nchw(result, node.name), *known]


def _add_bias(
    builder: MxnetBuilder, node: Node, total: Any, weight: Array, bias: Array | None, scales: Value
) -> Any:
    """Accumulators with the bias, as int32 where that equals oneDNN's sum of two float32."""
    if bias is None:
        return total
    name = f"{node.name}.bias"
    if isinstance(scales, np.ndarray):
        products = np.asarray(bias * scales, np.float64)
        stored = np.clip(np.rint(products), -(2**31), 2**31 - 1).astype(np.int32)
        largest = 255 * np.abs(weight.reshape(len(weight), -1).astype(np.int64)).sum(axis=1)
        if (largest + np.abs(stored.astype(np.int64)) <= _EXACT).all():
            return builder.emit(relax.op.add(total, builder.held(stored, name)), f"{node.name}.sum")
        addend = builder.held(stored.astype(np.float32), name)
    else:
        scaled = builder.emit(relax.op.multiply(builder.held(bias, name), scales), f"{name}.scaled")
        addend = builder.emit(relax.op.round(scaled), f"{name}.rounded")
    as_float = builder.emit(relax.op.astype(total, "float32"), f"{node.name}.as_float")
    return builder.emit(relax.op.add(as_float, addend), f"{node.name}.sum")


def _as_int32(builder: MxnetBuilder, node: Node, total: Any) -> Any:
    if value_dtype(total) == "int32":
        return total
    raise UnsupportedError("has accumulators that float32 does not hold, and no calibrated range")


def _product_range(
    builder: MxnetBuilder, node: Node, weights: Weights, data: tuple[Value, Value]
) -> tuple[Value, Value]:
    levels = 255 if value_dtype(builder.value_at(node, 0)) == "uint8" else 127
    ends = real(weights.weight.min()), real(weights.weight.max())
    return product_range(Scalars(builder, node.name), levels, data, ends)


def _limits(node: Node, which: int) -> Limits:
    """What the activation before (0) or after (1) the sum leaves; all where there is none."""
    flags = ("with_act", "with_relu", "with_eltwise"), ("with_postsum_act", "with_postsum_relu")
    if not any(node.attributes.flag(name) for name in flags[which]):
        return Limits()
    inner = [each for symbol in node.subgraphs for each in symbol.nodes]
    found = [each for each in inner if each.op in ("Activation", "LeakyReLU", "clip")]
    if not found:
        raise UnsupportedError("stands for an activation that is neither Activation nor clip")
    last = found[-1 if which else 0]
    if last.op == "clip" and last.attributes.number("a_min") == 0:
        return Limits(0, last.attributes.number("a_max"))
    if last.op == "Activation" and last.attributes.text("act_type", "") == "relu":
        return Limits(0)
    raise UnsupportedError(
        f"has the activation {last.attributes.text('act_type', last.op)}; relu and clip from 0 are "
        "accepted"
    )


def _bounds(limits: Limits, out_scale: Value, dtype: str) -> tuple[int, int]:
    assert isinstance(out_scale, np.ndarray)  # a calibrated range is known at import
    low, high = LIMITS[dtype]
    if limits.low is not None:
        low = 0
    if limits.high is not None:
        high = min(high, max(low, int(np.rint(np.float32(limits.high) * out_scale))))
    return low, high


def _sum(
    builder: MxnetBuilder, node: Node, position: int, total: Any, factor: Value,
    ends: tuple[Value, Value], out_scale: Value, bounds: tuple[int, int],
) -> Any:  # fmt: skip
    """The convolution's result and what is added to it, in one rounding."""
    addend, scalars = builder.read_at(node, position), Scalars(builder, node.name)
    if value_shape(addend) != _nchw(value_shape(total)):
        raise UnsupportedError(f"adds a tensor of shape {list(value_shape(addend))}")
    addend_scale = scalars.divide(out_scale, scale_of(scalars, value_dtype(addend), *ends))
    low, high = bounds
    dtype = "uint8" if low == 0 else "int8"
    if dtype != value_dtype(addend):
        # oneDNN adds in place, in the addend's type, so only what both types hold comes out.
        low, high = max(low, 0), min(high, 127)
    call = rescale.rescaled_sum(
        total, builder.to_nhwc(addend, f"{node.name}.addend"),
        builder.held(factor, f"{node.name}.scale"),
        builder.held(addend_scale, f"{node.name}.addend_scale"),
        fused=not (isinstance(addend_scale, np.ndarray) and addend_scale == 1),
        low=low, high=high, dtype=dtype,
    )  # fmt: skip
    return builder.emit(call, f"{node.name}.result")


def _nchw(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[0], shape[3], shape[1], shape[2]


def fully_connected(builder: MxnetBuilder, node: Node) -> Values:
    """A quantized fused fully connected layer: integers of a calibrated range, or float32."""
    attributes = node.attributes
    if not attributes.flag("quantized"):
        raise UnsupportedError("is not quantized; quantize the model with calibration")
    has_bias = not only_inner(node, "FullyConnected").flag("no_bias")
    if builder.constant_at(node, 1).dtype == np.float32:
        return _per_channel_dense(builder, node, has_bias)
    first = 2 + has_bias
    ends = [builder.range_bound(node, first + i) for i in range(4 + 2 * has_bias)]
    total, reach, (data_scale, weight_scale) = dense(
        builder, node, (ends[0], ends[1]), (ends[2], ends[3]),
        (ends[4], ends[5]) if has_bias else None, rounded=True,
    )  # fmt: skip
    return _finish_dense(builder, node, total, data_scale, weight_scale, reach)


def _per_channel_dense(builder: MxnetBuilder, node: Node, has_bias: bool) -> Values:
    weights, position = float_weights(builder, node, has_bias)
    scalars, data = Scalars(builder, node.name), flattened(builder, node)
    ends = builder.range_bound(node, position), builder.range_bound(node, position + 1)
    data_scale = scale_of(scalars, value_dtype(data), *ends)
    scales = weight_scales(weights, data_scale, per_channel=True)
    stored = saturate(weights.weight * scales.reshape(-1, 1), "int8")
    weight = builder.held(stored, f"{node.name}.weight")
    call = integer.dense(data, weight, data_zero_point=0, weight_zero_point=0)
    total = builder.emit(call, f"{node.name}.dense")
    total = _add_bias(
        builder, node, total, stored, weights.bias, scalars.multiply(scales, data_scale)
    )
    return _finish_dense(builder, node, total, data_scale, scales, None)


def _finish_dense(
    builder: MxnetBuilder, node: Node, total: Any, data_scale: Value, weight_scale: Value,
    reach: tuple[Value, Value] | None,
) -> Values:  # fmt: skip
    scalars, known, limits = Scalars(builder, node.name), calibrated(node), _limits(node, 0)
    if node.attributes.flag("enable_float_output"):
        factor = scalars.divide(scalars.divide(real(1), data_scale), weight_scale)
        as_float = builder.emit(relax.op.astype(total, "float32"), f"{node.name}.as_float")
        scale = builder.held(factor, f"{node.name}.scale")
        result = builder.emit(relax.op.multiply(as_float, scale), f"{node.name}.scaled")
        if limits.low is not None:
            top = float(np.finfo(np.float32).max) if limits.high is None else limits.high
            result = builder.emit(relax.op.clip(result, 0.0, top), node.name)
        return [result]
    if known is None:
        if reach is None or limits != Limits():
            raise UnsupportedError("has no calibrated range; quantize the model with calibration")
        return [total, *reach]
    dtype = "int8" if limits.low is None else "uint8"
    largest = scalars.largest(*known)
    out_scale = scalars.divide(real(REACH[dtype]), largest)
    factor = scalars.divide(scalars.divide(out_scale, data_scale), weight_scale)
    bounds = _bounds(limits, out_scale, dtype)
    return [round_to(builder, total, factor, dtype, node.name, bounds), *known]
