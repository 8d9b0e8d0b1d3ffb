"""Filling the halo around an edge: the rows and columns that its readers' windows reach into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.kernels.lut import GROUP, additions
from stages.kernels.operand_storage import WORD_BITS
from stages.kernels.packed_conv2d import stored_row
from stages.kernels.packed_edges import stored_of
from stages.nodes import Buffer, Index, Scalar


def fill_halo(
    buffer: Buffer,
    shape: Sequence[int],
    dtype: str,
    halo: Sequence[int],
    fills: Sequence[int],
    phases: int = 1,
) -> None:
    """Emit loops that write a value around the image of an edge.

    `shape` is [planes, Hp, Wp, words], [N, Hp, Wp, Cp] or [Hp, Wp, Cp] (tables: 4 * Cp); `halo` is
    (top, left, bottom, right); `fills` has one value a plane or an image, or of planes inside a
    pixel those of its words in turn. The layout is polyphase where there are several `phases`.
    """
    planes, height, width, channels = (1, *shape)[-4:]
    top, left, bottom, right = halo
    row_size = width * channels
    inside = fills if planes == 1 and len(set(fills)) > 1 else ()

    def run(start: Index, count: int, value: Scalar) -> None:
        if count:
            with T.serial(0, count) as index:
                word = _in_turn(inside, index, dtype) if inside else value
                T.buffer_store(buffer, word, [start + index])

    first = 0
    for fill, group in groupby(fills[:planes]):
        count = len(list(group))
        value = tirx.const(fill, dtype)
        with T.serial(0, count) as plane:
            base = (first + plane) * height * row_size
            for around in (range(top), range(height - bottom, height)):
                if phases == 1:
                    run(base + around.start * row_size, len(around) * row_size, value)
                    continue
                for row in around:
                    run(base + stored_row(row, height, phases) * row_size, row_size, value)
            if left or right:
                with T.serial(0, height - top - bottom) as row:
                    start = base + stored_row(top + row, height, phases) * row_size
                    run(start, left * channels, value)
                    run(start + (width - right) * channels, right * channels, value)
        first += count
    assert first == planes


def _in_turn(words: Sequence[int], index: Index, dtype: str) -> Scalar:
    """The words of a pixel, one after the other, by the number of any of them."""
    place = tirx.truncmod(index, len(words))
    value = tirx.const(words[-1], dtype)
    for number in range(len(words) - 2, -1, -1):
        if words[number] != words[number + 1]:
            value = tirx.Select(place <= number, tirx.const(words[number], dtype), value)
    return value


def fills_of(attrs: Mapping[str, Any]) -> list[int]:
    """What surrounds an edge that is stored with these attributes: level 0 where it is no bytes."""
    if "balanced" in attrs:
        return [GROUP * int(additions(attrs["bits"], attrs["balanced"])[0, 0])]
    if "planes" not in attrs:
        return [attrs["fill"]]
    stored = stored_of(attrs)
    ones = (1 << WORD_BITS) - 1
    planes = [ones if table & 1 else 0 for table in stored.planes]
    fills = planes + [WORD_BITS * values[0] for values in stored.sums]
    return [fill for fill in fills for _ in range(stored.inner or 1)]
