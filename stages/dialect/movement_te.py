"""What moves elements without computing as tensor expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from tvm import te, tirx, topi

from stages.dialect import names
from stages.dialect.calls import shape_of
from stages.dialect.movement_numpy import slices_of
from stages.nodes import Call, Scalar, Tensor

Expression = Callable[..., Any]
"""A call and TE tensors → a TE tensor, or a list of them for a tuple."""


def ints_of(values: Any) -> list[int]:
    """An attribute of several integers."""
    return [int(getattr(value, "value", value)) for value in values]


def _split(call: Call, x: Tensor) -> list[Tensor]:
    places = call.attrs.indices_or_sections
    where = ints_of(places) if hasattr(places, "__len__") else int(places)
    return list(topi.split(x, where, int(call.attrs.axis)))


def _concat(call: Call, tensors: Sequence[Tensor]) -> Tensor:
    """One tensor behind the other along an axis.

    By `<`: TIR knows of no other comparison when it holds for a whole vector.
    """
    shape = shape_of(call.ty)
    axis = int(call.attrs.axis) % len(shape)
    extents = [int(tensor.shape[axis]) for tensor in tensors]

    def at(*index: Scalar) -> Scalar:
        before, place, after = index[:axis], index[axis], index[axis + 1 :]
        begin = sum(extents[:-1])
        value = tensors[-1](*before, place - begin, *after)
        for tensor, extent in zip(tensors[-2::-1], extents[-2::-1], strict=True):
            own = tensor(*before, place - (begin - extent), *after)
            value = tirx.if_then_else(place < begin, own, value)
            begin -= extent
        return value

    return te.compute(shape, at, name="concat")


def _strided_slice(call: Call, x: Tensor) -> Tensor:
    shape = shape_of(x)
    ranges = [range(size)[s] for size, s in zip(shape, slices_of(call, len(shape)), strict=True)]
    return te.compute(
        shape_of(call.ty),
        lambda *index: x(*(r.start + i * r.step for r, i in zip(ranges, index, strict=True))),
        name="strided_slice",
    )


def _pad(call: Call, x: Tensor) -> Tensor:
    width = ints_of(call.attrs.pad_width)
    if str(call.attrs.pad_mode) == "constant":
        pad_value = tirx.const(call.attrs.pad_value, x.dtype)
        return topi.nn.pad(x, width[::2], width[1::2], pad_value)
    if str(call.attrs.pad_mode) == "reflect":
        return topi.nn.mirror_pad(x, width[::2], width[1::2], "REFLECT")
    raise NotImplementedError(f"relax.nn.pad in mode {call.attrs.pad_mode}")


def _take(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    shape = shape_of(x)
    extent = prod(shape) if axis is None else shape[axis]
    counted = te.compute(
        indices.shape,
        lambda *i: tirx.Select(indices(*i) < 0, indices(*i) + extent, indices(*i)),
        name="counted",
    )
    return topi.take(x, counted, axis, mode="clip")


def _reshape(call: Call, x: Tensor) -> Tensor:
    return topi.reshape(x, shape_of(call.ty))


REARRANGED: Mapping[str, Expression] = {
    names.CONCAT: _concat,
    names.STACK: lambda call, tensors: topi.stack(tensors, int(call.attrs.axis)),
    names.SPLIT: _split,
    names.STRIDED_SLICE: _strided_slice,
    names.TAKE: _take,
    names.PAD: _pad,
    names.BROADCAST_TO: lambda call, x: topi.broadcast_to(x, shape_of(call.ty)),
    names.TILE: lambda call, x: topi.tile(x, ints_of(call.attrs.repeats)),
    names.REPEAT: lambda call, x: topi.repeat(
        x, int(call.attrs.repeats), None if call.attrs.axis is None else int(call.attrs.axis)
    ),
    names.FLIP: lambda call, x: topi.flip(x, int(call.attrs.axis)),
    names.PERMUTE_DIMS: lambda call, x: topi.transpose(
        x, None if call.attrs.axes is None else ints_of(call.attrs.axes)
    ),
    **{name: _reshape for name in (names.RESHAPE, names.SQUEEZE, names.EXPAND_DIMS, names.FLATTEN)},
}
"""Full operator name → tensor expression; attributes are read from the call."""
