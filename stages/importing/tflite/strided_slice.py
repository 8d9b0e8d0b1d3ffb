"""STRIDED_SLICE's masks resolved: which positions of each axis are taken."""

from __future__ import annotations

from collections.abc import Sequence

from stages.importing.unsupported import UnsupportedError

Slicing = list[tuple[int, int, int]]
"""Per axis of the operand: first position, number of positions, step (which may be negative)."""


def dense_slicing(
    extents: Sequence[int],
    bounds: Sequence[Sequence[int]],
    *,
    begin: int = 0,
    end: int = 0,
    ellipsis: int = 0,
    new_axis: int = 0,
    shrink_axis: int = 0,
) -> tuple[Slicing, list[int]]:
    """What a STRIDED_SLICE takes of a tensor of shape `extents`, and the shape of its result.

    `bounds` are its vectors begin, end and strides, whose positions count from the end where
    negative and are clamped, as in NumPy. Bit i of a mask concerns entry i: a bound that is left
    open, an ellipsis, a new axis, or one position whose axis is dropped.
    Source: tensorflow/lite/kernels/strided_slice.cc.
    """
    entries = list(zip(*bounds, strict=True))
    bits = range(len(entries))
    real = [i for i in bits if not (new_axis >> i & 1 or ellipsis >> i & 1)]
    if len(real) > len(extents) or ellipsis & (ellipsis - 1):
        raise UnsupportedError(f"slices {len(real)} axes of a tensor of rank {len(extents)}")
    slicing: Slicing = []
    shape: list[int] = []
    for i, (first, last, step) in enumerate(entries):
        if ellipsis >> i & 1:
            _keep(extents, slicing, shape, len(extents) - len(real) + len(slicing))
        elif new_axis >> i & 1:
            shape.append(1)
        elif shrink_axis >> i & 1:
            slicing.append(_position(extents[len(slicing)], first))
        else:
            opened = (None if begin >> i & 1 else first, None if end >> i & 1 else last)
            slicing.append(_range(extents[len(slicing)], *opened, step))
            shape.append(slicing[-1][1])
    _keep(extents, slicing, shape, len(extents))
    return slicing, shape


def _keep(extents: Sequence[int], slicing: Slicing, shape: list[int], until: int) -> None:
    """Take the axes up to `until` whole."""
    for extent in extents[len(slicing) : until]:
        slicing.append((0, extent, 1))
        shape.append(extent)


def _position(extent: int, first: int) -> tuple[int, int, int]:
    if not -extent <= first < extent:
        raise UnsupportedError(f"takes position {first} of an axis of {extent}")
    return first % extent, 1, 1


def _range(extent: int, first: int | None, last: int | None, step: int) -> tuple[int, int, int]:
    if step == 0:
        raise UnsupportedError("has a stride of 0")
    taken = range(*slice(first, last, step).indices(extent))
    return taken.start, len(taken), step
