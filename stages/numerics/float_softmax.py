"""Softmax of float32 over the last axis; sums run along the axis in order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import te

from stages.dialect.calls import Attrs
from stages.dialect.numbers import Numbers, Value
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.numbers_tir import TIR
from stages.dialect.registry import register
from stages.kinds import Array
from stages.nodes import Tensor, TensorType
from stages.numerics import transcendental
from stages.numerics.last_axis import last_axis_type, named, outer_shape, reduced


def power(m: Numbers, x: Value, most: Value, beta: float) -> Value:
    """The exponential of an element, less the largest of its row."""
    return transcendental.exp(m, m.product(x - most, m.constant(beta, "float32")))


def _softmax_float_te(x: Tensor, *, beta: float) -> Tensor:
    most = reduced(x, te.max, lambda i: x(*i), "most")
    powers = te.compute(
        x.shape, lambda *i: named(power(TIR, x(*i), most(*i[:-1]), beta)), name="power"
    )
    total = reduced(x, te.sum, lambda i: powers(*i), "total")
    return te.compute(x.shape, lambda *i: powers(*i) / total(*i[:-1]), name="softmax")


def _infer_float(types: Sequence[TensorType], _attrs: Attrs) -> TensorType:
    return last_axis_type(types, ("float32",), "float32")


@register("softmax", ["x"], _infer_float, _softmax_float_te)
def softmax(x: Array, *, beta: float) -> Array:
    """`exp(beta * (x - max)) / sum` over the last axis in float32; the sum is taken in order."""
    powers = power(NUMPY, x, x.max(-1, keepdims=True), beta)
    total = np.cumsum(powers, axis=-1, dtype=np.float32)[..., -1:]
    result: Array = powers / total
    return result


def _log_softmax_te(x: Tensor) -> Tensor:
    most = reduced(x, te.max, lambda i: x(*i), "most")
    one = TIR.constant(1.0, "float32")
    total = reduced(x, te.sum, lambda i: transcendental.exp(TIR, x(*i) - most(*i[:-1])), "total")
    logs = te.compute(
        outer_shape(x),
        lambda *i: transcendental.log_(TIR, TIR.maximum(total(*i), one)),
        name="logs",
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
