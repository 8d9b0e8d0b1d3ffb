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
from stages.importing.mxnet.mxnet_builder import Scalars, Value, Values, Walk, real
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
from stages.importing.mxnet.symbol import Attributes, Node
from stages.importing.unsupported import UnsupportedError
from stages.numerics import rescale

Array = np.ndarray[Any, Any]
_EXACT = 1 << 24
"""Integers up to here are exact in float32: oneDNN adds a bias there."""


@dataclass(frozen=True)
class Weights:
    """A layer's float32 weights [O, ...] and, unless there is none, bias [O]."""

    weight: Array
    bias: Array | None


@dataclass(frozen=True)
class Limits:
    """What an activation leaves of float32 values: from `low` to `high`, in real units."""

    low: float | None = None
    high: float | None = None


def conv(walk: Walk, node: Node) -> Values:
    """A quantized fused convolution; without calibration its result is int32."""
    attributes = node.attributes
    if not attributes.flag("quantized"):
        raise UnsupportedError("is not quantized; quantize the model with calibration")
    shape, inner = walk.image(node), _only(node, "Convolution")
    has_bias = not inner.flag("no_bias")
    weights, position = _weights(walk, node, has_bias)
    with_sum = attributes.flag("with_sum")
    first_end = position + with_sum
    ends = [walk.scalar(node, first_end + i) for i in range(2 + 2 * with_sum)]
    data, known = walk.read(node, 0), calibrated(node)
    groups = inner.integer("num_group", 1)
    if weights.weight.ndim != 4 or groups < 1 or weights.weight.shape[1] * groups != shape[1]:
        raise UnsupportedError(
            f"has weights of shape {list(weights.weight.shape)} and {groups} groups for "
            f"{shape[1]} channels"
        )
    scalars = Scalars(walk, node.name)
    data_scale = scale_of(scalars, walk.dtype(data), ends[0], ends[1])
    scales = _weight_scales(weights, data_scale, per_channel=known is not None)
    stored = _saturate(weights.weight * scales.reshape(-1, 1, 1, 1), "int8")
    total = accumulate(walk, node.name, data, stored, windows_of(inner), groups)
    total = _add_bias(walk, node, total, stored, weights.bias, scalars.multiply(scales, data_scale))
    if known is None:
        low, high = _product_range(walk, node, weights, (ends[0], ends[1]))
        if with_sum or _limits(node, 0) != Limits():
            raise UnsupportedError("has no calibrated range; quantize the model with calibration")
        return [walk.emitter.to_nchw(_as_int32(walk, node, total), node.name), low, high]
    limits = _limits(node, 1 if with_sum else 0)
    if with_sum and _limits(node, 0) != Limits():
        raise UnsupportedError("has an activation before its sum")
    dtype = "int8" if limits.low is None else "uint8"
    out_scale = scale_of(scalars, dtype, *known)
    factor = scalars.divide(scalars.divide(out_scale, data_scale), scales)
    bounds = _bounds(limits, out_scale, dtype)
    if not with_sum:
        result = round_to(walk, total, factor, dtype, f"{node.name}.result", bounds)
    else:
        result = _sum(walk, node, position, total, factor, (ends[2], ends[3]), out_scale, bounds)
    return [walk.emitter.to_nchw(result, node.name), *known]


def _only(node: Node, op: str) -> Attributes:
    found = [inner for symbol in node.subgraphs for inner in symbol.nodes if inner.op == op]
    if len(found) != 1:
        raise UnsupportedError(f"stands for {len(found)} operators {op}; one is expected")
    return found[0].attributes


