"""TensorFlow Lite's softmax of integers over the last axis.

Each step is arithmetic over `Numbers`, read in NumPy and as TE tensors.
Source: tensorflow/lite/kernels/internal/reference/softmax.h.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import te

from stages.dialect.calls import Attrs, dtype_of, shape_of
from stages.dialect.dtypes import limits, parse
from stages.dialect.numbers import Numbers, Value
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.numbers_tir import TIR
from stages.dialect.registry import register
from stages.kinds import Array
from stages.nodes import Scalar, Tensor, TensorType
from stages.numerics import fixed_point as fixed
from stages.numerics.last_axis import last_axis_type, named, outer_shape, reduced
from stages.numerics.tflite import divide_by_power, multiply

ACCUMULATOR_BITS = 12
"""Integer bits of the sum of exponentials."""


# Bytes: the exponentials of the 256 possible differences are a table.


def _shares(m: Numbers, exps: Value, difference: Value) -> tuple[Value, Value]:
    """An exponential as Q0.31, and as Q12.19 for the sum."""
    power = m.cast(m.look_up(exps, difference), "int64")
    return power, divide_by_power(m, power, fixed.whole(m, ACCUMULATOR_BITS))


def _scaled(
    m: Numbers, power: Value, reciprocal: Value, zeros: Value, bits: int, dtype: str
) -> Value:
    low, high = limits(dtype)
    places = fixed.whole(m, ACCUMULATOR_BITS + 31 - bits) - zeros
    value = divide_by_power(m, fixed.high_product(m, reciprocal, power), places)
    moved = value + fixed.whole(m, low)
    return m.cast(m.minimum(moved, fixed.whole(m, high)), dtype)


def _reciprocal(m: Numbers, total: Value, zeros: Value) -> Value:
    return fixed.one_over_one_plus(m, fixed.without_leading_bit(m, total, zeros))


def _softmax_bytes_te(data: Tensor, exps: Tensor, *, dtype: str) -> Tensor:
    bits = parse(dtype).bits
    most = reduced(data, te.max, lambda i: data(*i).astype("int32"), "most")

    def difference(index: Sequence[Scalar]) -> Scalar:
        return most(*index[:-1]) - data(*index).astype("int32")

    total = reduced(data, te.sum, lambda i: _shares(TIR, exps, difference(i))[1], "total")
    zeros = te.compute(
        outer_shape(data), lambda *i: named(fixed.leading_zeros(TIR, total(*i))), name="zeros"
    )
    inverse = te.compute(
        outer_shape(data), lambda *i: named(_reciprocal(TIR, total(*i), zeros(*i))), name="inverse"
    )

    def at(*i: Scalar) -> Scalar:
        power, row = _shares(TIR, exps, difference(i))[0], i[:-1]
        return named(_scaled(TIR, power, inverse(*row), zeros(*row), bits, dtype))

    return te.compute(data.shape, at, name="softmax")


def _infer_bytes(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    dtype = str(attrs["dtype"])
    if dtype not in ("int8", "uint8", "int16"):
        raise ValueError(f"a result of {dtype}; int8, uint8 and int16 exist")
    if shape_of(types[1]) != (256,) or dtype_of(types[1]) != "int32":
        raise ValueError("exponentials that are not int32 [256]")
    return last_axis_type(types, ("int8", "uint8"), dtype)


@register("tflite_softmax", ["data", "exps"], _infer_bytes, _softmax_bytes_te)
def softmax_of_bytes(data: Array, exps: Array, *, dtype: str) -> Array:
    """Softmax of bytes over the last axis, at a scale of 2^-bits of the result.

    `exps` is int32 [256]: e^(scale * -d) as Q0.31 for a distance d from the row's largest byte.
    """
    difference = data.max(-1, keepdims=True).astype(np.int32) - data.astype(np.int32)
    power, share = _shares(NUMPY, exps, difference)
    total = share.sum(-1, keepdims=True)
    zeros = fixed.leading_zeros(NUMPY, total)
    inverse = _reciprocal(NUMPY, total, zeros)
    result: Array = _scaled(NUMPY, power, inverse, zeros, parse(dtype).bits, dtype)
    return result


# int16: exponentials and reciprocal are interpolated in tables.


def _exp_of_int16(m: Numbers, exps: Value, difference: Value, multiplier: int, shift: int) -> Value:
    """e^x as Q0.15 (int32) of a difference from the largest, which is not positive."""
    factor, places = fixed.whole(m, multiplier), fixed.whole(m, shift)
    moved = multiply(m, difference, factor, places) + fixed.whole(m, 32767)
    bounded = m.minimum(m.maximum(moved, fixed.whole(m, -32768)), fixed.whole(m, 32767))
    return fixed.interpolated(m, exps, m.cast(bounded, "int32"))


def _reciprocal_of_int16(m: Numbers, table: Value, total: Value, zeros: Value) -> Value:
    up = zeros - fixed.whole(m, 1)
    shifted = ((total << up) + fixed.whole(m, 1 << 13)) >> fixed.whole(m, 14)
    moved = shifted - fixed.whole(m, (1 << 15) + (1 << 16))
    bounded = m.minimum(m.maximum(moved, fixed.whole(m, -32768)), fixed.whole(m, 32767))
    return fixed.interpolated(m, table, m.cast(bounded, "int32"))


def _scaled_int16(m: Numbers, power: Value, inverse: Value, zeros: Value) -> Value:
    places = fixed.whole(m, 31) - zeros
    half = fixed.whole(m, 1) << (places - fixed.whole(m, 1))
    value = (m.cast(power, "int64") * m.cast(inverse, "int64") + half) >> places
    bounded = m.minimum(m.maximum(value, fixed.whole(m, 0)), fixed.whole(m, 32767))
    return m.cast(bounded, "int16")


def _softmax_int16_te(
    data: Tensor, exps: Tensor, reciprocals: Tensor, *, multiplier: int, shift: int
) -> Tensor:
    most = reduced(data, te.max, lambda i: data(*i).astype("int32"), "most")

    def power(index: Sequence[Scalar]) -> Scalar:
        difference = data(*index).astype("int32") - most(*index[:-1])
        return _exp_of_int16(TIR, exps, difference, multiplier, shift)

    total = reduced(data, te.sum, lambda i: power(i).astype("int64"), "total")
    zeros = te.compute(
        outer_shape(data), lambda *i: named(fixed.leading_zeros(TIR, total(*i))), name="zeros"
    )
    inverse = te.compute(
        outer_shape(data),
        lambda *i: named(_reciprocal_of_int16(TIR, reciprocals, total(*i), zeros(*i))),
        name="inverse",
    )
    return te.compute(
        data.shape,
        lambda *i: named(_scaled_int16(TIR, power(i), inverse(*i[:-1]), zeros(*i[:-1]))),
        name="softmax",
    )


@register(
    "tflite_softmax_int16",
    ["data", "exps", "reciprocals"],
    lambda types, _attrs: last_axis_type(types, ("int16",), "int16"),
    _softmax_int16_te,
)
def softmax_of_int16(
    data: Array, exps: Array, reciprocals: Array, *, multiplier: int, shift: int
) -> Array:
    """Softmax of int16 over the last axis, at a scale of 2^-15.

    `exps` (of -10 to 0) and `reciprocals` (1 / (1 + x) of 0 to 1) are int16 [513].
    """
    difference = data.astype(np.int32) - data.max(-1, keepdims=True).astype(np.int32)
    power = _exp_of_int16(NUMPY, exps, difference, multiplier, shift)
    total = power.sum(-1, keepdims=True, dtype=np.int64)
    zeros = fixed.leading_zeros(NUMPY, total)
    inverse = _reciprocal_of_int16(NUMPY, reciprocals, total, zeros)
    result: Array = _scaled_int16(NUMPY, power, inverse, zeros)
    return result
