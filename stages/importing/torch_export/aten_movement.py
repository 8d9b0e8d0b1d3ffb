"""Operators of exported programs that move values about (ATen)."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax

from stages.importing.relax_builder import value_shape
from stages.importing.torch_export.exported_program import Node
from stages.importing.torch_export.torch_builder import TorchBuilder
from stages.importing.unsupported import UnsupportedError

_FAR = 1 << 62


def identity(builder: TorchBuilder, node: Node) -> list[Any]:
    """What changes nothing at inference."""
    name = "self" if "self" in node.arguments else "input"
    return [builder.value_at(node, name)]


def dropout(builder: TorchBuilder, node: Node) -> list[Any]:
    """Dropout, which does nothing at inference."""
    if builder.argument(node, "train", False):
        raise UnsupportedError("is in training mode; export the model in eval mode")
    return [builder.value_at(node, "input")]


def _shape(builder: TorchBuilder, node: Node) -> tuple[int, ...]:
    return value_shape(builder.value_at(node, "self"))


def view(builder: TorchBuilder, node: Node) -> list[Any]:
    """view, reshape: one extent may be -1."""
    old = _shape(builder, node)
    new = builder.integers(node, "size" if "size" in node.arguments else "shape")
    known = prod(extent for extent in new if extent != -1)
    if new.count(-1) > 1 or known < 1 or prod(old) % known:
        raise UnsupportedError(f"reshapes {list(old)} to {new}")
    shape = tuple(prod(old) // known if extent == -1 else extent for extent in new)
    return [builder.in_shape(builder.read_at(node, "self"), shape, node.name)]


def flatten(builder: TorchBuilder, node: Node) -> list[Any]:
    """Flatten axes `start_dim` to `end_dim`."""
    shape = _shape(builder, node)
    start = builder.axis(builder.whole(node, "start_dim", 0), len(shape))
    end = builder.axis(builder.whole(node, "end_dim", -1), len(shape)) + 1
    if end <= start:
        raise UnsupportedError(f"flattens axes {start} to {end - 1}")
    new = (*shape[:start], prod(shape[start:end]), *shape[end:])
    return [builder.in_shape(builder.read_at(node, "self"), new, node.name)]


def squeeze(builder: TorchBuilder, node: Node) -> list[Any]:
    """Drop axes of extent 1: all, or those named."""
    shape = _shape(builder, node)
    named = builder.integers(node, "dim", list(range(len(shape))))
    gone = {builder.axis(axis, len(shape)) for axis in named}
    new = tuple(n for i, n in enumerate(shape) if i not in gone or n != 1)
    return [builder.in_shape(builder.read_at(node, "self"), new, node.name)]


def unsqueeze(builder: TorchBuilder, node: Node) -> list[Any]:
    """Add an axis of extent 1."""
    shape = _shape(builder, node)
    axis = builder.axis(builder.whole(node, "dim"), len(shape) + 1)
    return [
        builder.in_shape(
            builder.read_at(node, "self"), (*shape[:axis], 1, *shape[axis:]), node.name
        )
    ]


def permute(builder: TorchBuilder, node: Node) -> list[Any]:
    """Axes in another order."""
    rank = len(_shape(builder, node))
    order = [builder.axis(axis, rank) for axis in builder.integers(node, "dims")]
    if sorted(order) != list(range(rank)):
        raise UnsupportedError(f"has dims {order} for {rank} dimensions")
    return [builder.emit(relax.op.permute_dims(builder.read_at(node, "self"), order), node.name)]


def transpose(builder: TorchBuilder, node: Node) -> list[Any]:
    """Two axes change places; `t` of a matrix."""
    rank = len(_shape(builder, node))
    if rank < 2 and "dim0" not in node.arguments:
        return [builder.value_at(node, "self")]
    first, second = (
        builder.axis(builder.whole(node, name, default), rank)
        for name, default in (("dim0", 0), ("dim1", 1))
    )
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    return [builder.emit(relax.op.permute_dims(builder.read_at(node, "self"), order), node.name)]


def concatenate(builder: TorchBuilder, node: Node) -> list[Any]:
    """Concatenate tensors along an axis."""
    parts = builder.tensors(node, "tensors")
    if not parts:
        raise UnsupportedError("joins no tensors")
    axis = builder.axis(builder.whole(node, "dim", 0), len(value_shape(parts[0])))
    return [builder.emit(relax.op.concat(parts, axis), node.name)]


def _cut(
    builder: TorchBuilder, node: Node, axis: int, begin: int, end: int, step: int, name: str
) -> Any:
    call = relax.op.strided_slice(builder.read_at(node, "self"), [axis], [begin], [end], [step])
    return builder.emit(call, name)


def slice_(builder: TorchBuilder, node: Node) -> list[Any]:
    """`start` to `end` of an axis by `step`."""
    shape = _shape(builder, node)
    axis = builder.axis(builder.whole(node, "dim", 0), len(shape))
    extent = shape[axis]
    begin = builder.whole(node, "start", 0) if builder.has(node, "start") else 0
    end = builder.whole(node, "end", _FAR) if builder.has(node, "end") else _FAR
    begin, end = (max(0, min(extent, n + extent if n < 0 else n)) for n in (begin, end))
    step = builder.whole(node, "step", 1)
    if begin >= end or step < 1:
        raise UnsupportedError(f"takes {begin} to {end} by {step} of an axis of {extent}")
    return [_cut(builder, node, axis, begin, end, step, node.name)]


def select(builder: TorchBuilder, node: Node) -> list[Any]:
    """One index of an axis, which goes."""
    shape = _shape(builder, node)
    axis = builder.axis(builder.whole(node, "dim"), len(shape))
    index = builder.axis(builder.whole(node, "index"), shape[axis])
    part = _cut(builder, node, axis, index, index + 1, 1, f"{node.name}.part")
    return [builder.in_shape(part, (*shape[:axis], *shape[axis + 1 :]), node.name)]


def split(builder: TorchBuilder, node: Node) -> list[Any]:
    """split and chunk: parts of an axis, the last one the smallest."""
    shape = _shape(builder, node)
    axis = builder.axis(builder.whole(node, "dim", 0), len(shape))
    extent = shape[axis]
    if "chunks" in node.arguments:
        count = builder.whole(node, "chunks")
        sizes = [-(-extent // count)] if count > 0 else [0]
    else:
        name = "split_sizes" if "split_sizes" in node.arguments else "split_size"
        sizes = builder.integers(node, name)
    if min(sizes, default=0) < 1:
        raise UnsupportedError(f"splits an axis of {extent} into {sizes}")
    if len(sizes) == 1:
        sizes = [min(sizes[0], extent - at) for at in range(0, extent, sizes[0])]
    if sum(sizes) != extent or len(sizes) != len(node.outputs):
        raise UnsupportedError(f"splits an axis of {extent} into {sizes}")
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [
        _cut(builder, node, axis, end - size, end, 1, name)
        for end, size, name in zip(ends, sizes, node.outputs, strict=True)
    ]


def expand(builder: TorchBuilder, node: Node) -> list[Any]:
    """Repeat axes of extent 1."""
    old, new = _shape(builder, node), builder.integers(node, "size")
    if len(new) < len(old):
        raise UnsupportedError(f"expands {list(old)} to {new}")
    padded = (1,) * (len(new) - len(old)) + old
    shape = tuple(n if wanted == -1 else wanted for n, wanted in zip(padded, new, strict=True))
    if any(n not in (1, wanted) for n, wanted in zip(padded, shape, strict=True)):
        raise UnsupportedError(f"expands {list(old)} to {new}")
    if shape == old:
        return [builder.value_at(node, "self")]
    return [builder.emit(relax.op.broadcast_to(builder.read_at(node, "self"), shape), node.name)]


def size(builder: TorchBuilder, node: Node) -> list[Any]:
    """The extent of an axis, a number known at import."""
    shape = _shape(builder, node)
    return [shape[builder.axis(builder.whole(node, "dim"), len(shape))]]
