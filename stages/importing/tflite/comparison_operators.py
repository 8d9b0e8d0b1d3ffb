"""Converters of operators that compare and choose: MINIMUM, SELECT, EQUAL and their kin.

Sources: tensorflow/lite/kernels/{maximum_minimum,comparisons,select,logical}.cc and
internal/reference/comparisons.h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import BYTES
from stages.dialect.numbers_numpy import NUMPY
from stages.importing.relax_builder import value_shape
from stages.importing.tflite.broadcast_arithmetic import operands
from stages.importing.tflite.byte_luts import numerators_of_byte
from stages.importing.tflite.rescaling import fixed_point
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import rescale, tflite

Converter = Callable[[TfliteBuilder, Operator], Any]


def chosen(build: Callable[[Any, Any], Any]) -> Converter:
    """MINIMUM and MAXIMUM: of stored values, whatever their scales."""

    def convert(builder: TfliteBuilder, operator: Operator) -> Any:
        lhs, rhs = (builder.read(index) for index in operands(builder, operator))
        return builder.emit(build(lhs, rhs), operator.layer)

    return convert


def compared(build: Callable[[Any, Any], Any]) -> Converter:
    """A comparison; bytes are brought to a common scale first."""

    def convert(builder: TfliteBuilder, operator: Operator) -> Any:
        lhs, rhs = operator.input(0), operator.input(1)
        if builder.dtype(lhs) != builder.dtype(rhs):
            raise UnsupportedError(f"compares {builder.dtype(lhs)} with {builder.dtype(rhs)}")
        values = [_comparable(builder, operator, index) for index in (lhs, rhs)]
        return builder.emit(build(*values), operator.layer)

    return convert


def _comparable(builder: TfliteBuilder, operator: Operator, index: int) -> Any:
    """Bytes as the kernel compares them: moved to the left by 8 bits and rescaled to integers."""
    if builder.dtype(index) not in BYTES or builder.stated(index).quantization is None:
        return builder.read(index)
    source = builder.quantization(index)
    if source.scale >= 1:
        raise UnsupportedError(
            f"compares values of the scale {source.scale}, which must be below 1"
        )
    multiplier, shift = (np.int64(part) for part in fixed_point(float(source.scale)))
    moved = numerators_of_byte(source) << 8
    values = tflite.multiply(NUMPY, moved, multiplier, shift).astype(np.int32)
    name = f"{operator.layer}.{builder.stated(index).name}"
    table = builder.tensor(f"{name}.table", values)
    return builder.emit(rescale.table(builder.read(index), table), name)


def logical(build: Callable[[Any, Any], Any]) -> Converter:
    """LOGICAL_AND and LOGICAL_OR."""

    def convert(builder: TfliteBuilder, operator: Operator) -> Any:
        lhs, rhs = (builder.read(index) for index in operands(builder, operator))
        return builder.emit(build(lhs, rhs), operator.layer)

    return convert


def select(builder: TfliteBuilder, operator: Operator) -> Any:
    """SELECT and SELECT_V2; in the former a condition of rank 1 chooses whole rows."""
    condition, yes, no = (builder.read(operator.input(position)) for position in range(3))
    shape, wanted = value_shape(condition), value_shape(yes)
    if operator.kind == "SELECT" and len(shape) == 1 and len(wanted) > 1:
        rows = [*shape, *[1] * (len(wanted) - 1)]
        condition = builder.emit(relax.op.reshape(condition, rows), f"{operator.layer}.condition")
    return builder.emit(relax.op.where(condition, yes, no), operator.layer)


CONVERTERS = {
    "MINIMUM": chosen(relax.op.minimum),
    "MAXIMUM": chosen(relax.op.maximum),
    "EQUAL": compared(relax.op.equal),
    "NOT_EQUAL": compared(relax.op.not_equal),
    "LESS": compared(relax.op.less),
    "LESS_EQUAL": compared(relax.op.less_equal),
    "GREATER": compared(relax.op.greater),
    "GREATER_EQUAL": compared(relax.op.greater_equal),
    "LOGICAL_AND": logical(relax.op.logical_and),
    "LOGICAL_OR": logical(relax.op.logical_or),
    "SELECT": select,
    "SELECT_V2": select,
}
