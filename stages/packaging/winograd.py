"""A composite around a convolution by transformed products: Winograd's.

A tile of the kernel are some of Winograd's tiles by a block of channels. A few tiles of the kernel
are multiplied one behind another by the weights of one product, which stay in the first cache. All
products stand in scratch, then the sums of one of Winograd's tiles, which are finished pixel by
pixel.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.kinds import Table
from stages.packaging.convolution import Convolution
from stages.packaging.direct import Called
from stages.packaging.lower import divided
from stages.packaging.products import Products
from stages.packaging.transforms import sums_text
from stages.qnn.geometry import tile_count
from stages.qnn.methods import WORD_BYTES
from stages.qnn.registry import attributes, shape_of
from stages.qnn.signature import ALIGNMENT, BLOCK
from stages.qnn.transformed import inputs_of
from stages.qnn.winograd import calls_a_run, transform_for

SUMS = "bk_sums"
APART = ALIGNMENT // 4
"""Elements of scratch between the sums of one product and the next, so that not all are in the same
few sets of a cache."""


class Winograd(Convolution):
    """A convolution of windows of 3x3 pixels on tiles of a picture."""

    number: Any
    """Of the current pixel, among those of one of Winograd's tiles."""

    def include_bodies(self, bodies: Table) -> None:
        """The micro-kernel of the signature, for the channels of this layer, and the transform."""
        self.signature = self.composite.signature
        body = bodies[self.signature.name]
        self.inputs = inputs_of(self.composite.main)
        self.words = self.inputs // self.signature.channels_per_word
        attrs = attributes(self.composite.main)
        self.transform = transform_for(attrs["strides"], attrs["tile"])
        self.down, self.across = map(self.transform.tiles_of, (self.height, self.width))
        self.squares = self.composite.pictures * self.down * self.across
        self.calls_a_run = calls_a_run(self.squares, self.signature.rows)
        self.rows = self.signature.rows * self.calls_a_run
        pixel = self.words * WORD_BYTES
        strides = (1, self.words, 0, pixel, 0, self._share, 1, 0)
        text = body["text"], body["declarations"]
        self.help(Called(self.signature.name, text, 4, strides))
        self.product = self.rows * BLOCK + APART
        lanes = self.isa.lanes
        is_float = self.signature.is_float
        self.include(*sums_text(self.transform, SUMS, lanes, 4 * self.product, is_float))

    @property
    def runs(self) -> int:
        """Work items of a block: some tiles of the kernel."""
        return tile_count(self.squares, self.rows)

    @property
    def _share(self) -> int:
        """Bytes of the next product's weights that are fetched with every word of this one's.

        Nothing where several runs read a block's, which are mostly in the second cache, and where
        one call reads a product's, in the order in which they come from memory by themselves.
        """
        if self.runs > 1 or self.calls_a_run == 1:
            return 0
        return -(-self.signature.channels * WORD_BYTES // self.calls_a_run)

    @property
    def fetched(self) -> int:
        """Words of the next product's weights that one call of the micro-kernel fetches."""
        return self.words * self._share // WORD_BYTES

    @property
    def tiles(self) -> int:
        """Tiles of a work item."""
        return 1

    @property
    def sums_words(self) -> int:
        """Products of a tile of the kernel, and sums of one of Winograd's."""
        return self.transform.products * self.product + self.transform.outputs**2 * BLOCK

    def tile(self, block: Any, run: Any, tile: Any) -> None:
        """The products of some tiles, then their sums and epilogues."""
        del tile
        first = T.bind(tirx.min(run * self.rows, self.squares - self.rows))
        self._multiply(block, first)
        place = self.transform.products * self.product
        with T.serial(0, self.rows) as m:
            with T.serial(0, BLOCK // self.isa.lanes) as part:
                lane = part * self.isa.lanes
                pointers = self.scratch[m * BLOCK + lane], self.scratch[place + lane]
                T.evaluate(T.call_extern("void", SUMS, *map(T.address_of, pointers)))
            self.finish_square(block, first + m, place)

    def finish_square(self, block: Any, number: Any, place: Any) -> None:
        """The epilogues of the pixels of one of Winograd's tiles, whose sums are at a place."""
        row, x = divided(number, self.across)
        picture, y = divided(row, self.down)
        outputs = self.transform.outputs
        with T.serial(0, outputs) as down, T.serial(0, outputs) as right:
            line, column = y * outputs + down, x * outputs + right
            with T.If(tirx.all(line < self.height, column < self.width)), T.Then():
                self.number = down * outputs + right
                sums = place + self.number * BLOCK
                self._pixel(block, picture * self.height + line, column, sums)

    def _multiply(self, block: Any, first: Any) -> None:
        """The products of tiles from the `first` one on, int32 [products][rows][32]."""
        data, weights, _ = self.composite.main.args
        channels, parts = self.signature.channels, BLOCK // self.signature.channels
        size = prod(shape_of(weights.ty)[2:])
        products = self.transform.products
        with T.serial(0, parts) as part, T.serial(0, products) as number:
            own = ((block * parts + part) * products + number) * size
            with T.serial(0, self.calls_a_run) as call:
                square = call * self.signature.rows
                start = number * shape_of(data.ty)[1] + (first + square) * self.inputs
                elements = (
                    self.arguments[data.name][start],
                    self.arguments[weights.name][own],
                    self.scratch[number * self.product + square * BLOCK + part * channels],
                    self.arguments[weights.name][own + size + call * self.fetched],
                )
                T.evaluate(T.call_extern("void", self.inner, *map(T.address_of, elements)))


class WinogradProducts(Winograd, Products):
    """The same with an epilogue in TIR."""

    @property
    def pixels_together(self) -> int:
        """Those of one of Winograd's tiles."""
        return self.transform.outputs**2

    def finish_square(self, block: Any, number: Any, place: Any) -> None:
        """The epilogues of some pixels, and what is looked up of all of them."""
        finish = super().finish_square
        self.looked_up(lambda: finish(block, number, place))
