"""How a kernel's work is split: blocks of channels by runs of tiles, and where tiles lie.

Tiles lie in an output row, or in the line that rows are joined into, or they are one pixel after
the other, whatever row these are in. Where the inner loop goes through rows, of all or of a row
block, tasks have parts of a `Grid`; else task t of n takes items `[items * t / n,
items * (t + 1) / n)`, numbered row by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import attributes, shape_of
from stages.kernels.geometry import are_joinable
from stages.kernels.signature import BLOCK
from stages.packaging.emitting.addressing import divided, slice_of
from stages.packaging.emitting.kernel import TASKS, TASKS_OF_TILES
from stages.packaging.sums.joined_line import Line
from stages.packaging.sums.parts import Composition, Window, Work
from stages.packaging.sums.task_grid import Grid
from stages.packaging.sums.window_reads import Windows


class Rows(Work):
    """Runs are output rows, of all pictures of a batch; the last tile of one overlaps another."""

    @property
    def distance(self) -> int | None:
        """Results of a row from one pixel of a tile to the next one; None where that is told."""
        return 1

    @property
    def runs(self) -> int:
        """Work items of a block."""
        return self.of.lines

    @property
    def tiles(self) -> int:
        """Tiles of a work item."""
        return -(-self.of.width // (self.of.sums.rows * self.of.pixels))

    @property
    def runs_together(self) -> int:
        """Work items of a block in a row block, all if the schedule has none."""
        rows = self.of.schedule.get("rows", self.of.lines)
        return max(1, min(self.runs, rows * self.runs // self.of.lines))

    @cached_property
    def grid(self) -> Grid:
        """All work items."""
        each = TASKS_OF_TILES if self.of.sums.uses_tiles else TASKS
        return Grid(self.of.blocks, self.runs, self.of.schedule["spread"], each)

    @property
    def goes_through_blocks(self) -> bool:
        """Whether the inner loop does, so that it is rows that stay in the cache."""
        return bool(self.of.schedule["order"] == "blocks_inner")

    def emit(self) -> None:
        """Emit a task's part of the work."""

        def tiles(block: Any, run: Any) -> None:
            with T.serial(0, self.tiles) as tile:
                self.of.tile(block, run, tile)

        if self.goes_through_blocks:
            begin, end = slice_of(self.grid.items, self.of.task, self.of.tasks)
            self._items(T.bind(begin), end, tiles)
        else:
            with self.grid.part(self.of.task, self.of.tasks) as part:
                part.each(self.runs_together, tiles)

    def _items(self, begin: Any, end: Any, tiles: Callable[[Any, Any], None]) -> None:
        """Emit a task's work items, run after run."""
        with T.serial(0, T.bind(end - begin)) as item:
            self.item = item
            run, block = map(T.bind, divided(begin + item, self.of.blocks))
            tiles(block, run)

    def column_of(self, tile: Any) -> Any:
        """First pixel of a tile of a row."""
        step = self.of.sums.rows * self.of.pixels
        # The last tile overlaps its neighbour: the same pixels are written twice, alike.
        return T.bind(tirx.min(tile * step, self.of.width - step))

    def pixels(self, block: Any, run: Any, tile: Any, place: Any) -> Callable[[Any], None]:
        """What finishes the m-th pixel of a tile whose sums are at `place`."""
        x = self.column_of(tile)
        return lambda m: self._finish(block, m, run, x + m * self.of.pixels, place)

    def _finish(self, block: Any, m: Any, y: Any, x: Any, place: Any) -> None:
        self.of.finisher.number = m
        self.of.finisher.pixel(block, y, x, place + m * BLOCK)

    def window(self, run: Any, tile: Any) -> Window:
        """The windows of a tile of a convolution."""
        x, rows = self.column_of(tile), self.of.sums.rows
        picture, _ = self.of.line_of(run)
        before = run * self.tiles + tirx.truncdiv(x + rows - 1, rows)
        first = _windows(self.of).place_of(run, x)
        return Window(first, before, lambda m: (run, x + m), picture)


