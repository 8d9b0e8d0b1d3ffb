"""Filling the halo around an edge: the rows and columns that its readers' windows reach into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T


def fill_halo(
    buffer: Any, shape: Sequence[int], dtype: str, halo: Sequence[int], fill: int
) -> None:
    """Emit loops that write `fill` around the picture of an edge.

    `shape` is [planes, Hp, Wp, words] or [Hp, Wp, Cp]; `halo` is (top, left, bottom, right).
    """
    planes, height, width, channels = (1, *shape)[-4:]
    top, left, bottom, right = halo
    value = tirx.const(fill, dtype)
    row_size = width * channels

    def run(start: Any, count: int) -> None:
        if count:
            with T.serial(0, count) as index:
                T.buffer_store(buffer, value, [start + index])

    with T.serial(0, planes) as plane:
        base = plane * height * row_size
        run(base, top * row_size)
        run(base + (height - bottom) * row_size, bottom * row_size)
        if left or right:
            with T.serial(0, height - top - bottom) as row:
                start = base + (top + row) * row_size
                run(start, left * channels)
                run(start + (width - right) * channels, right * channels)
