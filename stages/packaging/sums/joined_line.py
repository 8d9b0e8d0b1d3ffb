"""The rows of pictures as one long line of positions, of which those in between are nobody's.

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
from stages.packaging.emitting.addressing import divided


@dataclass(frozen=True)
class Line:
    """Rows of results, in tiles of so many positions."""

    height: int
    width: int
    pictures: int
    rows: int
    """From one picture to the next one."""
    pitch: int
    """Positions from one row to the next one."""
    tile: int

    @property
    def positions(self) -> int:
        """From the first pixel of all pictures to the last one, those in between too."""
        rows = (self.pictures - 1) * self.rows + self.height
        return (rows - 1) * self.pitch + self.width

    @property
    def tiles(self) -> int:
        """Tiles of the line; the last one overlaps another."""
        return tile_count(self.positions, self.tile)

    @property
    def is_shorter(self) -> bool:
        """Whether these are fewer than if no tile went on from row to row."""
        by_rows = self.pictures * self.height * tile_count(self.width, self.tile)
        return self.tile > self.width or self.tiles < by_rows

    def first(self, number: Any) -> Any:
        """The first position of a tile."""
        return T.bind(tirx.min(number * self.tile, self.positions - self.tile))

    def places(self, first: Any) -> Callable[[Any], tuple[Any, Any, Any]]:
        """Number of a position in a tile → its row, among those of all results, its column, and
        whether it is a pixel at all.

        A tile no longer than a row goes on into one more row at most, and nobody has to divide for
        every position.
        """
        own, column = map(T.bind, divided(first, self.pitch))
        end, turn = T.bind(self.width - column), T.bind(self.pitch - column)

        def place(m: Any) -> tuple[Any, Any, Any]:
            if self.tile <= self.width:
                row = own + (m >= turn).astype("int32")
                x = first + m - row * self.pitch
                is_inside = tirx.any(m < end, m >= turn)
            else:
                row, x = divided(first + m, self.pitch)
                is_inside = x < self.width
            if self.pictures == 1:
                return row, x, is_inside
            picture, line = divided(row, self.rows)
            return picture * self.height + line, x, tirx.all(is_inside, line < self.height)

        return place