class Joined(Rows):
    """Runs are tiles, which go on from row to row, over what lies in between."""

    @classmethod
    def fits(cls, of: Composition) -> bool:
        """Whether tiles are fewer so, and windows of the next row follow behind a row's."""
        reads, attrs = _windows(of), attributes(of.composite.main)
        pictures = of.composite.pictures
        joinable = are_joinable(attrs["window"], attrs["strides"], pictures, reads.phases)
        return joinable and not reads.has_matrices and cls(of).line.is_shorter

    @property
    def line(self) -> Line:
        """The results of all pictures as one line."""
        of, reads = self.of, _windows(self.of)
        pitch = reads.input_width // reads.phases
        pictures = of.composite.pictures
        return Line(of.height, of.width, pictures, reads.input_height, pitch, of.sums.rows)

    @property
    def runs(self) -> int:
        """Tiles of a block."""
        return self.line.tiles

    @property
    def tiles(self) -> int:
        """A work item is one."""
        return 1

    def pixels(self, block: Any, run: Any, tile: Any, place: Any) -> Callable[[Any], None]:
        """What finishes a pixel; those that are in the halo are left out."""
        places = self.line.places(self.line.first(run))

        def finish(m: Any) -> None:
            y, x, is_inside = map(T.bind, places(m))
            with T.If(is_inside), T.Then():
                self._finish(block, m, y, x, place)

        return finish

    def window(self, run: Any, tile: Any) -> Window:
        """The windows of a tile, each a step behind the one before."""
        first = self.line.first(run)
        places = self.line.places(first)
        right = attributes(self.of.composite.main)["strides"][1]
        return Window(first * right, run, lambda m: places(m)[:2])


class Turning(Joined):
    """Runs are tiles of two pixels, which go on from the last of a row to the first of the next."""

    @classmethod
    def fits(cls, of: Composition) -> bool:
        """Whether tiles are fewer so."""
        if not _takes_two(of):
            return False
        others = Joined(of) if Joined.fits(of) else Rows(of)
        return cls(of).runs < others.calls

    @property
    def distance(self) -> int | None:
        """Another for every tile."""
        return None

    @property
    def line(self) -> Line:
        """The results of all pictures as one line with nothing in between."""
        of = self.of
        pictures = of.composite.pictures
        return Line(of.height, of.width, pictures, of.height, of.width, of.sums.rows)

    def pixels(self, block: Any, run: Any, tile: Any, place: Any) -> Callable[[Any], None]:
        """What finishes a pixel."""
        places = self.line.places(self.line.first(run))

        def finish(m: Any) -> None:
            y, x, _ = map(T.bind, places(m))
            self._finish(block, m, y, x, place)

        return finish

    def window(self, run: Any, tile: Any) -> Window:
        """The windows of a tile, wherever they are."""
        reads = _windows(self.of)
        places = self.line.places(self.line.first(run))
        first, second = (T.bind(reads.place_of(*places(m)[:2])) for m in range(2))
        pixel = shape_of(self.of.composite.main.args[0].ty)[-1]
        apart = T.Cast("int64", (second - first) * pixel)
        return Window(first, run, lambda m: places(m)[:2], apart=apart)


class Halves(Rows):
    """Runs are rows, whose tiles are a pixel of the first half and one of the second.

    Where two pixels have nothing in common each is then read on from where the tile before ended,
    which cores notice that fetch ahead.
    """

    @classmethod
    def fits(cls, of: Composition) -> bool:
        """Whether windows are pixels, and rows have halves of several."""
        is_alone = math.prod(attributes(of.composite.main)["window"]) == 1
        return _takes_two(of) and is_alone and of.width % 2 == 0 and of.width > 2

    @property
    def distance(self) -> int:
        """Half a row."""
        return self.of.width // 2

    def pixels(self, block: Any, run: Any, tile: Any, place: Any) -> Callable[[Any], None]:
        """What finishes a pixel."""
        return lambda m: self._finish(block, m, run, tile + m * self.distance, place)

    def window(self, run: Any, tile: Any) -> Window:
        """The windows of a tile."""
        picture, _ = self.of.line_of(run)
        first, before = _windows(self.of).place_of(run, tile), run * self.tiles + tile
        return Window(first, before, lambda m: (run, tile + m * self.distance), picture)


def _takes_two(of: Composition) -> bool:
    """Whether a micro-kernel takes two pixels, wherever they are."""
    reads = _windows(of)
    return of.sums.is_direct and reads.signature.spans_rows and not reads.has_matrices


def _windows(of: Composition) -> Windows:
    """The reads of a convolution."""
    assert isinstance(of.reads, Windows)
    return of.reads
