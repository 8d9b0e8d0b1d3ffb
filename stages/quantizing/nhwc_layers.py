"""Float layers on images with their channels last, as vectors of output channels compute them.

The image is padded on its own, so that no sum asks where it is. Convolutions of each channel on
its own, or of windows with gaps, become loops (`direct_conv2d`). So do all where something is
quantized later, as a sum in another order could end on another level: there sums stay float64,
rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeGuard

import numpy as np
from tvm import relax

from stages.dialect import float_linear, integer, names
from stages.dialect.calls import dtype_of, is_op, shape_of, tensor_types
from stages.dialect.convolve import pad_spatial, windows
from stages.dialect.padding import Sides
from stages.graph.bindings import bindings_of, variables_in
from stages.graph.builder import ModelBuilder
from stages.kernels import direct_operators as direct
from stages.kinds import Array
from stages.nodes import Call, Expr, Function, Var, VarBinding
from stages.numerics.onnx_layers import window_sum2d


def is_convolution(expr: Expr) -> TypeGuard[Call]:
    """Whether an expression is a float convolution that is made one of channels last."""
    if not is_op(expr, names.CONV2D):
        return False
    attrs = expr.attrs
    is_source = str(attrs.data_layout) == "NCHW" and str(attrs.kernel_layout) == "OIHW"
    return is_source and _is_float(expr)


def is_dense(expr: Expr) -> TypeGuard[Call]:
    """Whether an expression is a product of floats, of one matrix on the right."""
    if not is_op(expr, names.MATMUL) or not _is_float(expr):
        return False
    left, right = (len(argument.ty.shape) for argument in expr.args)
    return left >= 2 and right == 2


def dense(builder: ModelBuilder, call: Call, data: Var, weight: Array, name: str) -> Any:
    """Emit a float product (`is_dense`) of data [..., K]; `weight` is its matrix [K, O]."""
    *outer, depth = shape_of(data.ty)
    if len(outer) > 1:
        data = builder.emit(relax.op.reshape(data, (prod(outer), depth)), f"{name}.rows")
    tensor = builder.tensor(f"{call.args[1].name}.oi", np.ascontiguousarray(weight.T))
    product = builder.emit(float_linear.float_dense(data, tensor), name)
    if len(outer) == 1:
        return product
    return builder.emit(relax.op.reshape(product, shape_of(call.ty)), f"{name}.unrowed")


def is_simple(call: Call) -> bool:
    """Whether a convolution adds up several channels, of windows without gaps."""
    is_depthwise = int(call.attrs.groups) > 1 and shape_of(call.args[1].ty)[1] == 1
    return not is_depthwise and [int(n) for n in call.attrs.dilation] == [1, 1]


def padded(builder: ModelBuilder, call: Call, data: Var, name: str) -> Any:
    """What a float convolution reads of an image with its channels last."""
    sides = Sides.of([int(count) for count in call.attrs.padding])
    if not any(sides):
        return data
    return builder.emit(relax.op.nn.pad(data, sides.pad_width(), pad_value=0.0), f"{name}.padded")


def convolution(
    builder: ModelBuilder, call: Call, data: Var, weight: Array, name: str, *, is_exact: bool
) -> Any:
    """What a float convolution is of an image with its channels last, and gives so.

    `call` is the operator as it was, `weight` [O, I, KH, KW] its constant weights.
    """
    attrs, weights = call.attrs, str(call.args[1].name)
    data = padded(builder, call, data, name)
    strides, dilation = ([int(n) for n in pair] for pair in (attrs.strides, attrs.dilation))
    if is_simple(call) and not is_exact:
        ohwi = np.ascontiguousarray(weight.transpose(0, 2, 3, 1))
        tensor = builder.tensor(f"{weights}.ohwi", ohwi)
        return float_linear.float_conv2d(data, tensor, strides=strides, groups=int(attrs.groups))
    if is_exact:
        data = builder.emit(relax.op.astype(data, "float64"), f"{name}.wide")
    hwio = np.ascontiguousarray(weight.transpose(2, 3, 1, 0))
    sums = direct.direct_conv2d(
        data,
        builder.tensor(f"{weights}.hwio", hwio),
        strides=strides,
        dilation=dilation,
        groups=int(attrs.groups),
        data_zero_point=0,
        weight_zero_point=0,
        dtype=dtype_of(data.ty),
    )
    if is_exact:
        return relax.op.astype(builder.emit(sums, f"{name}.sums"), "float32")
    return sums


def pool(builder: ModelBuilder, call: Call, data: Var, name: str) -> Any:
    """What a float pool (`is_pool`) is of an image with its channels last, and gives so."""
    sizes = {
        "kernel": [int(n) for n in call.attrs.pool_size],
        "strides": [int(n) for n in call.attrs.strides],
        "padding": [int(n) for n in call.attrs.padding],
    }
    if is_op(call, names.MAX_POOL2D):
        return integer.max_pool2d(data, **sizes)
    sums = window_sum2d(data, accumulator="float64", **sizes)
    if bool(call.attrs.count_include_pad):
        counts = np.asarray(prod(sizes["kernel"]), np.float32)
    else:
        counts = _counts(shape_of(data.ty)[1:3], **sizes)
    divisor = builder.tensor(f"{name}.counts", counts)
    return relax.op.divide(builder.emit(sums, f"{name}.sums"), divisor)


def _counts(
    shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int], padding: Sequence[int]
) -> Array:
    """How many pixels of an image [H, W] are in each of its windows: float32 [OH, OW, 1], or a
    scalar if they all have as many."""
    inside = pad_spatial(np.ones((1, *shape, 1), np.float32), padding, 0.0)
    counts = windows(inside, kernel, strides).sum(axis=(-2, -1))[0]
    return counts[0, 0, 0] if np.all(counts == counts[0, 0, 0]) else counts


def is_pool(expr: Expr) -> TypeGuard[Call]:
    """Whether an expression is a pool over neighbours in a float image."""
    if not isinstance(expr, Call) or getattr(expr.op, "name", "") not in names.POOLS:
        return False
    if not _is_float(expr):
        return False
    attrs = expr.attrs
    is_simple = not bool(attrs.ceil_mode) and [int(n) for n in attrs.dilation] == [1, 1]
    pairs = zip(attrs.padding, [*attrs.pool_size] * 2, strict=True)
    is_reached = all(int(before) < int(extent) for before, extent in pairs)
    return is_simple and is_reached and str(attrs.layout) == "NCHW"


def _is_float(call: Call) -> bool:
    """Whether an operator reads float32 and gives it."""
    return dtype_of(call.args[0].ty) == dtype_of(call.ty) == "float32"


def before_integers(main: Function) -> set[Var]:
    """The variables from which an integer is computed, however much later."""

    def is_integer(binding: VarBinding) -> bool:
        return not all(dtype_of(k).startswith("float") for k in tensor_types(binding.var.ty))

    return sources_of(main, is_integer)


def sources_of(main: Function, is_wanted: Callable[[Any], bool]) -> set[Var]:
    """The variables that some bindings depend on."""
    found: set[Var] = set()
    for binding in reversed(bindings_of(main)):
        if binding.var in found or is_wanted(binding):
            found.update(variables_in(binding.value))
    return found
