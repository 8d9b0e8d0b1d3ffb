"""Kinds of composite, and what decides them.

A TE composite computes on tensors as the user sees them and is compiled from the tensor
expressions of its operators. Composites of products have a synthesized micro-kernel inside; those
that are not of levels also write tensors as the user sees them, and are called `products`.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeGuard

from stages.dialect import batch_matmul, names
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of, storage_dtype
from stages.dialect.dtypes import parse
from stages.dialect.zero_point import AT_ZERO
from stages.graph.bindings import bindings_of, outputs_of
from stages.nodes import Call, Expr, Function

TE = "plain"
"""The attribute `composite` of a TE composite's function, compiled from tensor expressions."""
LINEAR = "products"
"""The attribute `composite` of a function whose sums a micro-kernel of 8-bit products computes."""
DEPTHWISE = "depthwise"
"""The attribute `composite` of a function around a depthwise convolution of a pre-quantized model,
whose taps lie side by side."""
IMAGES = "pictures"
"""The attribute `composite` of a function that writes images of few channels, a word a pixel."""
TILES = "tiles"
"""The attribute `composite` of a function that transforms images for Winograd's products."""
MATRICES = "matrices"
"""The attribute `composite` of a function that packs weights which are computed."""

POOL_KINDS = {names.QNN_MAX_POOL2D: "max", names.QNN_SUM_POOL2D: "sum"}
"""Operators that pool integers, and what they make of a window."""

LEAST_CHANNELS, MOST_TAPS = 8, 64
"""A maximum pool of bytes has a kernel if it has at least so many channels, which are compared at
once, and at most so many taps, which are instructions in a row."""


def calls_in(function: Function) -> list[Any]:
    """The operators of a composite, in order."""
    return [b.value for b in bindings_of(function) if isinstance(b.value, Call)]


def max_pool_of(function: Function) -> Any:
    """The maximum pool of bytes that a composite is, inside a halo or not, from inside one or not;
    else None."""
    calls = {str(call.op.name).removeprefix("relax.qnn."): call for call in calls_in(function)}
    pool = calls.get("max_pool2d")
    if pool is None or not calls.keys() <= {"from_bytes", "max_pool2d", "to_bytes"}:
        return None
    is_alone = len(calls_in(function)) == len(calls) and len(outputs_of(function)) == 1
    is_bytes = storage_dtype(dtype_of(pool.ty)).itemsize == 1
    is_small = prod(attributes(pool)["kernel"]) <= MOST_TAPS
    is_even = shape_of(pool.ty)[3] % LEAST_CHANNELS == 0
    return pool if is_alone and is_bytes and is_small and is_even else None


def pad_of(function: Function) -> Any:
    """The padding with a constant that a TE composite is, whatever type it gives; else None."""
    calls = calls_in(function)
    if str(function.attrs["composite"]) != TE or not is_op(calls[0], names.PAD):
        return None
    is_constant = str(calls[0].attrs.pad_mode) == "constant"
    is_alone = len(outputs_of(function)) == 1 and (
        len(calls) == 1 or (len(calls) == 2 and is_op(calls[1], names.ASTYPE))
    )
    return calls[0] if is_constant and is_alone else None


def is_linear(expr: object) -> TypeGuard[Call]:
    """Whether an expression is a convolution or matrix product of levels or bytes."""
    return is_op(expr, *names.INTEGER_LINEAR)


def is_reshape(expr: Expr) -> bool:
    """Whether an expression names the memory of another tensor anew."""
    return isinstance(expr, Call) and str(getattr(expr.op, "name", "")) in names.RESHAPES


def is_of_levels(function: Function) -> bool:
    """Whether a composite is one of levels, not of bytes with their own arithmetic or floats."""
    return str(function.attrs["composite"]) not in (TE, LINEAR)


def is_depthwise(call: Call) -> bool:
    """Whether a convolution is depthwise: each output channel reads one channel of the input."""
    return attributes(call).get("groups", 1) > 1 and shape_of(call.args[1].ty)[-1] == 1


def is_float_product(call: Expr | None) -> bool:
    """Whether an expression is a product of floats for a micro-kernel."""
    return str(getattr(getattr(call, "op", None), "name", "")) in names.FLOAT_LINEAR


def is_batched(call: Expr | None) -> bool:
    """Whether an expression is a product for a micro-kernel whose weights are computed: of unsigned
    bytes, and of signed ones or what they are from 128 on."""
    if is_op(call, names.QNN_FLOAT_BATCH_DENSE):
        return True
    if not is_op(call, names.QNN_BATCH_DENSE):
        return False
    data, weight = (dtype_of(argument.ty) for argument in call.args)
    attrs = attributes(call)
    zero_points = attrs["data_zero_point"], attrs["weight_zero_point"]
    stored = {"int8": AT_ZERO, "uint8": batch_matmul.BYTE_ZERO_POINT}
    return data == "uint8" and weight in stored and zero_points == (AT_ZERO, stored[weight])


def is_product(call: Expr) -> bool:
    """Whether legalizing has left a product for a micro-kernel."""
    if is_float_product(call) or is_batched(call):
        return True
    if str(getattr(getattr(call, "op", None), "name", "")) in names.BIT_LINEAR:
        return True
    if not has_kernel_form(call) or attributes(call)["weight_zero_point"]:
        return False
    data, weight = (dtype_of(argument.ty) for argument in call.args)
    return parse(data).kind == "uint" and weight in ("int8", "int16")


def has_kernel_form(call: Expr) -> TypeGuard[Call]:
    """Whether a linear layer is neither dilated nor depthwise, with activations of at most 8 bits.

    Those of int8 have a whole zero point, so that moving them by 128 keeps it one.
    """
    if not is_linear(call):
        return False
    attrs, data = attributes(call), dtype_of(call.args[0].ty)
    is_simple = not is_depthwise(call) and list(attrs.get("dilation", [1, 1])) == [1, 1]
    if not is_simple or attrs.get("dtype", "int32") != "int32":
        return False
    if data == "int8":
        return bool(attrs["data_zero_point"].is_whole)
    return parse(data).kind == "uint" and parse(data).bits <= 8
