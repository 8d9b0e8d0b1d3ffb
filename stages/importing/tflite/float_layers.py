"""Converters of layers of float32: Relax operators, whose sums are float64 and rounded once.

LiteRT sums in float32, each of its kernels in an order of its own, so results agree to a few units
in the last place, not bit for bit. Relax has these layers in NCHW: transposes surround them, which
a later pass cancels between neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.tflite import hybrid_layers as hybrid
from stages.importing.tflite import larq
from stages.importing.tflite.activations import (
    activated,
    padding_of,
    require_no_activation,
    strides_of,
)
from stages.importing.tflite.broadcast_arithmetic import operands
from stages.importing.tflite.integer_pools import pool_attributes
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Operator
from stages.importing.unsupported import UnsupportedError


def require_floats(builder: TfliteBuilder, indices: list[int]) -> None:
    """UnsupportedError unless all tensors are float32."""
    for index in indices:
        if builder.dtype(index) != "float32":
            name = builder.stated(index).name
            raise UnsupportedError(
                f"gives float32 of '{name}' in {builder.dtype(index)}; float32 is accepted"
            )


def in_nchw(builder: TfliteBuilder, operator: Operator, build: Callable[[Any], Any]) -> Any:
    """An operator of NCHW data between transposes from and to NHWC."""
    layer, data = operator.layer, builder.read(operator.input(0))
    moved = builder.emit(relax.op.permute_dims(data, [0, 3, 1, 2]), f"{layer}.nchw")
    result = builder.emit(build(moved), f"{layer}.result")
    return builder.emit(relax.op.permute_dims(result, [0, 2, 3, 1]), layer)


def _oihw(builder: TfliteBuilder, index: int, layer: str, order: tuple[int, ...]) -> Any:
    if builder.is_constant(index):
        name = builder.stated(index).name
        return builder.tensor(name, builder.constants[index].transpose(order))
    return builder.emit(relax.op.permute_dims(builder.read(index), order), f"{layer}.weights")


def _biased(builder: TfliteBuilder, operator: Operator, total: Any) -> Any:
    if operator.has(2):
        bias = builder.read(operator.input(2), (int(total.ty.shape[-1]),))
        total = builder.emit(relax.op.add(total, bias), f"{operator.layer}.bias")
    return activated(builder, operator, total)


def _convolution(
    builder: TfliteBuilder, operator: Operator, order: tuple[int, ...], depthwise: bool
) -> Any:
    data, weight = operator.input(0), operator.input(1)
    require_floats(builder, [data, weight])
    shape, weight_shape = builder.shape(data), builder.shape(weight)
    if len(shape) != 4 or len(weight_shape) != 4:
        raise UnsupportedError(f"has data of {list(shape)} and weights of {list(weight_shape)}")
    depth = 1 if depthwise else weight_shape[3]
    if shape[3] % depth or (depthwise and (weight_shape[0] != 1 or weight_shape[3] % shape[3])):
        raise UnsupportedError(f"has weights of {list(weight_shape)} for {shape[3]} channels")
    dilation = [int(operator.option(f"dilation_{a}_factor", 1)) for a in "hw"]
    if min(dilation) < 1:
        raise UnsupportedError(f"has the dilation {dilation}")
    strides = strides_of(operator)
    span = (weight_shape[1] - 1) * dilation[0] + 1, (weight_shape[2] - 1) * dilation[1] + 1
    padding = padding_of(operator, (shape[1], shape[2]), span, strides)
    weights = _oihw(builder, weight, operator.layer, order)

    def build(moved: Any) -> Any:
        return relax.op.nn.conv2d(
            moved, weights, list(strides), list(padding), dilation, shape[3] // depth
        )

    return _biased(builder, operator, in_nchw(builder, operator, build))


def conv_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """CONV_2D: weights [O, KH, KW, C / groups]."""
    if hybrid.is_hybrid(builder, operator):
        return hybrid.conv_2d(builder, operator)
    if larq.is_binarised(builder, operator):
        return larq.binarised_conv_2d(builder, operator)
    return _convolution(builder, operator, (0, 3, 1, 2), depthwise=False)


def depthwise_conv_2d(builder: TfliteBuilder, operator: Operator) -> Any:
    """DEPTHWISE_CONV_2D: weights [1, KH, KW, C * multiplier]."""
    if hybrid.is_hybrid(builder, operator):
        return hybrid.depthwise_conv_2d(builder, operator)
    return _convolution(builder, operator, (3, 0, 1, 2), depthwise=True)


def fully_connected(builder: TfliteBuilder, operator: Operator) -> Any:
    """FULLY_CONNECTED: weights [O, K]; data of any shape is seen as [N, K]."""
    if hybrid.is_hybrid(builder, operator):
        return hybrid.fully_connected(builder, operator)
    data, weight, layer = operator.input(0), operator.input(1), operator.layer
    require_floats(builder, [data, weight])
    if operator.option("weights_format", 0):
        raise UnsupportedError("has shuffled weights")
    shape, (units, depth) = builder.shape(data), builder.shape(weight)
    if prod(shape) % depth:
        raise UnsupportedError(f"has weights of {depth} features for data of {list(shape)}")
    rows = builder.emit(
        relax.op.reshape(builder.read(data), (prod(shape) // depth, depth)), f"{layer}.rows"
    )
    weights = _oihw(builder, weight, layer, (1, 0))
    total = builder.emit(relax.op.matmul(rows, weights), layer)
    result = _biased(builder, operator, total)
    if not operator.option("keep_num_dims", False):
        return result
    return builder.emit(relax.op.reshape(result, (*shape[:-1], units)), f"{layer}.shape")


def batch_matmul(builder: TfliteBuilder, operator: Operator) -> Any:
    """BATCH_MATMUL, either operand transposed where the options say so."""
    require_floats(builder, [operator.input(0), operator.input(1)])
    values = []
    for position, name in enumerate(("adj_x", "adj_y")):
        value = builder.read(operator.input(position))
        if operator.option(name, False):
            order = list(range(len(value.ty.shape)))
            order[-2:] = order[-1], order[-2]
            call = relax.op.permute_dims(value, order)
            value = builder.emit(call, f"{operator.layer}.{name}")
        values.append(value)
    return builder.emit(relax.op.matmul(*values), operator.layer)


def pooled(build: Callable[..., Any]) -> Callable[[TfliteBuilder, Operator], Any]:
    """AVERAGE_POOL_2D or MAX_POOL_2D; padding does not count."""

    def convert(builder: TfliteBuilder, operator: Operator) -> Any:
        pool = pool_attributes(builder, operator)
        result = in_nchw(
            builder,
            operator,
            lambda moved: build(moved, pool["kernel"], pool["strides"], pool["padding"]),
        )
        return activated(builder, operator, result)

    return convert


def combined(
    build: Callable[[Any, Any], Any],
) -> Callable[[TfliteBuilder, Operator], Any]:
    """An operator of two operands that broadcast, with a fused activation."""

    def convert(builder: TfliteBuilder, operator: Operator) -> Any:
        lhs, rhs = (builder.read(index) for index in operands(builder, operator))
        return activated(builder, operator, builder.emit(build(lhs, rhs), operator.layer))

    return convert


def squared_difference(builder: TfliteBuilder, operator: Operator) -> Any:
    """SQUARED_DIFFERENCE."""
    lhs, rhs = (builder.read(index) for index in operands(builder, operator))
    difference = builder.emit(relax.op.subtract(lhs, rhs), f"{operator.layer}.difference")
    return builder.emit(relax.op.square(difference), operator.layer)


def l2_normalization(builder: TfliteBuilder, operator: Operator) -> Any:
    """L2_NORMALIZATION over the last axis: `x / max(sqrt(sum(x^2)), 1e-6)`."""
    require_no_activation(operator)
    data, layer = builder.read(operator.input(0)), operator.layer
    squares = builder.emit(relax.op.square(data), f"{layer}.squares")
    total = builder.emit(relax.op.sum(squares, [-1], True), f"{layer}.sum")
    root = builder.emit(relax.op.sqrt(total), f"{layer}.root")
    least = builder.tensor(f"{layer}.least", np.array([1e-6], np.float32))
    norm = builder.emit(relax.op.maximum(root, least), f"{layer}.norm")
    return builder.emit(relax.op.divide(data, norm), layer)


FLOAT = {
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "FULLY_CONNECTED": fully_connected,
    "BATCH_MATMUL": batch_matmul,
    "AVERAGE_POOL_2D": pooled(relax.op.nn.avg_pool2d),
    "MAX_POOL_2D": pooled(relax.op.nn.max_pool2d),
    "ADD": combined(relax.op.add),
    "SUB": combined(relax.op.subtract),
    "MUL": combined(relax.op.multiply),
    "DIV": combined(relax.op.divide),
    "SQUARED_DIFFERENCE": squared_difference,
    "L2_NORMALIZATION": l2_normalization,
}
