"""Where the tiles of a convolution lie: in an output row, in the line that rows are joined into, or
one pixel after the other, whatever row these are in."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.packaging.interleaving import Window
from stages.packaging.joining import Line
from stages.packaging.widening import Apart, Widening
from stages.qnn.geometry import are_joinable
from stages.qnn.packed import WEIGHTS_RANK, stored_row
from stages.qnn.registry import attributes, shape_of
from stages.qnn.signature import BLOCK


class Placing(Widening):
    """Work items of a convolution, and the windows of their tiles."""

    is_joined = False
    """Whether tiles go on from row to row, over what lies in between."""
    turns = False
    """Whether tiles of two pixels go on from the last of a row to the first of the next one."""
    distance = 1
    """Results of a row from one pixel of a tile to the next one."""
    input_height: int
    input_width: int
    phases: int

    def place_tiles(self, is_direct: bool) -> None:
        """Find where tiles of the signature lie, so that they are few."""
        attrs = attributes(self.composite.main)
        joinable = are_joinable(
            attrs["window"], attrs["strides"], self.composite.pictures, self.phases
        )
        self.is_joined = joinable and not self.has_matrices and self.line.is_shorter
        if is_direct and self.signature.turns and not self.has_matrices:
            self.turns = self.pixels_in_line.tiles < self.runs * self.tiles
            self.is_joined = self.is_joined and not self.turns
            self.distance = self._distance

    @property
    def _distance(self) -> int:
        """Half a row where two pixels have nothing in common: each is then read on from where the
        tile before ended, which cores notice that fetch ahead."""
        is_alone = math.prod(attributes(self.composite.main)["window"]) == 1
        goes_on = self.is_joined or self.turns
        return self.width // 2 if is_alone and not goes_on and self.width % 2 == 0 else 1

    def rows_apart(self, pixel: int) -> Apart:
        """Where the rows of a window lie, of pixels of so many bytes.

        Of data in two phases odd rows are where the other phase is, in front or behind.
        """
        line = self.input_width * pixel
        if self.phases == 1:
            return Apart(line)
        top, _ = attributes(self.composite.main)["origin"]
        first, second = (stored_row(top + y, self.input_height, self.phases) for y in (0, 1))
        row = (second - first) * line
        return Apart(row, self.phases, line - self.phases * row)

    @property
    def has_matrices(self) -> bool:
        """Whether each picture has weights of its own."""
        return len(shape_of(self.composite.main.args[1].ty)) > WEIGHTS_RANK

    @property
    def line(self) -> Line:
        """The results of all pictures as one line."""
        pitch = self.input_width // self.phases
        pictures = self.composite.pictures
        return Line(self.height, self.width, pictures, self.input_height, pitch, self.rows)

    @property
    def pixels_in_line(self) -> Line:
        """The results of all pictures as one line with nothing in between."""
        pictures = self.composite.pictures
        return Line(self.height, self.width, pictures, self.height, self.width, self.rows)

    @property
    def runs(self) -> int:
        """Work items of a block: rows, or tiles where these go on from row to row."""
        if self.turns:
            return self.pixels_in_line.tiles
        return self.line.tiles if self.is_joined else self.lines

    @property
    def calls(self) -> int:
        """Tiles of a block of channels."""
        return self.runs * self.tiles

    @property
    def calls_together(self) -> int:
        """Those of a row block, before the next block's weights are read."""
        return self.runs_together * self.tiles

    @property
    def tiles(self) -> int:
        """Tiles of a work item."""
        return 1 if self.is_joined or self.turns else super().tiles

    def finisher(self, block: Any, run: Any, tile: Any, place: Any) -> Callable[[Any], None]:
        """The epilogue of a pixel; those of joined rows that are in the halo are left out."""
        if self.distance > 1:
            return lambda m: self._pixel(block, run, tile + m * self.distance, place + m * BLOCK)
        if not self.is_joined and not self.turns:
            return super().finisher(block, run, tile, place)
        line = self.pixels_in_line if self.turns else self.line
        places = line.places(line.first(run))

        def finish(m: Any) -> None:
            y, x, is_inside = map(T.bind, places(m))
            if self.turns:
                self._pixel(block, y, x, place + m * BLOCK)
                return
            with T.If(is_inside), T.Then():
                self._pixel(block, y, x, place + m * BLOCK)

        return finish

    def window(self, run: Any, tile: Any) -> Window:
        """The windows of a tile."""
        strides = attributes(self.composite.main)["strides"]
        if self.is_joined:
            first = self.line.first(run)
            places = self.line.places(first)
            return Window(first * strides[1], run, lambda m: places(m)[:2])
        if self.turns:
            places = self.pixels_in_line.places(self.pixels_in_line.first(run))
            first, second = (T.bind(self._place_of(*places(m)[:2])) for m in range(2))
            pixel = shape_of(self.composite.main.args[0].ty)[-1]
            apart = T.Cast("int64", (second - first) * pixel)
            return Window(first, run, lambda m: places(m)[:2], apart=apart)
        picture, _ = self.line_of(run)
        if self.distance > 1:
            first, before = self._place_of(run, tile), run * self.tiles + tile
            return Window(first, before, lambda m: (run, tile + m * self.distance), picture)
        x = self.column_of(tile)
        before = run * self.tiles + tirx.truncdiv(x + self.rows - 1, self.rows)
        return Window(self._place_of(run, x), before, lambda m: (run, x + m), picture)

    def _place_of(self, y: Any, x: Any) -> Any:
        """Where the window of a result begins, counted in the padded pictures."""
        down, right = attributes(self.composite.main)["strides"]
        picture, line = self.line_of(y)
        row = picture * self.input_height + line * (down // self.phases)
        return row * self.input_width + x * right

    def data_of(self, window: Window, channel: Any = 0) -> Any:
        """A pointer to where the first window of a tile begins, or to a channel there."""
        data = self.composite.main.args[0]
        top, left = attributes(self.composite.main)["origin"]
        row = stored_row(top, self.input_height, self.phases)
        position = row * self.input_width + left + window.first
        return T.address_of(self.arguments[data.name][position * shape_of(data.ty)[-1] + channel])
