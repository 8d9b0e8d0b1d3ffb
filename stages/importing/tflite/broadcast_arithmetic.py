"""Converters of ADD, SUB and MUL of integers, whose operands broadcast.

Sources: tensorflow/lite/kernels/{add,sub,mul}.cc and reference/integer_ops/{add,mul}.h.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from tvm import relax

from stages.importing.tflite.activations import require_no_activation, stored_range
from stages.importing.tflite.rescaling import fixed_point
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import tflite

QUANTIZED = ("int8", "uint8", "int16")


def operands(builder: TfliteBuilder, operator: Operator) -> tuple[int, int]:
    """The two operands' indices; UnsupportedError unless they are of the output's type."""
    found = operator.input(0), operator.input(1)
    types = [builder.dtype(index) for index in (*found, operator.outputs[0])]
    if len(set(types)) != 1:
        raise UnsupportedError(f"combines {types[0]} and {types[1]} to {types[2]}")
    return found


def _plain(builder: TfliteBuilder, operator: Operator, combine: Any) -> Any:
    """Integers that are not quantized."""
    require_no_activation(operator)
    values = [builder.read(index) for index in operands(builder, operator)]
    return builder.emit(combine(*values), operator.layer)


def _log2(scale: np.float32) -> int | None:
    """The exponent of a scale that is a power of two, as CheckedLog2 has it."""
    exponent = np.float32(log(float(scale))) * np.float32(1 / log(2.0))
    rounded = tflite.round_half_away(float(exponent))
    return rounded if abs(float(exponent) - rounded) < 1e-3 else None


def _sum(builder: TfliteBuilder, operator: Operator, sign: int) -> Any:
    lhs, rhs = operands(builder, operator)
    output = operator.outputs[0]
    left, right, out = (builder.quantization(index) for index in (lhs, rhs, output))
    dtype = builder.dtype(output)
    low, high = stored_range(builder, operator)
    if dtype == "int16":
        exponents = [_log2(each.scale) for each in (left, right, out)]
        if operator.option("pot_scale_int16", False) and None not in exponents:
            return _shifted_sum(builder, operator, sign, exponents)
        if any(each.zero_point for each in (left, right, out)):
            raise UnsupportedError("has int16 tensors with zero points; 0 is accepted")
    left_shift = 15 if dtype == "int16" else 20
    twice = float(np.float32(2) * max(left.scale, right.scale))
    lhs_factor, rhs_factor = (fixed_point(float(each.scale) / twice) for each in (left, right))
    factor = twice / float(np.float32(1 << left_shift) * out.scale)
    if factor >= 1:
        raise UnsupportedError(f"rescales by {factor}, which must be below 1")
    multiplier, shift = fixed_point(factor)
    call = tflite.add(
        builder.read(lhs),
        builder.read(rhs),
        left_shift=left_shift,
        lhs_zero_point=left.zero_point,
        lhs_multiplier=lhs_factor[0],
        lhs_shift=lhs_factor[1],
        rhs_zero_point=right.zero_point,
        rhs_multiplier=sign * rhs_factor[0],
        rhs_shift=rhs_factor[1],
        multiplier=multiplier,
        shift=shift,
        zero_point=out.zero_point,
        low=low,
        high=high,
        dtype=dtype,
    )
    return builder.emit(call, operator.layer)


def _shifted_sum(
    builder: TfliteBuilder, operator: Operator, sign: int, exponents: list[Any]
) -> Any:
    """The kernels' special case of int16 whose scales are powers of two."""
    lhs, rhs = operands(builder, operator)
    shifts = exponents[2] - exponents[0], exponents[2] - exponents[1]
    if 0 not in shifts or min(shifts) < 0 or max(shifts) > 31:
        raise UnsupportedError(f"shifts its operands by {list(shifts)}; one may be above 0")
    if any(builder.quantization(i).zero_point for i in (lhs, rhs, operator.outputs[0])):
        raise UnsupportedError("has int16 tensors with zero points; 0 is accepted")
    low, high = stored_range(builder, operator)
    call = tflite.add_shifted(
        builder.read(lhs),
        builder.read(rhs),
        lhs_shift=shifts[0],
        rhs_shift=shifts[1],
        sign=sign,
        low=low,
        high=high,
        dtype="int16",
    )
    return builder.emit(call, operator.layer)


def add(builder: TfliteBuilder, operator: Operator) -> Any:
    """ADD of quantized or plain integers."""
    if builder.dtype(operator.outputs[0]) in QUANTIZED:
        return _sum(builder, operator, 1)
    return _plain(builder, operator, relax.op.add)


def sub(builder: TfliteBuilder, operator: Operator) -> Any:
    """SUB of quantized or plain integers."""
    if builder.dtype(operator.outputs[0]) in QUANTIZED:
        return _sum(builder, operator, -1)
    return _plain(builder, operator, relax.op.subtract)


def mul(builder: TfliteBuilder, operator: Operator) -> Any:
    """MUL of quantized or plain integers; the scales are multiplied in float32."""
    lhs, rhs = operands(builder, operator)
    output = operator.outputs[0]
    if builder.dtype(output) not in QUANTIZED:
        return _plain(builder, operator, relax.op.multiply)
    left, right, out = (builder.quantization(index) for index in (lhs, rhs, output))
    multiplier, shift = fixed_point(float(np.float32(left.scale * right.scale) / out.scale))
    low, high = stored_range(builder, operator)
    call = tflite.mul(
        builder.read(lhs),
        builder.read(rhs),
        lhs_zero_point=left.zero_point,
        rhs_zero_point=right.zero_point,
        multiplier=multiplier,
        shift=shift,
        zero_point=out.zero_point,
        low=low,
        high=high,
        dtype=builder.dtype(output),
    )
    return builder.emit(call, operator.layer)


CONVERTERS = {"ADD": add, "SUB": sub, "MUL": mul}
