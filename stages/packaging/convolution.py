"""A composite around a convolution by a micro-kernel, one call per tile of pixels and channels.

A tile's pixels are neighbours in an output row. Where a convolution moves by single pixels, those
of the next row follow behind the halo between them: rows can be joined into one long line of
positions, of which those in the halo are computed in vain, so that tiles need not fit a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.codegen import Text, caller
from stages.kinds import Table
from stages.packaging.kernel import Helper, digest_of
from stages.packaging.lower import Lowering, divided
from stages.qnn.offers import tile_count
from stages.qnn.registry import attributes, dtype_of, shape_of, storage_dtype
from stages.qnn.signature import BLOCK, TILES_BEGIN, TILES_END, WORD_BYTES

Pixel = Callable[[Any], tuple[Any, Any]]
"""Number of a pixel in a tile → its row, among those of all pictures, and its column."""


class Convolution(Lowering):
    """Sums by a micro-kernel.

    It stays a function of its own: among an epilogue's constants LLVM would spill its counters.
    """

    is_joined = False
    """Whether tiles go on from row to row."""

    def include_bodies(self, bodies: Table) -> None:
        """The micro-kernel of the signature, for the strides of this layer."""
        self.signature = self.composite.signature
        self.rows = self.signature.rows
        body = bodies[self.signature.name]
        self.uses_tiles = self.signature.is_tiled
        if self.uses_tiles:
            self.include(*body["shaping"])
        attrs = attributes(self.composite.main)
        data = self.composite.main.args[0]
        *_, self.input_height, self.input_width, words = shape_of(data.ty)
        pixel = words * storage_dtype(dtype_of(data.ty)).itemsize
        window = attrs["window"]
        self.is_joined = list(attrs["strides"]) == [1, 1] and self._is_shorter_joined
        strides = (
            window[0],
            window[1] * pixel // self.signature.word_bytes,
            self.input_width * pixel,
            attrs["strides"][1] * pixel,
            self.input_height * self.input_width * pixel,
            self._share,
        )
        self.help(self.signature.name, (body["text"], body["declarations"]), 4, strides)

    @property
    def positions(self) -> int:
        """Pixels from the first of all pictures to the last, those in halos between them too."""
        rows = (self.composite.pictures - 1) * self.input_height + self.height
        return (rows - 1) * self.input_width + self.width

    @property
    def _is_shorter_joined(self) -> bool:
        by_rows = self.lines * tile_count(self.width, self.rows)
        return self.rows > self.width or tile_count(self.positions, self.rows) < by_rows

    @property
    def runs(self) -> int:
        """Work items of a block: rows, or tiles where rows are joined."""
        return tile_count(self.positions, self.rows) if self.is_joined else self.lines

    @property
    def calls(self) -> int:
        """Tiles of a block of channels."""
        return self.runs * (1 if self.is_joined else tile_count(self.width, self.rows))

    @property
    def _share(self) -> int:
        """Bytes of the next block's weights that are fetched with every word of a window.

        Nothing where a block is not finished before the next one's weights are read.
        """
        bytes_a_word = self.signature.channels * self.signature.weight_planes * WORD_BYTES
        return -(-bytes_a_word // self.calls) if self.schedule["order"] == "rows_inner" else 0

    @property
    def fetched(self) -> int:
        """Elements of the next block's weights that one call of the micro-kernel fetches."""
        weights = self.composite.main.args[1]
        size = prod(shape_of(weights.ty)[1:]) * storage_dtype(dtype_of(weights.ty)).itemsize
        words = size // (self.signature.channels * self.signature.weight_planes * WORD_BYTES)
        return words * self._share // storage_dtype(dtype_of(weights.ty)).itemsize

    def help(self, name: str, text: Text, pointers: int, strides: Sequence[int] = ()) -> None:
        """Have the function `name` of a text compute sums, with constants behind its pointers."""
        problem = {"text": text, "strides": strides}
        self.inner = f"sums_{digest_of(problem)}"
        function = caller(self.inner, name, text, pointers, strides)
        self.helpers.append(Helper(self.inner, function, problem))

    def items(self, begin: Any, end: Any) -> None:
        """A task's work items, its thread's registers shaped for them."""
        if self.uses_tiles:
            T.evaluate(T.call_extern("void", TILES_BEGIN))
        super().items(begin, end)
        if self.uses_tiles:
            T.evaluate(T.call_extern("void", TILES_END))

    def run(self, block: Any, number: Any) -> None:
        """A row of tiles, or a tile of joined rows, of which pixels in the halo are left out."""
        if not self.is_joined:
            super().run(block, number)
            return
        # As in a row, the last tile overlaps its neighbour.
        first = T.bind(tirx.min(number * self.rows, self.positions - self.rows))

        def pixel(m: Any) -> tuple[Any, Any]:
            row, x = divided(first + m, self.input_width)
            picture, line = divided(row, self.input_height)
            return (picture * self.height + line if self.composite.pictures > 1 else row), x

        self.tile(block, first, number, pixel)
        with T.serial(0, self.rows) as m:
            y, x = (T.bind(coordinate) for coordinate in pixel(m))
            is_inside = x < self.width
            if self.composite.pictures > 1:
                _, place = divided(first + m, self.input_height * self.input_width)
                is_inside = tirx.all(is_inside, place < self.height * self.input_width)
            with T.If(is_inside), T.Then():
                self._pixel(block, y, x, m * BLOCK)

    def sums(self, block: Any, y: Any, x: Any) -> None:
        """Raw sums of neighbours in a row."""
        strides = attributes(self.composite.main)["strides"]
        picture, line = self.line_of(y)
        row = picture * self.input_height + line * strides[0]
        in_row = tirx.truncdiv(x + self.rows - 1, self.rows)
        before = y * tile_count(self.width, self.rows) + in_row
        self.tile(block, row * self.input_width + x * strides[1], before, lambda m: (y, x + m))

    def tile(self, block: Any, first: Any, before: Any, pixel: Pixel) -> None:
        """Raw sums of a tile, int32 [rows][32], whose first window is at position `first`.

        `before` counts the tiles of this block that came before, each of which fetched as much of
        the next block's weights.
        """
        del pixel
        data, weights, _ = self.composite.main.args
        top, left = attributes(self.composite.main)["origin"]
        words = shape_of(data.ty)[-1]
        tiles = BLOCK // self.signature.channels
        tile_words = prod(shape_of(weights.ty)[1:])
        following = (block + 1) * tiles * tile_words + before * tiles * self.fetched
        with T.serial(0, tiles) as tile:
            pointers = (
                self.arguments[data.name][(top * self.input_width + left + first) * words],
                self.arguments[weights.name][(block * tiles + tile) * tile_words],
                self.scratch[tile * self.signature.channels],
                self.arguments[weights.name][following + tile * self.fetched],
            )
            T.evaluate(T.call_extern("void", self.inner, *map(T.address_of, pointers)))
