"""Operators of exported programs that move values about (ATen)."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax

from stages.importing.torch_export.exported_program import Node
from stages.importing.torch_export.torch_builder import Walk
from stages.importing.unsupported import UnsupportedError

_FAR = 1 << 62


def identity(walk: Walk, node: Node) -> list[Any]:
    """What changes nothing at inference."""
    name = "self" if "self" in node.arguments else "input"
    return [walk.value(node, name)]


def dropout(walk: Walk, node: Node) -> list[Any]:
    """Dropout, which does nothing at inference."""
    if walk.argument(node, "train", False):
        raise UnsupportedError("is in training mode; export the model in eval mode")
    return [walk.value(node, "input")]


def _shape(walk: Walk, node: Node) -> tuple[int, ...]:
    return walk.shape(walk.value(node, "self"))


def view(walk: Walk, node: Node) -> list[Any]:
    """view, reshape: one extent may be -1."""
    old = _shape(walk, node)
    new = walk.integers(node, "size" if "size" in node.arguments else "shape")
    known = prod(extent for extent in new if extent != -1)
    if new.count(-1) > 1 or known < 1 or prod(old) % known:
        raise UnsupportedError(f"reshapes {list(old)} to {new}")
    shape = tuple(prod(old) // known if extent == -1 else extent for extent in new)
    return [walk.reshape(walk.read(node, "self"), shape, node.name)]


def flatten(walk: Walk, node: Node) -> list[Any]:
    """Flatten axes `start_dim` to `end_dim`."""
    shape = _shape(walk, node)
    start = walk.axis(walk.whole(node, "start_dim", 0), len(shape))
    end = walk.axis(walk.whole(node, "end_dim", -1), len(shape)) + 1
    if end <= start:
        raise UnsupportedError(f"flattens axes {start} to {end - 1}")
    new = (*shape[:start], prod(shape[start:end]), *shape[end:])
    return [walk.reshape(walk.read(node, "self"), new, node.name)]


def squeeze(walk: Walk, node: Node) -> list[Any]:
    """Drop axes of extent 1: all, or those named."""
    shape = _shape(walk, node)
    named = walk.integers(node, "dim", list(range(len(shape))))
    gone = {walk.axis(axis, len(shape)) for axis in named}
    new = tuple(n for i, n in enumerate(shape) if i not in gone or n != 1)
    return [walk.reshape(walk.read(node, "self"), new, node.name)]


def unsqueeze(walk: Walk, node: Node) -> list[Any]:
    """Add an axis of extent 1."""
    shape = _shape(walk, node)
    axis = walk.axis(walk.whole(node, "dim"), len(shape) + 1)
    return [walk.reshape(walk.read(node, "self"), (*shape[:axis], 1, *shape[axis:]), node.name)]


def permute(walk: Walk, node: Node) -> list[Any]:
    """Axes in another order."""
    rank = len(_shape(walk, node))
    order = [walk.axis(axis, rank) for axis in walk.integers(node, "dims")]
    if sorted(order) != list(range(rank)):
        raise UnsupportedError(f"has dims {order} for {rank} dimensions")
    return [walk.emit(relax.op.permute_dims(walk.read(node, "self"), order), node.name)]


def transpose(walk: Walk, node: Node) -> list[Any]:
    """Two axes change places; `t` of a matrix."""
    rank = len(_shape(walk, node))
    if rank < 2 and "dim0" not in node.arguments:
        return [walk.value(node, "self")]
    first, second = (
        walk.axis(walk.whole(node, name, default), rank)
        for name, default in (("dim0", 0), ("dim1", 1))
    )
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    return [walk.emit(relax.op.permute_dims(walk.read(node, "self"), order), node.name)]


def concatenate(walk: Walk, node: Node) -> list[Any]:
    """Concatenate tensors along an axis."""
    parts = walk.tensors(node, "tensors")
    if not parts:
        raise UnsupportedError("joins no tensors")
    axis = walk.axis(walk.whole(node, "dim", 0), len(walk.shape(parts[0])))
    return [walk.emit(relax.op.concat(parts, axis), node.name)]


def _cut(walk: Walk, node: Node, axis: int, begin: int, end: int, step: int, name: str) -> Any:
    call = relax.op.strided_slice(walk.read(node, "self"), [axis], [begin], [end], [step])
    return walk.emit(call, name)


def slice_(walk: Walk, node: Node) -> list[Any]:
    """`start` to `end` of an axis by `step`."""
    shape = _shape(walk, node)
    axis = walk.axis(walk.whole(node, "dim", 0), len(shape))
    extent = shape[axis]
    begin = walk.whole(node, "start", 0) if walk.has(node, "start") else 0
    end = walk.whole(node, "end", _FAR) if walk.has(node, "end") else _FAR
    begin, end = (max(0, min(extent, n + extent if n < 0 else n)) for n in (begin, end))
    step = walk.whole(node, "step", 1)
    if begin >= end or step < 1:
        raise UnsupportedError(f"takes {begin} to {end} by {step} of an axis of {extent}")
    return [_cut(walk, node, axis, begin, end, step, node.name)]


def select(walk: Walk, node: Node) -> list[Any]:
    """One index of an axis, which goes."""
    shape = _shape(walk, node)
    axis = walk.axis(walk.whole(node, "dim"), len(shape))
    index = walk.axis(walk.whole(node, "index"), shape[axis])
    part = _cut(walk, node, axis, index, index + 1, 1, f"{node.name}.part")
    return [walk.reshape(part, (*shape[:axis], *shape[axis + 1 :]), node.name)]


def split(walk: Walk, node: Node) -> list[Any]:
    """split and chunk: parts of an axis, the last one the smallest."""
    shape = _shape(walk, node)
    axis = walk.axis(walk.whole(node, "dim", 0), len(shape))
    extent = shape[axis]
    if "chunks" in node.arguments:
        count = walk.whole(node, "chunks")
        sizes = [-(-extent // count)] if count > 0 else [0]
    else:
        name = "split_sizes" if "split_sizes" in node.arguments else "split_size"
        sizes = walk.integers(node, name)
    if min(sizes, default=0) < 1:
        raise UnsupportedError(f"splits an axis of {extent} into {sizes}")
    if len(sizes) == 1:
        sizes = [min(sizes[0], extent - at) for at in range(0, extent, sizes[0])]
    if sum(sizes) != extent or len(sizes) != len(node.outputs):
        raise UnsupportedError(f"splits an axis of {extent} into {sizes}")
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [
        _cut(walk, node, axis, end - size, end, 1, name)
        for end, size, name in zip(ends, sizes, node.outputs, strict=True)
    ]


def expand(walk: Walk, node: Node) -> list[Any]:
    """Repeat axes of extent 1."""
    old, new = _shape(walk, node), walk.integers(node, "size")
    if len(new) < len(old):
        raise UnsupportedError(f"expands {list(old)} to {new}")
    padded = (1,) * (len(new) - len(old)) + old
    shape = tuple(n if wanted == -1 else wanted for n, wanted in zip(padded, new, strict=True))
    if any(n not in (1, wanted) for n, wanted in zip(padded, shape, strict=True)):
        raise UnsupportedError(f"expands {list(old)} to {new}")
    if shape == old:
        return [walk.value(node, "self")]
    return [walk.emit(relax.op.broadcast_to(walk.read(node, "self"), shape), node.name)]


def size(walk: Walk, node: Node) -> list[Any]:
    """The extent of an axis, a number known at import."""
    shape = _shape(walk, node)
    return [shape[walk.axis(walk.whole(node, "dim"), len(shape))]]
