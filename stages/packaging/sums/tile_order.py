"""How a kernel's work is split: blocks of channels by runs of tiles, and where tiles lie.

Tiles lie in an output row, or in the line that rows are joined into, or they take one pixel after
the other and wrap from the end of a row to the next. Where the inner loop goes through rows, of all
or of a row block, tasks have parts of a `TaskGrid`; else task t of n takes the items
`[items * t / n, items * (t + 1) / n)`, numbered row by row.
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
from stages.nodes import Index
from stages.packaging.emitting.addressing import divided, slice_of
from stages.packaging.emitting.kernel import TASKS, TASKS_OF_TILES
from stages.packaging.sums.joined_line import JoinedLine
from stages.packaging.sums.parts import Composition, Window, Work
from stages.packaging.sums.task_grid import TaskGrid
from stages.packaging.sums.window_reads import Windows


class OutputRows(Work):
    """Runs are output rows, of all images of a batch; the last tile of one overlaps another."""

    @property
    def distance(self) -> int | None:
        """Pixels of a row from one of a tile to the next; None where each tile says so."""
        return 1

    @property
    def runs(self) -> int:
        """Work items of a block."""
        return self.kernel.all_rows

    @property
    def tiles(self) -> int:
        """Tiles of a work item."""
        return -(-self.kernel.width // (self.kernel.sums.rows * self.kernel.pixels))

    @property
    def runs_per_row_block(self) -> int:
        """Work items of a block in a row block, all if the schedule has none."""
        rows = self.kernel.schedule.get("rows", self.kernel.all_rows)
        return max(1, min(self.runs, rows * self.runs // self.kernel.all_rows))

    @cached_property
    def grid(self) -> TaskGrid:
        """All work items."""
        each = TASKS_OF_TILES if self.kernel.sums.uses_tiles else TASKS
        return TaskGrid(self.kernel.blocks, self.runs, self.kernel.schedule["spread"], each)

    @property
    def blocks_are_inner(self) -> bool:
        """Whether the inner loop goes through blocks, so that it is rows that stay in the cache."""
        return bool(self.kernel.schedule["order"] == "blocks_inner")

    def emit(self) -> None:
        """Emit a task's part of the work."""

        def tiles(block: Index, run: Index) -> None:
            with T.serial(0, self.tiles) as tile:
                self.kernel.tile(block, run, tile)

        if self.blocks_are_inner:
            begin, end = slice_of(self.grid.items, self.kernel.task, self.kernel.tasks)
            self._items(T.bind(begin), end, tiles)
        else:
            with self.grid.share(self.kernel.task, self.kernel.tasks) as share:
                share.each(self.runs_per_row_block, tiles)

    def _items(self, begin: Index, end: Index, tiles: Callable[[Index, Index], None]) -> None:
        """Emit a task's work items, run after run."""
        with T.serial(0, T.bind(end - begin)) as item:
            self.item = item
            run, block = map(T.bind, divided(begin + item, self.kernel.blocks))
            tiles(block, run)

    def column_of(self, tile: Index) -> Index:
        """First pixel of a tile of a row."""
        step = self.kernel.sums.rows * self.kernel.pixels
        # The last tile overlaps its neighbour: the same pixels are written twice, alike.
        return T.bind(tirx.min(tile * step, self.kernel.width - step))

    def pixels(self, block: Index, run: Index, tile: Index, place: Index) -> Callable[[Any], None]:
        """What finishes the m-th pixel of a tile whose sums are at `place`."""
        x = self.column_of(tile)
        return lambda m: self._finish(block, m, run, x + m * self.kernel.pixels, place)

    def _finish(self, block: Index, m: Index, y: Index, x: Index, place: Index) -> None:
        self.kernel.finisher.pixel_number = m
        self.kernel.finisher.finish_pixel(block, y, x, place + m * BLOCK)

    def window(self, run: Index, tile: Index) -> Window:
        """The windows of a tile of a convolution."""
        x, rows = self.column_of(tile), self.kernel.sums.rows
        image, _ = self.kernel.image_row(run)
        before = run * self.tiles + tirx.truncdiv(x + rows - 1, rows)
        first = _windows(self.kernel).place_of(run, x)
        return Window(first, before, lambda m: (run, x + m), image)


