"""Filling the halo around an edge: the rows and columns that its readers' windows reach into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import Attrs
from stages.dialect.padding import NO_SIDES, Halo, Sides
from stages.kernels.lut import GROUP, additions
from stages.kernels.operand_storage import WORD_BITS
from stages.kernels.packed_conv2d import stored_row
from stages.kernels.packed_edges import stored_of
from stages.nodes import Buffer, Index, Scalar


@dataclass(frozen=True)
class StoredHalo:
    """The halo of an edge as it is stored."""

    sides: Sides = NO_SIDES
    elements: tuple[int, ...] = (0,)
    """What fills the halo: one element, or one a plane, or, of planes inside a pixel, those
    of its words in turn."""
    phases: int = 1
    """Phases of a polyphase layout."""

    @classmethod
    def of(cls, attrs: Attrs) -> StoredHalo:
        """The halo of an edge which is stored with these attributes."""
        halo = Halo.of(attrs)
        return cls(halo.sides, _elements(attrs, halo.level), attrs.get("phases", 1))

    def fill(self, buffer: Buffer, shape: Sequence[int], dtype: str) -> None:
        """Emit loops that write it around the image of an edge.

        `shape` is [planes, Hp, Wp, words], [N, Hp, Wp, Cp] or [Hp, Wp, Cp] (LUTs: 4 * Cp).
        """
        planes, height, width, channels = (1, *shape)[-4:]
        top, left, bottom, right = self.sides
        row_size, elements, phases = width * channels, self.elements, self.phases
        inside = elements if planes == 1 and len(set(elements)) > 1 else ()
        if len(elements) == 1:
            elements *= planes

        def run(start: Index, count: int, value: Scalar) -> None:
            if count:
                with T.serial(0, count) as index:
                    word = _in_turn(inside, index, dtype) if inside else value
                    T.buffer_store(buffer, word, [start + index])

        first = 0
        for element, group in groupby(elements[:planes]):
            count = len(list(group))
            value = tirx.const(element, dtype)
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


def _elements(attrs: Attrs, level: int) -> tuple[int, ...]:
    """What is stored for a level of bytes, and for level 0 of whatever else."""
    if "balanced" in attrs:
        return (GROUP * int(additions(attrs["bits"], attrs["balanced"])[0, 0]),)
    if "planes" not in attrs:
        return (level,)
    stored = stored_of(attrs)
    ones = (1 << WORD_BITS) - 1
    planes = [ones if table & 1 else 0 for table in stored.planes]
    words = planes + [WORD_BITS * values[0] for values in stored.sums]
    return tuple(word for word in words for _ in range(stored.inner or 1))
