"""How data and its scales are seen so that they broadcast: a tensor, an axis, or blocks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from stages.importing.onnx.onnx_reader import Node
from stages.importing.onnx.tensor_movement import normal
from stages.importing.unsupported import UnsupportedError

Array = np.ndarray[Any, Any]

MAX_REPEATED = 1 << 24
"""Elements of a tensor whose scales are repeated element by element."""


@dataclass(frozen=True)
class Views:
    """How data and its scales are seen so that they broadcast: blocks have an axis of their own."""

    data: tuple[int, ...]
    scale: tuple[int, ...]
    repeat: tuple[int, int, int] | None = None
    """Axis, times and extent of scales whose last block is not whole."""

    def of_scale(self, value: Array) -> Array:
        """A constant scale or zero point as it is seen."""
        if self.repeat is not None:
            axis, times, extent = self.repeat
            value = np.repeat(value, times, axis).take(range(extent), axis)
        return value.reshape(self.scale)


def views(shape: tuple[int, ...], scale: tuple[int, ...], node: Node) -> Views:
    """The views that ONNX's `axis` and `block_size` mean."""
    if scale in ((), (1,)):
        return Views(shape, ())
    axis = normal(int(node.attributes.get("axis", 1)), len(shape))
    if scale == (shape[axis],):
        return Views(shape, tuple(shape[axis] if i == axis else 1 for i in range(len(shape))))
    block = int(node.attributes.get("block_size", 0))
    outer = (*shape[:axis], -(-shape[axis] // max(block, 1)), *shape[axis + 1 :])
    if block < 1 or scale != outer:
        raise UnsupportedError(
            f"has scales of shape {list(scale)} for data of shape {list(shape)} "
            f"along axis {axis}" + (f" in blocks of {block}" if block else "")
        )
    if shape[axis] % block and prod(shape) > MAX_REPEATED:
        raise UnsupportedError(f"has blocks of {block} that do not divide {shape[axis]} values")
    if shape[axis] % block:
        return Views(shape, shape, (axis, block, shape[axis]))
    inner = outer[: axis + 1]
    return Views((*inner, block, *shape[axis + 1 :]), (*inner, 1, *shape[axis + 1 :]))
