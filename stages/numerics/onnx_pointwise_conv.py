"""Bytes of a float convolution of single pixels, from exact sums of integers wherever these tell.

ONNX Runtime computes such a convolution of dequantized bytes as

    s_k = fma(w_k, x_k, s_(k - 1)),  k = 1 ... K,     byte = quantize(s_K + bias)

in float32, by blocks of channels that are added up one after the other. Every step rounds, by at
most u |s_k| <= u |w_1 ... w_k| |x|, u = 2^-24, in Euclidean norms (Cauchy and Schwarz; Higham 2002,
section 3.1). The exact sum gives the same byte, unless it is that near to the middle of two; then,
which is rare, the float32 sum is taken step by step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.dialect.calls import Attrs, shape_of, tensor_type
from stages.dialect.elementwise import ARITHMETIC
from stages.dialect.numbers import Numbers, Value
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.registry import register
from stages.dialect.zero_point import ZeroPoint
from stages.kinds import Array
from stages.nodes import TensorType
from stages.numerics import linear_quantizers

OPERANDS = (
    *("sums", "data", "weight", "weight_scale", "bias", "slope", "offset", "reach", "least"),
)
QUANTIZE = ARITHMETIC[linear_quantizers.quantize_linear.name]
ROUNDINGS = 9
"""Roundings beside those of the steps, each of at most u times the size of the sum, or of the bias:
of both factors, the bias added, the division; of the level that is compared the cast, the slope,
the product, the offset and the sum."""
ABOVE = 1 + 2.0**-10
"""Bounds times this stay above what they are in float32, and with the roundings of roundings."""
ULP = 2.0**-24


def bounds(weight: Array, block: int, slope: Array, offset: Array) -> tuple[Array, Array]:
    """How near to a tie counts as near: float32 [O] for each unit of a pixel's norm, and at least.

    `weight` [O, K] and the slopes and offsets [O] of levels are float64.
    """
    steps = np.zeros(len(weight))
    starts = range(0, weight.shape[1], block)
    for start in starts:
        steps += np.sqrt(np.cumsum(weight[:, start : start + block] ** 2, axis=1)).sum(axis=1)
    steps += (ROUNDINGS + len(starts)) * np.linalg.norm(weight, axis=1)
    reach, least = ABOVE * ULP * steps * np.abs(slope), ABOVE * ROUNDINGS * ULP * np.abs(offset)
    return reach.astype(np.float32), least.astype(np.float32)


def level(m: Numbers, total: Value, slope: Value, offset: Value, limits: Sequence[int]) -> Value:
    """Where a sum lies between levels, without their zero point."""
    low, high = (m.constant(float(limit), "float32") for limit in limits)
    scaled = m.multiply_add(m.cast(total, "float32"), slope, offset)
    return m.minimum(m.maximum(scaled, low), high)


def is_near(m: Numbers, at: Value, whole: Value, reach: Value, norm: Value, least: Value) -> Value:
    """Whether a level `at`, of which `whole` is the nearest integer, may round to another one."""
    return m.multiply_add(reach, norm, m.absolute(at - whole) + least) >= m.constant(0.5, "float32")


def limits_of(attrs: Attrs) -> tuple[int, int]:
    """The lowest and highest level without their zero point."""
    return tuple(attrs[end] - attrs["zero_point"].whole for end in ("low", "high"))


def _type(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    sums, data, weight, *channels = map(shape_of, types)
    outputs, _, _, depth = weight
    if data[3] != depth or any(each != (outputs,) for each in (sums[3:], *channels)):
        raise ValueError(f"sums {sums} of data {data} and weights {weight}, bounds {channels}")
    if attrs["low"] < 0:
        return tensor_type(sums, "int8")
    return tensor_type(sums, "uint8")


@register("near_ties", OPERANDS, _type)
def near_ties(
    sums: Array, data: Array, weight: Array, weight_scale: Array, bias: Array,
    slope: Array, offset: Array, reach: Array, least: Array, *,
    strides: Sequence[int], block: int, data_scale: float, data_zero_point: ZeroPoint,
    scale: float, zero_point: ZeroPoint, low: int, high: int,
) -> Array:  # fmt: skip
    """Bytes [1, H, W, O] of `sums`, int32 of that shape: what float32 sums in order would give.

    `sums` are exact, of bytes `data` [1, H', W', C] and int8 weights [O, 1, 1, C], both without
    their zero points; weights have none. Others are float32 [O]: scales of the weights, the bias,
    `slope` and `offset` of the level of a sum, `reach` and `least` as `bounds` has them.
    """
    strided = data[:, :: strides[0], :: strides[1]].astype(np.int32) - data_zero_point.whole
    norms = np.sqrt((strided**2).sum(axis=3, keepdims=True).astype(np.float32))
    norms = norms * np.float32(data_scale)
    centre = zero_point.whole
    at = level(NUMPY, sums, slope, offset, (low - centre, high - centre))
    whole = np.rint(at)
    found = whole.astype(np.int32) + centre
    near = is_near(NUMPY, at, whole, reach, norms, least)
    values = strided.astype(np.float32) * np.float32(data_scale)
    factors = weight[:, 0, 0].astype(np.float32) * weight_scale[:, None]
    *place, channel = np.nonzero(near)
    total = _in_order(values[tuple(place)], factors[channel], block) + bias[channel]
    operands = total, np.float32(scale), np.int32(centre)
    found[near] = QUANTIZE(NUMPY, *operands, low=low, high=high)
    return found.astype(np.int8 if low < 0 else np.uint8)


def _in_order(values: Array, factors: Array, block: int) -> Array:
    """Sums [N] of products of [N, K] and [N, K], channel by channel."""
    total = np.zeros(len(values), np.float32)
    for start in range(0, values.shape[1], block):
        part = np.zeros_like(total)
        for k in range(start, min(start + block, values.shape[1])):
            part = NUMPY.multiply_add(factors[:, k], values[:, k], part)
        total = total + part
    return total
