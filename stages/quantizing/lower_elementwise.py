"""Elementwise operators: steps of a chain, and the residual addition of two activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.qnn import integer
from stages.qnn.registry import attributes, shape_of
from stages.quantizing.chain import step
from stages.quantizing.context import Context
from stages.quantizing.values import Chain, Known, Quantized, Value

Array = np.ndarray[Any, Any]
STEPS = {
    "relax.add": "add",
    "relax.subtract": "subtract",
    "relax.multiply": "multiply",
    "relax.divide": "divide",
}


def arithmetic(context: Context, call: Any) -> Value:
    """Arithmetic with a constant, or the sum of two activations."""
    op = STEPS[call.op.name]
    left, right = (context.values[argument] for argument in call.args)
    if isinstance(right, Known):
        chain = context.chain(call.args[0])
        return chain.then(context.step(op, _per_channel(context, chain, right.value, call, 0)))
    if isinstance(left, Known) and op != "divide":
        chain = context.chain(call.args[1])
        reverse = "subtract_from" if op == "subtract" else op
        return chain.then(context.step(reverse, _per_channel(context, chain, left.value, call, 1)))
    if op == "add":
        return _residual_add(context, call)
    what = "a constant by an activation" if isinstance(left, Known) else "two activations"
    raise context.error(f"{op} of {what} has no integer form")


def relu(context: Context, call: Any) -> Value:
    """Rectified linear unit."""
    return context.chain(call.args[0]).then(step("maximum", 0.0))


def clip(context: Context, call: Any) -> Value:
    """Clipping to constant bounds."""
    low, high = (float(bound.value) for bound in call.args[1:])
    return context.chain(call.args[0]).then(step("maximum", low), step("minimum", high))


def batch_norm(context: Context, call: Any) -> Value:
    """Batch normalization in the order of its definition: subtract, multiply, divide, add."""
    names = ("gamma", "beta", "mean", "variance")
    gamma, beta, mean, variance = (
        context.known(argument, name) for argument, name in zip(call.args[1:], names, strict=True)
    )
    attrs, chain = attributes(call), context.chain(call.args[0])
    axis = attrs.get("channel_axis", 1)
    if axis != 1:
        raise context.error(f"normalization along axis {axis}; axis 1 is supported")
    if gamma.size > 1:
        features_are_channels(context, chain)
    variance = variance + np.float32(attrs["epsilon"])
    if not np.all(variance > 0):
        raise context.error("a normalization whose variance is not positive")
    return chain.then(
        context.step("subtract", mean),
        context.step("multiply", gamma),
        context.step("divide", np.sqrt(variance)),
        context.step("add", beta),
    )


def features_are_channels(context: Context, chain: Chain) -> None:
    """Refuse a value per feature behind a flattened map, where one channel has many features."""
    if chain.flattened is not None:
        c, h, w = chain.flattened
        raise context.error(
            f"a value per feature of a flattened map of {c} channels and {h} x {w} pixels",
            "do this per channel, before flattening",
        )


def _per_channel(context: Context, chain: Chain, constant: Array, call: Any, place: int) -> Array:
    """A broadcast constant as scalar or [C], channels last; argument `place` is the activation."""
    shape = shape_of(call.ty)
    if shape == shape_of(call.args[place].ty):
        if constant.size == 1:
            return constant.reshape(())
        aligned = (1,) * (len(shape) - constant.ndim) + constant.shape
        axis = min(1, len(shape) - 1)
        if constant.size == aligned[axis] == shape[axis]:
            features_are_channels(context, chain)
            return constant.reshape(-1)
    raise context.error(
        f"a constant of shape {list(constant.shape)} for an activation of shape "
        f"{list(shape_of(call.args[place].ty))}; one value, or one per channel, is supported"
    )


def _residual_add(context: Context, call: Any) -> Chain:
    """The integer sum of two activations on one grid."""
    left, right = (_addend(context, argument) for argument in call.args)
    if left.scale != right.scale:
        raise context.error(
            f"the addends are quantized at different scales, {left.scale} and {right.scale}",
            "quantize both at one shared scale",
        )
    shapes = [shape_of(addend.variable.ty) for addend in (left, right)]
    if shapes[0] != shapes[1] or left.flattened != right.flattened:
        raise context.error(
            f"the addends have the shapes {list(shape_of(call.args[0].ty))} and "
            f"{list(shape_of(call.args[1].ty))}, or one has been reshaped and the other has not"
        )
    points = left.zero_point_x2 // 2, right.zero_point_x2 // 2
    total = context.builder.emit(
        integer.add(
            left.variable, right.variable, lhs_zero_point=points[0], rhs_zero_point=points[1]
        ),
        context.layer,
    )
    channels, low = int(total.ty.shape[-1]), -sum(points)
    return Chain(
        total,
        (step("multiply", left.scale),),
        np.full(channels, low, np.int32),
        np.full(channels, low + left.levels + right.levels - 2, np.int32),
        flattened=left.flattened,
    )


def _addend(context: Context, argument: Any) -> Quantized:
    value = context.values[argument]
    if isinstance(value, Chain):
        value = value.as_quantized() or value
    if not isinstance(value, Quantized) or value.zero_point_x2 % 2:
        raise context.error(
            "an addend is not quantized to integers",
            "put a Quant of 8 bits on both inputs of the addition, at one scale",
        )
    return value
