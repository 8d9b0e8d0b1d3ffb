"""NumPy meanings of the Relax operators that move values about, choose among them or compare them.

They hold for tensors of any type: nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stages.dialect import names
from stages.kinds import Array
from stages.nodes import Call


def _ints(values: Any) -> list[int]:
    return [int(getattr(value, "value", value)) for value in values]


def _axes(call: Call, x: Array) -> tuple[int, ...]:
    axis = call.attrs.axis
    return tuple(range(x.ndim)) if axis is None else tuple(_ints(axis))


def _concat(call: Call, tensors: tuple[Array, ...]) -> Array:
    return np.concatenate(tensors, axis=int(call.attrs.axis))


def _stack(call: Call, tensors: tuple[Array, ...]) -> Array:
    return np.stack(tensors, axis=int(call.attrs.axis))


def _split(call: Call, x: Array) -> tuple[Array, ...]:
    places = call.attrs.indices_or_sections
    where = int(places) if not hasattr(places, "__len__") else _ints(places)
    return tuple(np.split(x, where, axis=int(call.attrs.axis)))


def slices_of(call: Call, rank: int) -> tuple[slice, ...]:
    """The slices of a `relax.strided_slice` call, one an axis; bounds count as in Python."""
    lists = [_ints(argument.fields) for argument in call.args[1:]]
    axes, begins, ends = lists[:3]
    strides = lists[3] if len(lists) > 3 else [1] * len(axes)
    result = [slice(None)] * rank
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        result[axis] = slice(begin, end, stride)
    return tuple(result)


def _strided_slice(call: Call, x: Array) -> Array:
    return x[slices_of(call, x.ndim)]


def _take(call: Call, x: Array, indices: Array) -> Array:
    """A negative index counts from the end, one outside means the nearest element."""
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    extent = x.size if axis is None else x.shape[axis]
    return np.take(x, np.where(indices < 0, indices + extent, indices), axis=axis, mode="clip")


def _pad(call: Call, x: Array) -> Array:
    width = _ints(call.attrs.pad_width)
    pairs = list(zip(width[::2], width[1::2], strict=True))
    mode = str(call.attrs.pad_mode)
    if mode == "constant":
        return np.pad(x, pairs, constant_values=call.attrs.pad_value)
    return np.pad(x, pairs, mode=mode)  # type: ignore[call-overload]


def _broadcast_to(call: Call, x: Array) -> Array:
    return np.broadcast_to(x, _ints(call.args[1]))


def _tile(call: Call, x: Array) -> Array:
    return np.tile(x, _ints(call.attrs.repeats))


def _repeat(call: Call, x: Array) -> Array:
    axis = call.attrs.axis
    return np.repeat(x, int(call.attrs.repeats), axis=None if axis is None else int(axis))


def _flip(call: Call, x: Array) -> Array:
    return np.flip(x, axis=int(call.attrs.axis))


def _best(choose: Callable[..., Array]) -> Callable[..., Array]:
    """The first position of the largest or smallest value."""

    def meaning(call: Call, x: Array) -> Array:
        axis = call.attrs.axis
        found = choose(
            x, axis=None if axis is None else int(axis), keepdims=bool(call.attrs.keepdims)
        )
        return found.astype(str(call.ty.dtype))

    return meaning


def _extreme(reduce: Callable[..., Array]) -> Callable[..., Array]:
    def meaning(call: Call, x: Array) -> Array:
        return reduce(x, axis=_axes(call, x), keepdims=bool(call.attrs.keepdims))

    return meaning


MOVING: Mapping[str, Callable[..., Any]] = {
    names.CONCAT: _concat,
    names.STACK: _stack,
    names.SPLIT: _split,
    names.STRIDED_SLICE: _strided_slice,
    names.TAKE: _take,
    names.PAD: _pad,
    names.BROADCAST_TO: _broadcast_to,
    names.TILE: _tile,
    names.REPEAT: _repeat,
    names.FLIP: _flip,
    names.ARGMAX: _best(np.argmax),
    names.ARGMIN: _best(np.argmin),
    names.MAX: _extreme(np.max),
    names.MIN: _extreme(np.min),
    names.WHERE: lambda _call, condition, yes, no: np.where(condition, yes, no),
    names.LESS: lambda _call, a, b: a < b,
    names.LESS_EQUAL: lambda _call, a, b: a <= b,
    names.GREATER: lambda _call, a, b: a > b,
    names.GREATER_EQUAL: lambda _call, a, b: a >= b,
    names.EQUAL: lambda _call, a, b: a == b,
    names.NOT_EQUAL: lambda _call, a, b: a != b,
    names.LOGICAL_AND: lambda _call, a, b: np.logical_and(a, b),
    names.LOGICAL_OR: lambda _call, a, b: np.logical_or(a, b),
    names.LOGICAL_XOR: lambda _call, a, b: np.logical_xor(a, b),
    names.LOGICAL_NOT: lambda _call, a: np.logical_not(a),
}
"""Full operator name → meaning, as in `stages.dialect.relax_numpy`."""
