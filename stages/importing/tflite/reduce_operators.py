"""Converters of reductions: MEAN, SUM, REDUCE_MAX, REDUCE_MIN, ARG_MAX, ARG_MIN.

Sources: tensorflow/lite/kernels/{reduce,arg_min_max}.cc, internal/reference/reduce.h.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.relax_builder import value_dtype
from stages.importing.tflite.activations import stored_range
from stages.importing.tflite.movement import index_type, normal_axis
from stages.importing.tflite.rescaling import fixed_point
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import tflite

QUANTIZED = ("int8", "uint8", "int16")


def axes_of(builder: TfliteBuilder, operator: Operator) -> tuple[int, ...]:
    """The axes that are reduced, each once."""
    rank = len(builder.shape(operator.input(0)))
    found = {normal_axis(axis, rank) for axis in builder.integers(operator.input(1))}
    return tuple(sorted(found))


def _is_quantized(builder: TfliteBuilder, operator: Operator) -> bool:
    index = operator.input(0)
    return builder.dtype(index) in QUANTIZED and builder.stated(index).quantization is not None


def _reduced(
    builder: TfliteBuilder, operator: Operator, reduce: Callable[..., Any], data: Any, name: str
) -> Any:
    axes = axes_of(builder, operator)
    if not axes:
        return data
    keepdims = bool(operator.option("keep_dims", False))
    return builder.emit(reduce(data, list(axes), keepdims), name)


def _divided(multiplier: int, shift: int, count: int) -> tuple[int, int]:
    """A factor by a count, as the kernel folds them: with as many bits as fit."""
    places = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << places) // count, shift - places


def mean(builder: TfliteBuilder, operator: Operator) -> Any:
    """MEAN of quantized integers: the exact sum, rescaled by a factor that holds the count."""
    if not _is_quantized(builder, operator):
        raise UnsupportedError(f"has {builder.dtype(operator.input(0))} data without a scale")
    data, output = operator.input(0), operator.outputs[0]
    source, out = builder.quantization(data), builder.quantization(output)
    axes, layer = axes_of(builder, operator), operator.layer
    count = prod(builder.shape(data)[axis] for axis in axes)
    multiplier, shift = _divided(*fixed_point(float(source.scale) / float(out.scale)), count)
    wide = builder.emit(relax.op.astype(builder.read(data), "int32"), f"{layer}.wide")
    total = _reduced(builder, operator, relax.op.sum, wide, f"{layer}.sum")
    if source.zero_point:
        offset = np.array(source.zero_point.whole * count, np.int32)
        moved = builder.tensor(f"{layer}.offset", offset)
        total = builder.emit(relax.op.subtract(total, moved), f"{layer}.moved")
    low, high = stored_range(builder, operator)
    call = tflite.requantize(
        total,
        builder.tensor(f"{layer}.multiplier", np.array([multiplier], np.int32)),
        builder.tensor(f"{layer}.shift", np.array([shift], np.int32)),
        zero_point=out.zero_point,
        low=low,
        high=high,
        dtype=builder.dtype(output),
    )
    return builder.emit(call, f"{layer}.requantize")


def sum_(builder: TfliteBuilder, operator: Operator) -> Any:
    """SUM of floats (in float64, rounded once) or of integers that are not quantized."""
    if _is_quantized(builder, operator):
        # LiteRT 2.3 gives results for negative sums of int8 that no rule explains.
        raise UnsupportedError("sums quantized integers, for which there is no defined result")
    data = builder.read(operator.input(0))
    return _reduced(builder, operator, relax.op.sum, data, operator.layer)


def extreme(reduce: Callable[..., Any]) -> Callable[[TfliteBuilder, Operator], Any]:
    """REDUCE_MAX or REDUCE_MIN: stored values are compared."""

    def convert(builder: TfliteBuilder, operator: Operator) -> Any:
        data = operator.input(0)
        if _is_quantized(builder, operator) and (
            builder.quantization(data) != builder.quantization(operator.outputs[0])
        ):
            raise UnsupportedError("has an output of another scale than its operand")
        return _reduced(builder, operator, reduce, builder.read(data), operator.layer)

    return convert


def mean_float(builder: TfliteBuilder, operator: Operator) -> Any:
    """MEAN of floats: the sum in float64, rounded, by the count."""
    data = builder.read(operator.input(0))
    return _reduced(builder, operator, relax.op.mean, data, operator.layer)


def position(reduce: Callable[..., Any]) -> Callable[[TfliteBuilder, Operator], Any]:
    """ARG_MAX or ARG_MIN: the first position along a constant axis."""

    def convert(builder: TfliteBuilder, operator: Operator) -> Any:
        data, wanted = operator.input(0), index_type(operator, "output_type")
        (stated,) = builder.integers(operator.input(1))
        axis = normal_axis(stated, len(builder.shape(data)))
        found = builder.emit(reduce(builder.read(data), axis, False), f"{operator.layer}.position")
        if value_dtype(found) == wanted:
            return found
        return builder.emit(relax.op.astype(found, wanted), operator.layer)

    return convert


CONVERTERS = {
    "MEAN": mean,
    "SUM": sum_,
    "REDUCE_MAX": extreme(relax.op.max),
    "REDUCE_MIN": extreme(relax.op.min),
    "ARG_MAX": position(relax.op.argmax),
    "ARG_MIN": position(relax.op.argmin),
}
FLOAT = {"MEAN": mean_float}
