"""Elementwise operators: steps of a chain, and the residual addition of two activations."""

from __future__ import annotations

import numpy as np

from stages.dialect import integer
from stages.dialect.calls import attributes, shape_of
from stages.dialect.names import ADD, DIVIDE, MULTIPLY, SUBTRACT
from stages.kinds import Array
from stages.nodes import Call, Var
from stages.quantizing.chain import Step, step
from stages.quantizing.context import RANKS, Context
from stages.quantizing.values import Chain, Quantized, Value

STEPS = {
    ADD: "add",
    SUBTRACT: "subtract",
    MULTIPLY: "multiply",
    DIVIDE: "divide",
}


def arithmetic(context: Context, call: Call) -> Value:
    """Arithmetic with a constant, or the sum of two activations."""
    op = STEPS[call.op.name]
    left, right = map(context.constant, call.args)
    if right is not None:
        chain = context.chain(call.args[0])
        operand = _per_channel(context, chain, right, call, 0)
        return _followed(context, chain, context.step(op, operand))
    if left is not None and op != "divide":
        chain = context.chain(call.args[1])
        reverse = "subtract_from" if op == "subtract" else op
        operand = _per_channel(context, chain, left, call, 1)
        return _followed(context, chain, context.step(reverse, operand))
    if op == "add":
        return _residual_add(context, call)
    what = "two activations" if left is None else "a constant by an activation"
    raise context.no_form(f"{op} of {what}")


def relu(context: Context, call: Call) -> Value:
    """Rectified linear unit."""
    return context.chain(call.args[0]).then(step("maximum", 0.0))


def clip(context: Context, call: Call) -> Value:
    """Clipping to constant bounds."""
    low, high = (float(bound.value) for bound in call.args[1:])
    return context.chain(call.args[0]).then(step("maximum", low), step("minimum", high))


def batch_norm(context: Context, call: Call) -> Value:
    """Batch normalization along the channels."""
    steps, axis, chain = *normalization(context, call), context.chain(call.args[0])
    if axis != 1:
        raise context.no_form(f"normalization along axis {axis}")
    if any(each.operand.ndim for each in steps):
        features_are_channels(context, chain)
    return _followed(context, chain, *steps)


def _followed(context: Context, chain: Chain, *steps: Step) -> Chain:
    """A chain with further steps; what is pooled must not fall behind its pool."""
    result = chain.then(*steps)
    if chain.pools and not result.is_rising():
        raise context.no_form("a tensor that falls behind max pooling")
    return result


def normalization(context: Context, call: Call) -> tuple[tuple[Step, ...], int]:
    """Batch normalization in the order of its definition: subtract, multiply, divide, add; and
    the axis along which it has values of its own."""
    names = ("gamma", "beta", "mean", "variance")
    gamma, beta, mean, variance = (
        context.known(argument, name) for argument, name in zip(call.args[1:], names, strict=True)
    )
    attrs = attributes(call)
    variance = variance + np.float32(attrs["epsilon"])
    if not np.all(variance > 0):
        raise context.error("a normalization whose variance is not positive")
    steps = (
        context.step("subtract", mean),
        context.step("multiply", gamma),
        context.step("divide", np.sqrt(variance)),
        context.step("add", beta),
    )
    return steps, attrs.get("channel_axis", 1)


def features_are_channels(context: Context, chain: Chain) -> None:
    """Refuse a value per feature behind a flattened map, where one channel has many features."""
    if chain.flattened is not None:
        c, h, w = chain.flattened
        raise context.no_form(
            f"a value per feature of a flattened map of {c} channels and {h} x {w} pixels"
        )


def _per_channel(context: Context, chain: Chain, constant: Array, call: Call, place: int) -> Array:
    """A broadcast constant as scalar or [C], channels last; argument `place` is the activation."""
    shape = shape_of(call.ty)
    if shape == shape_of(call.args[place].ty):
        if constant.size == 1:
            return constant.reshape(())
        aligned = (1,) * (len(shape) - constant.ndim) + constant.shape
        axis = min(1, len(shape) - 1)
        is_last = len(chain.base.ty.shape) in RANKS
        if is_last and constant.size == aligned[axis] == shape[axis]:
            features_are_channels(context, chain)
            return constant.reshape(-1)
    raise context.no_form(
        f"a constant of shape {list(constant.shape)} for an activation of shape "
        f"{list(shape_of(call.args[place].ty))}"
    )


def _residual_add(context: Context, call: Call) -> Chain:
    """The integer sum of two activations on one grid."""
    left, right = (_addend(context, argument) for argument in call.args)
    scales = [addend.quantization.scale for addend in (left, right)]
    if scales[0] != scales[1]:
        raise context.no_form(
            f"the addends are quantized at different scales, {scales[0]} and {scales[1]}"
        )
    shapes = [shape_of(addend.variable.ty) for addend in (left, right)]
    if shapes[0] != shapes[1] or left.flattened != right.flattened:
        raise context.no_form(
            f"the addends have the shapes {list(shape_of(call.args[0].ty))} and "
            f"{list(shape_of(call.args[1].ty))}, or one has been reshaped and the other has not"
        )
    levels = left.quantization.levels, right.quantization.levels
    call = integer.add(
        left.variable,
        right.variable,
        lhs_zero_point=levels[0].zero_point,
        rhs_zero_point=levels[1].zero_point,
    )
    total = context.builder.emit(call, context.layer)
    low, high = map(sum, zip(*(each.numerators for each in levels), strict=True))
    channels = int(total.ty.shape[-1])
    return Chain(
        total,
        (step("multiply", scales[0]),),
        np.full(channels, low, np.int32),
        np.full(channels, high, np.int32),
        flattened=left.flattened,
    )


def _addend(context: Context, argument: Var) -> Quantized:
    value = context.activation(argument)
    if not value.quantization.zero_point.is_whole:
        raise context.no_form("an addend has a half-integer zero point")
    return value