def _weights(walk: Walk, node: Node, has_bias: bool) -> tuple[Weights, int]:
    """Weights and bias with batch normalization folded in, and the next input's position."""
    weight = walk.constant(node, 1)
    if weight.dtype != np.float32 or weight.ndim < 2:
        raise UnsupportedError(f"has weights {weight.dtype} {list(weight.shape)}; float32 OIHW")
    outputs, position = weight.shape[0], 2 + has_bias
    bias = walk.vector(node, 2, outputs) if has_bias else None
    if node.attributes.flag("with_bn"):
        gamma, beta, mean, variance = (walk.vector(node, position + i, outputs) for i in range(4))
        position += 4
        norm = _only(node, "BatchNorm")
        if norm.flag("fix_gamma", default=True):
            gamma = np.ones_like(gamma)
        if (variance < 0).any():
            raise UnsupportedError("has a negative variance")
        # Epsilon is a double there, and so is what is computed with it.
        with np.errstate(all="ignore"):  # what is not finite is refused below
            deviation = np.sqrt(variance.astype(np.float64) + norm.number("eps", 1e-3))
            alpha = (gamma / deviation).astype(np.float32)
            bias = beta - alpha * mean if bias is None else beta + alpha * (bias - mean)
            weight = weight * alpha.reshape(-1, *[1] * (weight.ndim - 1))
    values = [weight] if bias is None else [weight, bias]
    if not all(np.isfinite(value).all() for value in values):
        raise UnsupportedError("has weights that are infinite or NaN once normalization is folded")
    return Weights(weight, bias), position


def _weight_scales(weights: Weights, data_scale: Value, per_channel: bool) -> Array:
    """Levels per unit of each channel, `GetWeightScales`: float32 [O].

    A channel's scale is lowered where its bias would not fit int32. With data of a range that only
    the run tells, that case is taken not to occur: it needs biases 2^15 times the data and more.
    """
    sizes = np.abs(weights.weight.reshape(len(weights.weight), -1)).max(axis=1)
    if not per_channel:
        sizes = np.full_like(sizes, sizes.max())
    if not (sizes > 0).all():
        raise UnsupportedError("has an output channel whose weights are all zero")
    scales = np.float32(REACH["int8"]) / sizes
    bias = weights.bias
    if per_channel and bias is not None and isinstance(data_scale, np.ndarray):
        extremes = np.where(bias > 0, np.float32(2**31), np.float32(-(2**31)))
        with np.errstate(divide="ignore", over="ignore"):
            largest = extremes / np.float32(2) / bias / data_scale
        scales = np.where(bias != 0, np.minimum(scales, largest), scales)
    return np.asarray(scales, np.float32)


def _saturate(values: Array, dtype: str) -> Array:
    low, high = LIMITS[dtype]
    return np.clip(np.rint(values), low, high).astype(dtype)


