"""Where axes come from and go to: what transposes and reshapes say of a tensor's axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from stages.nodes import Call

Order = tuple[int, ...]


def order_of(call: Call) -> Order:
    """The order of a transpose: for each axis of the result, the one of the source."""
    rank = len(call.args[0].ty.shape)
    axes = call.attrs.axes
    if axes is None:
        return tuple(range(rank))[::-1]
    return tuple(int(axis) % rank for axis in axes)


def parts_of(shape: Sequence[int], target: Sequence[int]) -> list[list[int]] | None:
    """The axes of a target that each axis of a shape is split into, but for those of extent 1.

    None where it merges some.
    """
    places = [axis for axis, extent in enumerate(target) if extent != 1]
    found: list[list[int]] = []
    for extent in (n for n in shape if n != 1):
        part: list[int] = []
        while prod(target[axis] for axis in part) < extent:
            part.append(places.pop(0))
        if prod(target[axis] for axis in part) > extent:
            return None
        found.append(part)
    return found


def keeps_memory(shape: Sequence[int], order: Order) -> bool:
    """Whether a transpose moves extents of 1 alone."""
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)