class JoinedRows(OutputRows):
    """Runs are tiles, which go on from row to row, over what lies in between."""

    @classmethod
    def fits(cls, kernel: Composition) -> bool:
        """Whether joined rows take fewer tiles, and windows of the next row follow a row's."""
        reads, attrs = _windows(kernel), attributes(kernel.composite.main)
        images = kernel.composite.images
        joinable = are_joinable(attrs["window"], attrs["strides"], images, reads.phases)
        return joinable and not reads.has_computed_weights and cls(kernel).line.is_shorter

    @property
    def line(self) -> JoinedLine:
        """The results of all images as one line."""
        kernel, reads = self.kernel, _windows(self.kernel)
        pitch = reads.input_width // reads.phases
        images = kernel.composite.images
        return JoinedLine(
            kernel.height, kernel.width, images, reads.input_height, pitch, kernel.sums.rows
        )

    @property
    def runs(self) -> int:
        """Tiles of a block."""
        return self.line.tiles

    @property
    def tiles(self) -> int:
        """Tiles of a work item: one."""
        return 1

    def pixels(self, block: Index, run: Index, tile: Index, place: Index) -> Callable[[Any], None]:
        """What finishes a pixel; those that are in the halo are left out."""
        places = self.line.places(self.line.first(run))

        def finish(m: Index) -> None:
            y, x, is_inside = map(T.bind, places(m))
            with T.If(is_inside), T.Then():
                self._finish(block, m, y, x, place)

        return finish

    def window(self, run: Index, tile: Index) -> Window:
        """The windows of a tile, each a step behind the one before."""
        first = self.line.first(run)
        places = self.line.places(first)
        right = attributes(self.kernel.composite.main)["strides"][1]
        return Window(first * right, run, lambda m: places(m)[:2])


class WrappedRows(JoinedRows):
    """Runs are tiles of two pixels, which go on from the last of a row to the first of the next."""

    @classmethod
    def fits(cls, kernel: Composition) -> bool:
        """Whether wrapped rows take fewer tiles."""
        if not _takes_two(kernel):
            return False
        others = JoinedRows(kernel) if JoinedRows.fits(kernel) else OutputRows(kernel)
        return cls(kernel).runs < others.tiles_per_block

    @property
    def distance(self) -> int | None:
        """None: every tile has a distance of its own."""
        return None

    @property
    def line(self) -> JoinedLine:
        """The results of all images as one line with nothing in between."""
        kernel = self.kernel
        images = kernel.composite.images
        return JoinedLine(
            kernel.height, kernel.width, images, kernel.height, kernel.width, kernel.sums.rows
        )

    def pixels(self, block: Index, run: Index, tile: Index, place: Index) -> Callable[[Any], None]:
        """What finishes a pixel."""
        places = self.line.places(self.line.first(run))

        def finish(m: Index) -> None:
            y, x, _ = map(T.bind, places(m))
            self._finish(block, m, y, x, place)

        return finish

    def window(self, run: Index, tile: Index) -> Window:
        """The windows of a tile, wherever they are."""
        reads = _windows(self.kernel)
        places = self.line.places(self.line.first(run))
        first, second = (T.bind(reads.place_of(*places(m)[:2])) for m in range(2))
        pixel = shape_of(self.kernel.composite.main.args[0].ty)[-1]
        stride = T.Cast("int64", (second - first) * pixel)
        return Window(first, run, lambda m: places(m)[:2], pixel_stride=stride)


class RowHalves(OutputRows):
    """Runs are rows, whose tiles are a pixel of the first half and one of the second.

    Where two pixels have nothing in common each is then read on from where the tile before ended,
    which cores notice that fetch ahead.
    """

    @classmethod
    def fits(cls, kernel: Composition) -> bool:
        """Whether windows are pixels, and rows have halves of several."""
        is_alone = math.prod(attributes(kernel.composite.main)["window"]) == 1
        return _takes_two(kernel) and is_alone and kernel.width % 2 == 0 and kernel.width > 2

    @property
    def distance(self) -> int:
        """Pixels from one of a tile to the next: half a row."""
        return self.kernel.width // 2

    def pixels(self, block: Index, run: Index, tile: Index, place: Index) -> Callable[[Any], None]:
        """What finishes a pixel."""
        return lambda m: self._finish(block, m, run, tile + m * self.distance, place)

    def window(self, run: Index, tile: Index) -> Window:
        """The windows of a tile."""
        image, _ = self.kernel.image_row(run)
        first, before = _windows(self.kernel).place_of(run, tile), run * self.tiles + tile
        return Window(first, before, lambda m: (run, tile + m * self.distance), image)


def _takes_two(kernel: Composition) -> bool:
    """Whether a micro-kernel takes two pixels, wherever they are."""
    reads = _windows(kernel)
    return (
        kernel.sums.in_registers and reads.signature.spans_rows and not reads.has_computed_weights
    )


def _windows(kernel: Composition) -> Windows:
    """The reads of a convolution."""
    assert isinstance(kernel.reads, Windows)
    return kernel.reads
