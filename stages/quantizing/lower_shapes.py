"""Pooling, reshaping and transposing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stages.dialect import integer
from stages.dialect.calls import shape_of
from stages.dialect.padding import NO_SIDES
from stages.nodes import Call
from stages.quantizing.chain import step
from stages.quantizing.context import Context
from stages.quantizing.values import Chain, KnownQuantized, Quantized, Value


def max_pool(context: Context, call: Call) -> Value:
    """Maximum over windows; over an accumulator it is kept back until the chain is quantized."""
    pool = _window(context, call)
    source = context.values[call.args[0]]
    if isinstance(source, Quantized):
        pooled = context.builder.emit(integer.max_pool2d(source.variable, **pool), context.layer)
        return replace(source, variable=pooled)
    chain = context.chain(call.args[0])
    if not chain.is_rising():
        raise context.no_form("max pooling of a tensor that falls with its input")
    if chain.quantized is None:
        return replace(chain, pools=(*chain.pools, pool))
    base = context.builder.emit(integer.max_pool2d(chain.base, **pool), context.layer)
    return replace(chain, base=base, quantized=replace(chain.quantized, variable=base))


def average_pool(context: Context, call: Call) -> Value:
    """Mean over windows."""
    pool = _window(context, call)
    if any(pool["padding"]) and not bool(call.attrs.count_include_pad):
        raise context.no_form("average pooling that leaves padding out of its count")
    return _sum_pool(context, call, pool)


def mean(context: Context, call: Call) -> Value:
    """Mean over height and width."""
    shape = shape_of(call.args[0].ty)
    axes = [] if call.attrs.axis is None else [int(axis) % len(shape) for axis in call.attrs.axis]
    if len(shape) != 4 or sorted(axes) != [2, 3]:
        raise context.no_form("a mean over other axes than height and width")
    kernel = [shape[2], shape[3]]
    pool = {"kernel": kernel, "strides": [1, 1], "padding": NO_SIDES}
    return _sum_pool(context, call, pool)


def _window(context: Context, call: Call) -> dict[str, Any]:
    attrs = call.attrs
    if bool(attrs.ceil_mode) or [int(d) for d in attrs.dilation] != [1, 1]:
        raise context.error("pooling with ceil_mode or dilation has no integer form")
    kernel, padding = ([int(v) for v in values] for values in (attrs.pool_size, attrs.padding))
    if any(p >= k for p, k in zip(padding, kernel * 2, strict=True)):
        raise context.error(f"pooling with padding {padding} for a window of {kernel}")
    return {"kernel": kernel, "strides": [int(s) for s in attrs.strides], "padding": padding}


def _sum_pool(context: Context, call: Call, pool: dict[str, Any]) -> Chain:
    """A mean: the integer sum, then the source's float scale and division by the count."""
    source = context.activation(call.args[0])
    of = source.quantization
    if not of.zero_point.is_whole:
        raise context.no_form("a mean of values with a half-integer zero point")
    count = pool["kernel"][0] * pool["kernel"][1]
    call = integer.sum_pool2d(source.variable, zero_point=of.zero_point, **pool)
    total = context.builder.emit(call, context.layer)
    channels = int(total.ty.shape[-1])
    low, high = (numerator * count for numerator in of.levels.numerators)
    low, high = min(0, low), max(0, high)
    return Chain(
        total,
        (step("multiply", of.scale), step("divide", count)),
        np.full(channels, low, np.int32),
        np.full(channels, high, np.int32),
    )


def reshape(context: Context, call: Call) -> Value:
    """Flattening, and reshapes that move nothing."""
    source, shape = context.values[call.args[0]], shape_of(call.ty)
    before = shape_of(call.args[0].ty)
    if before == shape:
        return source
    if isinstance(source, Quantized) or (isinstance(source, Chain) and source.is_integer):
        if source.flattened is not None:
            if shape == (1, *source.flattened):
                return replace(source, flattened=None)
        elif all(extent == 1 for extent in before[2:]):
            if shape[:2] == before[:2] and all(extent == 1 for extent in shape[2:]):
                return source
        elif len(before) == 4 and len(shape) == 2 and shape[0] == 1:
            return replace(source, flattened=(before[1], before[2], before[3]))
    raise context.no_form(f"a reshape from {list(before)} to {list(shape)}")


def permute(context: Context, call: Call) -> Value:
    """Transposing quantized weights."""
    source = context.values[call.args[0]]
    if not isinstance(source, KnownQuantized):
        raise context.no_form("transposing an activation")
    axes = [int(axis) for axis in call.attrs.axes or range(source.q.ndim)[::-1]]
    scale = source.scale.transpose(axes) if source.scale.ndim else source.scale
    return replace(source, q=source.q.transpose(axes), scale=scale)
