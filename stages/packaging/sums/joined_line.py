"""The rows of images joined into one line of positions; those between two rows are no results.

Where a convolution moves by as many pixels down as to the right, windows of the next row follow
behind what lies between two rows, so that tiles of pixels need not fit a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.kernels.geometry import tile_count
from stages.nodes import Index, Scalar
from stages.packaging.emitting.addressing import divided


@dataclass(frozen=True)
class JoinedLine:
    """Rows of results, in tiles of so many positions."""

    height: int
    width: int
    images: int
    rows: int
    """From one image to the next one."""
    pitch: int
    """Positions from one row to the next one."""
    tile: int

    @property
    def positions(self) -> int:
        """From the first pixel of all images to the last one, those in between too."""
        rows = (self.images - 1) * self.rows + self.height
        return (rows - 1) * self.pitch + self.width

    @property
    def tiles(self) -> int:
        """Tiles of the line; the last one overlaps another."""
        return tile_count(self.positions, self.tile)

    @property
    def is_shorter(self) -> bool:
        """Whether tiles are fewer than if none went on from row to row."""
        by_rows = self.images * self.height * tile_count(self.width, self.tile)
        return self.tile > self.width or self.tiles < by_rows

    def first(self, number: Index) -> Index:
        """The first position of a tile."""
        return T.bind(tirx.min(number * self.tile, self.positions - self.tile))

    def places(self, first: Index) -> Callable[[Any], tuple[Any, Any, Any]]:
        """Number of a position in a tile → its row, among those of all results, its column, and
        whether it is a pixel at all.

        A tile no longer than a row goes on into one more row at most, and nobody has to divide for
        every position.
        """
        own, column = map(T.bind, divided(first, self.pitch))
        end, next_row = T.bind(self.width - column), T.bind(self.pitch - column)

        def place(m: Index) -> tuple[Index, Index, Scalar]:
            if self.tile <= self.width:
                row = own + (m >= next_row).astype("int32")
                x = first + m - row * self.pitch
                is_inside = tirx.any(m < end, m >= next_row)
            else:
                row, x = divided(first + m, self.pitch)
                is_inside = x < self.width
            if self.images == 1:
                return row, x, is_inside
            image, line = divided(row, self.rows)
            return image * self.height + line, x, tirx.all(is_inside, line < self.height)

        return place
