"""Convolutions and matrix products: integer numerators in, an int32 accumulator's chain out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.dialect import integer
from stages.dialect.padding import NO_PADDING, Padding, Sides
from stages.graph.sum_bounds import bounds_of_sums
from stages.kinds import Array
from stages.nodes import Call
from stages.quantizing.chain import step
from stages.quantizing.context import Context
from stages.quantizing.values import Chain, KnownQuantized, Quantized, Value

INT32_LIMIT = 1 << 31


@dataclass(frozen=True)
class Geometry:
    """Strides, padding and groups of a convolution."""

    strides: tuple[int, ...] = (1, 1)
    padding: Padding = NO_PADDING
    groups: int = 1


def conv2d(context: Context, call: Call) -> Value:
    """NCHW convolution of an activation with quantized OIHW weights."""
    attrs = call.attrs
    if [int(d) for d in attrs.dilation] != [1, 1]:
        raise context.no_form("windows with gaps")
    data, weight = context.activation(call.args[0]), context.weight(call.args[1])
    geometry = Geometry(
        tuple(int(s) for s in attrs.strides),
        Padding(Sides.of([int(p) for p in attrs.padding])),
        int(attrs.groups),
    )
    if data.flattened is not None or len(data.variable.ty.shape) != 4:
        raise context.no_form("a convolution of a reshaped activation")
    unit = _unit(context, weight, 0)
    return _convolve(context, data, weight, unit, weight.q.transpose(0, 2, 3, 1), geometry)


def matmul(context: Context, call: Call) -> Value:
    """Product of an activation [N, K] with quantized weights [K, O].

    Behind a flattened feature map it is a convolution whose window is the whole map, so that the
    map can stay NHWC while the source counts its elements in NCHW order.
    """
    data, weight = context.activation(call.args[0]), context.weight(call.args[1])
    if weight.q.ndim != 2 or len(call.ty.shape) != 2:
        raise context.no_form(
            f"a matrix product with a result of rank {len(call.ty.shape)} and weights of rank "
            f"{weight.q.ndim}"
        )
    unit = _unit(context, weight, 1)
    matrix = weight.q.T
    if len(data.variable.ty.shape) == 4:
        c, h, w = data.flattened or (int(data.variable.ty.shape[3]), 1, 1)
        ohwi = matrix.reshape(-1, c, h, w).transpose(0, 2, 3, 1)
        return _convolve(context, data, weight, unit, ohwi, Geometry())
    call = integer.dense(
        data.variable,
        _weight_tensor(context, weight, matrix),
        data_zero_point=data.quantization.zero_point,
        weight_zero_point=weight.zero_point,
        of_levels=True,
    )
    return _accumulate(context, data, weight, unit, matrix, False, call)


def _unit(context: Context, weight: KnownQuantized, axis: int) -> Array:
    """The weights' unit, scalar or one per output channel, which is axis `axis` of the source."""
    found = weight.unit(axis)
    if found is None:
        raise context.no_form(
            f"the weights {list(weight.q.shape)} have a scale of shape {list(weight.scale.shape)}"
        )
    return found


def _convolve(
    context: Context,
    data: Quantized,
    weight: KnownQuantized,
    unit: Array,
    ohwi: Array,
    geometry: Geometry,
) -> Chain:
    call = integer.conv2d(
        data.variable,
        _weight_tensor(context, weight, ohwi),
        strides=list(geometry.strides),
        padding=geometry.padding,
        groups=geometry.groups,
        data_zero_point=data.quantization.zero_point,
        weight_zero_point=weight.zero_point,
        of_levels=True,
    )
    return _accumulate(context, data, weight, unit, ohwi, any(geometry.padding.sides), call)


def _accumulate(
    context: Context,
    data: Quantized,
    weight: KnownQuantized,
    unit: Array,
    q: Array,
    padded: bool,
    call: Call,
) -> Chain:
    """Emit a linear operator; its chain starts with the product of both units."""
    ends = data.quantization.levels.numerators + ((0,) if padded else ())
    low, high = bounds_of_sums(weight.zero_point.numerators(q), ends)
    if max(-low.min(), high.max()) >= INT32_LIMIT:
        raise context.no_form("the accumulator can exceed 32 bits")
    product = (data.quantization.unit * unit).astype(np.float32)
    steps = () if product.ndim == 0 and product == 1 else (step("multiply", product),)
    accumulator = context.builder.emit(call, context.layer)
    return Chain(accumulator, steps, low.astype(np.int32), high.astype(np.int32))


def _weight_tensor(context: Context, weight: KnownQuantized, q: Array) -> Any:
    signed = bool(q.min() < 0)
    stored = q.astype(np.int8 if signed else np.uint8)
    dtype = f"{'int' if signed else 'uint'}{weight.bits}"
    return context.builder.tensor(f"{context.layer}.weight", stored, dtype)