def _add_bias(
    walk: Walk, node: Node, total: Any, weight: Array, bias: Array | None, scales: Value
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
            return walk.emit(relax.op.add(total, walk.tensor(stored, name)), f"{node.name}.sum")
        addend = walk.tensor(stored.astype(np.float32), name)
    else:
        scaled = walk.emit(relax.op.multiply(walk.tensor(bias, name), scales), f"{name}.scaled")
        addend = walk.emit(relax.op.round(scaled), f"{name}.rounded")
    as_float = walk.emit(relax.op.astype(total, "float32"), f"{node.name}.as_float")
    return walk.emit(relax.op.add(as_float, addend), f"{node.name}.sum")


def _as_int32(walk: Walk, node: Node, total: Any) -> Any:
    if walk.dtype(total) == "int32":
        return total
    raise UnsupportedError("has accumulators that float32 does not hold, and no calibrated range")


def _product_range(
    walk: Walk, node: Node, weights: Weights, data: tuple[Value, Value]
) -> tuple[Value, Value]:
    levels = 255 if walk.dtype(walk.value(node, 0)) == "uint8" else 127
    ends = real(weights.weight.min()), real(weights.weight.max())
    return product_range(Scalars(walk, node.name), levels, data, ends)


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
    low, high = LIMITS[dtype]
    if limits.low is not None:
        low = 0
    if limits.high is not None:
        high = min(high, max(low, int(np.rint(np.float32(limits.high) * out_scale))))
    return low, high


def _sum(
    walk: Walk, node: Node, position: int, total: Any, factor: Value,
    ends: tuple[Value, Value], out_scale: Value, bounds: tuple[int, int],
) -> Any:  # fmt: skip
    """The convolution's result and what is added to it, in one rounding."""
    addend, scalars = walk.read(node, position), Scalars(walk, node.name)
    if walk.shape(addend) != _nchw(walk.shape(total)):
        raise UnsupportedError(f"adds a tensor of shape {list(walk.shape(addend))}")
    addend_scale = scalars.divide(out_scale, scale_of(scalars, walk.dtype(addend), *ends))
    low, high = bounds
    dtype = "uint8" if low == 0 else "int8"
    if dtype != walk.dtype(addend):
        # oneDNN adds in place, in the addend's type, so only what both types hold comes out.
        low, high = max(low, 0), min(high, 127)
    call = rescale.rescaled_sum(
        total, walk.emitter.to_nhwc(addend, f"{node.name}.addend"),
        walk.tensor(factor, f"{node.name}.scale"),
        walk.tensor(addend_scale, f"{node.name}.addend_scale"),
        fused=not (isinstance(addend_scale, np.ndarray) and addend_scale == 1),
        low=low, high=high, dtype=dtype,
    )  # fmt: skip
    return walk.emit(call, f"{node.name}.result")


def _nchw(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[0], shape[3], shape[1], shape[2]


def fully_connected(walk: Walk, node: Node) -> Values:
    """A quantized fused fully connected layer: integers of a calibrated range, or float32."""
    attributes = node.attributes
    if not attributes.flag("quantized"):
        raise UnsupportedError("is not quantized; quantize the model with calibration")
    has_bias = not _only(node, "FullyConnected").flag("no_bias")
    if walk.constant(node, 1).dtype == np.float32:
        return _per_channel_dense(walk, node, has_bias)
    first = 2 + has_bias
    ends = [walk.scalar(node, first + i) for i in range(4 + 2 * has_bias)]
    total, reach, (data_scale, weight_scale) = dense(
        walk, node, (ends[0], ends[1]), (ends[2], ends[3]),
        (ends[4], ends[5]) if has_bias else None, rounded=True,
    )  # fmt: skip
    return _finish_dense(walk, node, total, data_scale, weight_scale, reach)


def _per_channel_dense(walk: Walk, node: Node, has_bias: bool) -> Values:
    weights, position = _weights(walk, node, has_bias)
    scalars, data = Scalars(walk, node.name), flattened(walk, node)
    ends = walk.scalar(node, position), walk.scalar(node, position + 1)
    data_scale = scale_of(scalars, walk.dtype(data), *ends)
    scales = _weight_scales(weights, data_scale, per_channel=True)
    stored = _saturate(weights.weight * scales.reshape(-1, 1), "int8")
    weight = walk.tensor(stored, f"{node.name}.weight")
    call = integer.dense(data, weight, data_zero_point_x2=0, weight_zero_point_x2=0)
    total = walk.emit(call, f"{node.name}.dense")
    total = _add_bias(walk, node, total, stored, weights.bias, scalars.multiply(scales, data_scale))
    return _finish_dense(walk, node, total, data_scale, scales, None)


def _finish_dense(
    walk: Walk, node: Node, total: Any, data_scale: Value, weight_scale: Value,
    reach: tuple[Value, Value] | None,
) -> Values:  # fmt: skip
    scalars, known, limits = Scalars(walk, node.name), calibrated(node), _limits(node, 0)
    if node.attributes.flag("enable_float_output"):
        factor = scalars.divide(scalars.divide(real(1), data_scale), weight_scale)
        as_float = walk.emit(relax.op.astype(total, "float32"), f"{node.name}.as_float")
        scale = walk.tensor(factor, f"{node.name}.scale")
        result = walk.emit(relax.op.multiply(as_float, scale), f"{node.name}.scaled")
        if limits.low is not None:
            top = float(np.finfo(np.float32).max) if limits.high is None else limits.high
            result = walk.emit(relax.op.clip(result, 0.0, top), node.name)
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
    return [round_to(walk, total, factor, dtype, node.name, bounds), *known]
