"""Reductions as tensor expressions: sums of floats are taken in float64 and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from tvm import te, tirx, topi

from stages.dialect import names
from stages.dialect.calls import dtype_of, shape_of
from stages.dialect.dtypes import parse
from stages.dialect.movement_te import Expression, ints_of
from stages.nodes import Call, Scalar, Tensor

SHORT = ("int8", "uint8", "int16")
MAGNITUDE_MASK = 0x7FFFFFFF
"""The bits of a float32 less its sign."""
SHORT_BITS = 16
"""Bits of the longest of the `SHORT` integers; as many are left of 32 for a position."""


def _axes(call: Call, rank: int) -> list[int]:
    axis = call.attrs.axis
    if axis is None:
        return list(range(rank))
    found = ints_of(axis) if hasattr(axis, "__len__") else [int(axis)]
    return [a % rank for a in found]


def _sum(call: Call, x: Tensor) -> Tensor:
    dtype = str(x.dtype)
    kind = "float64" if parse(dtype).is_float else "int64"
    sums = topi.sum(x.astype(kind), _axes(call, len(x.shape)), bool(call.attrs.keepdims))
    return topi.cast(sums, dtype)


def _mean(call: Call, x: Tensor) -> Tensor:
    shape = shape_of(x)
    count = prod(shape[axis] for axis in _axes(call, len(shape)))
    sums = _sum(call, x)
    return te.compute(sums.shape, lambda *i: sums[i] / tirx.const(float(count), "float32"))


def _in_order(bits: Scalar) -> Scalar:
    """The bits of a float32 as an int32 that is larger where the float is, and back."""
    return bits ^ ((bits >> 31) & MAGNITUDE_MASK)


def _extreme(reduce: Callable[..., Any]) -> Expression:
    """The largest or smallest value.

    That of float32 is found among integers: LLVM makes vectors of such a loop, but of floats only
    where it may forget about NaN and the sign of 0.
    """

    def found(call: Call, x: Tensor) -> Tensor:
        axes, keepdims = _axes(call, len(x.shape)), bool(call.attrs.keepdims)
        if str(x.dtype) != "float32":
            return reduce(x, axes, keepdims)
        ordered = te.compute(
            x.shape, lambda *at: _in_order(tirx.reinterpret("int32", x(*at))), name="ordered"
        )
        best = reduce(ordered, axes, keepdims)
        return te.compute(
            best.shape,
            lambda *at: tirx.reinterpret("float32", _in_order(best(*at))),
            name="extreme",
        )

    return found


def _position(reduce: Callable[..., Any], extreme: Callable[..., Any]) -> Expression:
    """The first position of the largest or smallest value, which `extreme` gives.

    Short integers are compared with their positions behind them, in the lower half of 32 bits: the
    extreme of integers is a loop that LLVM makes vectors of.
    """

    def found(call: Call, x: Tensor) -> Tensor:
        axis = None if call.attrs.axis is None else int(call.attrs.axis)
        keepdims, dtype = bool(call.attrs.keepdims), dtype_of(call.ty)
        if axis is None or str(x.dtype) not in SHORT or int(x.shape[axis]) > 1 << SHORT_BITS:
            return topi.cast(reduce(x, axis, keepdims, select_last_index=False), dtype)
        last = (1 << SHORT_BITS) - 1

        def as_compared(value: Scalar) -> Scalar:
            """A position as it is compared, and back: the first one is the best of equals."""
            return last - value if extreme is topi.max else value

        joined = te.compute(
            x.shape,
            lambda *at: (x(*at).astype("int32") << SHORT_BITS) + as_compared(at[axis]),
            name="joined",
        )
        best = extreme(joined, axis, keepdims)
        return te.compute(
            best.shape, lambda *at: as_compared(best(*at) & last).astype(dtype), name="position"
        )

    return found


REDUCTIONS: Mapping[str, Expression] = {
    names.MEAN: _mean,
    names.SUM: _sum,
    names.MAX: _extreme(topi.max),
    names.MIN: _extreme(topi.min),
    names.ARGMAX: _position(topi.argmax, topi.max),
    names.ARGMIN: _position(topi.argmin, topi.min),
}
"""Full operator name → tensor expression; attributes are read from the call."""
