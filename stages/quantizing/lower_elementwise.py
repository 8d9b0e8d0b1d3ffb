"""Elementwise operators: steps of a chain, and the residual addition of two activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.qnn import integer
from stages.qnn.registry import attributes
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
        constant = _per_channel(context, right.value, call)
        return context.chain(call.args[0]).then(step(op, constant))
    if isinstance(left, Known) and op != "divide":
        constant = _per_channel(context, left.value, call)
        reverse = "subtract_from" if op == "subtract" else op
        return context.chain(call.args[1]).then(step(reverse, constant))
    if op == "add":
        return _residual_add(context, call)
    raise context.error(f"{op} of two activations has no integer form")


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
    deviation = np.sqrt(variance + np.float32(attributes(call)["epsilon"]))
    return context.chain(call.args[0]).then(
        step("subtract", mean),
        step("multiply", gamma),
        step("divide", deviation),
        step("add", beta),
    )


def _per_channel(context: Context, constant: Array, call: Any) -> Array:
    """A broadcast constant as scalar or [C], channels last."""
    if constant.size == 1:
        return constant.reshape(())
    rank = len(call.ty.shape)
    shape = (1,) * (rank - constant.ndim) + constant.shape
    axis = 1 if rank in (2, 4) else rank - 1
    if constant.size == shape[axis] == int(call.ty.shape[axis]):
        return constant.reshape(-1)
    raise context.error(
        f"a constant of shape {list(constant.shape)} is neither one value nor one per channel"
    )


def _residual_add(context: Context, call: Any) -> Chain:
    """The integer sum of two activations on one grid."""
    left, right = (_addend(context, argument) for argument in call.args)
    if left.scale != right.scale:
        raise context.error(
            f"the addends are quantized at different scales, {left.scale} and {right.scale}",
            "quantize both at one shared scale",
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
