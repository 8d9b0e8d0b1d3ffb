"""Weights of layers that MXNet fused for oneDNN: normalization folded in, quantized at import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.importing.mxnet.mxnet_builder import MxnetBuilder
from stages.importing.mxnet.quantized_ranges import (
    LIMITS,
    REACH,
)
from stages.importing.mxnet.symbol import Attributes, Node
from stages.importing.relax_builder import Value
from stages.importing.unsupported import UnsupportedError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Weights:
    """A layer's float32 weights [O, ...] and, unless there is none, bias [O]."""

    weight: Array
    bias: Array | None


def only_inner(node: Node, op: str) -> Attributes:
    """The attributes of the one operator `op` that a fused node stands for."""
    found = [inner for symbol in node.subgraphs for inner in symbol.nodes if inner.op == op]
    if len(found) != 1:
        raise UnsupportedError(f"stands for {len(found)} operators {op}; one is expected")
    return found[0].attributes


def float_weights(builder: MxnetBuilder, node: Node, has_bias: bool) -> tuple[Weights, int]:
    """Weights and bias with batch normalization folded in, and the next input's position."""
    weight = builder.constant_at(node, 1)
    if weight.dtype != np.float32 or weight.ndim < 2:
        raise UnsupportedError(f"has weights {weight.dtype} {list(weight.shape)}; float32 OIHW")
    outputs, position = weight.shape[0], 2 + has_bias
    bias = builder.vector(node, 2, outputs) if has_bias else None
    if node.attributes.flag("with_bn"):
        gamma, beta, mean, variance = (
            builder.vector(node, position + i, outputs) for i in range(4)
        )
        position += 4
        norm = only_inner(node, "BatchNorm")
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


def weight_scales(weights: Weights, data_scale: Value, per_channel: bool) -> Array:
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


def saturate(values: Array, dtype: str) -> Array:
    """Values rounded half to even, and held to what a type can stand for."""
    low, high = LIMITS[dtype]
    return np.clip(np.rint(values), low, high).astype(dtype)
