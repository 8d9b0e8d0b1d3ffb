"""Softmax over the last axis: TensorFlow Lite's of integers, and the plain one of floats.

Each stage is arithmetic over `Numbers`; `_over_rows` reads it in NumPy, `_in_te` as TE tensors.
Source: tensorflow/lite/kernels/internal/reference/softmax.h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import te

from stages.dialect import let_bindings
from stages.dialect.calls import dtype_of, shape_of, tensor_type
from stages.dialect.dtypes import limits, parse
from stages.dialect.numbers import Numbers, Value
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.numbers_tir import TIR
from stages.dialect.registry import register
from stages.numerics import fixed_point as fixed
from stages.numerics import transcendental
from stages.numerics.tflite import divide_by_power, multiply

Array = np.ndarray[Any, Any]
Attrs = Mapping[str, Any]

ACCUMULATOR_BITS = 12
"""Integer bits of the sum of exponentials."""


def _shared(expression: Any) -> Any:
    return let_bindings.shared(expression, in_indices=False)


def _last_axis(types: Sequence[Any], accepted: Sequence[str], dtype: str) -> Any:
    shape, found = shape_of(types[0]), dtype_of(types[0])
    if found not in accepted or not shape:
        raise ValueError(f"data of {found} {list(shape)}; {', '.join(accepted)} is expected")
    return tensor_type(shape, dtype)


def _rows(tensor: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in tensor.shape[:-1])


def _reduce(data: Any, combine: Any, element: Any, name: str) -> Any:
    """A reduction over the last axis of `element(index)`, as a TE tensor of the leading axes."""
    k = te.reduce_axis((0, int(data.shape[-1])), name="k")
    return te.compute(_rows(data), lambda *i: combine(_shared(element((*i, k))), axis=k), name=name)


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


def _softmax_bytes_te(data: Any, exps: Any, *, dtype: str) -> Any:
    bits = parse(dtype).bits
    most = _reduce(data, te.max, lambda i: data(*i).astype("int32"), "most")

    def difference(index: Sequence[Any]) -> Any:
        return most(*index[:-1]) - data(*index).astype("int32")

    total = _reduce(data, te.sum, lambda i: _shares(TIR, exps, difference(i))[1], "total")
    zeros = te.compute(
        _rows(data), lambda *i: _shared(fixed.leading_zeros(TIR, total(*i))), name="zeros"
    )
    inverse = te.compute(
        _rows(data), lambda *i: _shared(_reciprocal(TIR, total(*i), zeros(*i))), name="inverse"
    )

    def at(*i: Any) -> Any:
        power, row = _shares(TIR, exps, difference(i))[0], i[:-1]
        return _shared(_scaled(TIR, power, inverse(*row), zeros(*row), bits, dtype))

    return te.compute(data.shape, at, name="softmax")


def _infer_bytes(types: Sequence[Any], attrs: Attrs) -> Any:
    dtype = str(attrs["dtype"])
    if dtype not in ("int8", "uint8", "int16"):
        raise ValueError(f"a result of {dtype}; int8, uint8 and int16 exist")
    if shape_of(types[1]) != (256,) or dtype_of(types[1]) != "int32":
        raise ValueError("exponentials that are not int32 [256]")
    return _last_axis(types, ("int8", "uint8"), dtype)


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
    data: Any, exps: Any, reciprocals: Any, *, multiplier: int, shift: int
) -> Any:
    most = _reduce(data, te.max, lambda i: data(*i).astype("int32"), "most")

    def power(index: Sequence[Any]) -> Any:
        difference = data(*index).astype("int32") - most(*index[:-1])
        return _exp_of_int16(TIR, exps, difference, multiplier, shift)

    total = _reduce(data, te.sum, lambda i: power(i).astype("int64"), "total")
    zeros = te.compute(
        _rows(data), lambda *i: _shared(fixed.leading_zeros(TIR, total(*i))), name="zeros"
    )
    inverse = te.compute(
        _rows(data),
        lambda *i: _shared(_reciprocal_of_int16(TIR, reciprocals, total(*i), zeros(*i))),
        name="inverse",
    )
    return te.compute(
        data.shape,
        lambda *i: _shared(_scaled_int16(TIR, power(i), inverse(*i[:-1]), zeros(*i[:-1]))),
        name="softmax",
    )


@register(
    "tflite_softmax_int16",
    ["data", "exps", "reciprocals"],
    lambda types, _attrs: _last_axis(types, ("int16",), "int16"),
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


# Floats: every operation rounds to float32; sums run along the axis in order.


def power(m: Numbers, x: Value, most: Value, beta: float) -> Value:
    """The exponential of an element, less the largest of its row."""
    return transcendental.exp(m, m.product(x - most, m.constant(beta, "float32")))


def _softmax_float_te(x: Any, *, beta: float) -> Any:
    most = _reduce(x, te.max, lambda i: x(*i), "most")
    powers = te.compute(
        x.shape, lambda *i: _shared(power(TIR, x(*i), most(*i[:-1]), beta)), name="power"
    )
    total = _reduce(x, te.sum, lambda i: powers(*i), "total")
    return te.compute(x.shape, lambda *i: powers(*i) / total(*i[:-1]), name="softmax")


def _infer_float(types: Sequence[Any], _attrs: Attrs) -> Any:
    return _last_axis(types, ("float32",), "float32")


@register("softmax", ["x"], _infer_float, _softmax_float_te)
def softmax(x: Array, *, beta: float) -> Array:
    """`exp(beta * (x - max)) / sum` over the last axis in float32; the sum is taken in order."""
    powers = power(NUMPY, x, x.max(-1, keepdims=True), beta)
    total = np.cumsum(powers, axis=-1, dtype=np.float32)[..., -1:]
    result: Array = powers / total
    return result


def _log_softmax_te(x: Any) -> Any:
    most = _reduce(x, te.max, lambda i: x(*i), "most")
    one = TIR.constant(1.0, "float32")
    total = _reduce(x, te.sum, lambda i: transcendental.exp(TIR, x(*i) - most(*i[:-1])), "total")
    logs = te.compute(
        _rows(x), lambda *i: transcendental.log_(TIR, TIR.maximum(total(*i), one)), name="logs"
    )
    return te.compute(x.shape, lambda *i: x(*i) - most(*i[:-1]) - logs(*i[:-1]), name="log_softmax")


@register("log_softmax", ["x"], _infer_float, _log_softmax_te)
def log_softmax(x: Array) -> Array:
    """`(x - max) - log(sum(exp(x - max)))` over the last axis in float32, the sum in order."""
    most = x.max(-1, keepdims=True)
    power = transcendental.exp(NUMPY, x - most)
    total = np.cumsum(power, axis=-1, dtype=np.float32)[..., -1:]
    result: Array = x - most - transcendental.log_(NUMPY, total)
    return result
