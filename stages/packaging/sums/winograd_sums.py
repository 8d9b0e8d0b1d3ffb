"""A composite around a convolution by transformed products: Winograd's.

A tile of the kernel are some of Winograd's tiles by a block of channels. A few tiles of the kernel
are multiplied one behind another by the weights of one product, which stay in the L1 cache. All
products stand in scratch, then the sums of one of Winograd's tiles, which are finished pixel by
pixel.
"""

from __future__ import annotations

from math import prod

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import attributes, shape_of
from stages.kernels.geometry import tile_count
from stages.kernels.operand_storage import WORD_BYTES
from stages.kernels.packed_winograd import inputs_of
from stages.kernels.signature import ALIGNMENT, BLOCK
from stages.kernels.winograd_transforms import calls_a_run, transform_for
from stages.kinds import Table
from stages.nodes import Index
from stages.packaging.emitting.addressing import call_on, divided
from stages.packaging.emitting.winograd_text import sums_text
from stages.packaging.sums.parts import Composition, InputReader, Sums
from stages.packaging.sums.tile_function import MicroKernelCall
from stages.packaging.sums.tile_order import OutputRows
from stages.packaging.sums.tile_sums import helped

SUMS = "bk_sums"
GAP = ALIGNMENT // 4
"""Elements of scratch between the sums of one product and the next, so that not all are in the same
few sets of a cache."""


class WinogradTiles(InputReader):
    """Transformed tiles of an image, one product of all after the other."""

    def __init__(self, kernel: Composition) -> None:
        super().__init__(kernel)
        self.main, self.signature = kernel.composite.main, kernel.composite.signature
        attrs = attributes(self.main)
        self.inputs = inputs_of(self.main)
        self.words = self.inputs // self.signature.channels_per_word
        self.transform = transform_for(attrs["strides"], attrs["tile"])
        self.down, self.across = map(self.transform.tiles_of, (kernel.height, kernel.width))
        self.winograd_tiles = kernel.composite.images * self.down * self.across
        self.calls_a_run = calls_a_run(self.winograd_tiles, self.signature.rows)
        self.rows = self.signature.rows * self.calls_a_run

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return int(attributes(self.main)["channels"][1])

    @property
    def share(self) -> int:
        """Bytes of the next product's weights that are fetched with every word of this one's.

        Nothing where several runs read a block's, which are mostly in the L2 cache, and where
        one call reads a product's, in the order in which they come from memory by themselves.
        """
        if self.kernel.work.runs > 1 or self.calls_a_run == 1:
            return 0
        return -(-self.signature.channels * WORD_BYTES // self.calls_a_run)

    @property
    def prefetched(self) -> int:
        """Words of the next product's weights that one call of the micro-kernel fetches."""
        return self.words * self.share // WORD_BYTES

    def micro_kernel(self, bodies: Table) -> MicroKernelCall:
        """The micro-kernel of the signature, for the channels of this layer."""
        body = bodies[self.signature.name]
        pixel = self.words * WORD_BYTES
        strides = (1, self.words, 0, pixel, 0, self.share, 1, 0)
        return MicroKernelCall(
            self.signature.name, (body["text"], body["declarations"]), 4, strides
        )


class WinogradRuns(OutputRows):
    """Runs are some tiles of the transform, whatever row these are in."""

    @property
    def runs(self) -> int:
        """Work items of a block: some tiles of the kernel."""
        return tile_count(_winograd(self.kernel).winograd_tiles, self.kernel.reads.rows)

    @property
    def tiles(self) -> int:
        """Tiles of a work item: one."""
        return 1


class WinogradSums(Sums):
    """Sums of products in scratch, of windows of 3x3 pixels on tiles of an image."""

    def __init__(self, kernel: Composition) -> None:
        super().__init__(kernel)
        self.reads = _winograd(kernel)
        self.transform = self.reads.transform
        self.product = self.rows * BLOCK + GAP

    @property
    def words(self) -> int:
        """Products of a tile of the kernel, and sums of one of Winograd's."""
        return self.transform.products * self.product + self.transform.outputs**2 * BLOCK

    @property
    def pixels_together(self) -> int:
        """Pixels that are finished together: those of one of Winograd's tiles."""
        return self.transform.outputs**2

    def include(self, bodies: Table) -> None:
        """Include the micro-kernel and the transform."""
        self.inner = helped(self.kernel, self.reads.micro_kernel(bodies))
        lanes, is_float = self.kernel.isa.lanes, self.reads.signature.is_float
        self.kernel.include(*sums_text(self.transform, SUMS, lanes, 4 * self.product, is_float))

    def tile(self, block: Index, run: Index, tile: Index) -> None:
        """Emit the products of some tiles, then their sums and what follows."""
        del tile
        kernel, reads = self.kernel, self.reads
        first = T.bind(tirx.min(run * self.rows, reads.winograd_tiles - self.rows))
        self._multiply(block, first)
        place = self.transform.products * self.product
        with T.serial(0, self.rows) as m:
            with T.serial(0, BLOCK // kernel.isa.lanes) as part:
                lane = part * kernel.isa.lanes
                pointers = kernel.scratch[m * BLOCK + lane], kernel.scratch[place + lane]
                call_on(SUMS, *pointers)
            kernel.finisher.emit_epilogues(lambda: self._finish_square(block, first + m, place))

    def _finish_square(self, block: Index, number: Index, place: Index) -> None:
        """The epilogues of the pixels of one of Winograd's tiles, whose sums are at a place."""
        kernel, reads = self.kernel, self.reads
        row, x = divided(number, reads.across)
        image, y = divided(row, reads.down)
        outputs = self.transform.outputs
        with T.serial(0, outputs) as down, T.serial(0, outputs) as right:
            line, column = y * outputs + down, x * outputs + right
            with T.If(tirx.all(line < kernel.height, column < kernel.width)), T.Then():
                kernel.finisher.pixel_number = down * outputs + right
                sums = place + kernel.finisher.pixel_number * BLOCK
                kernel.finisher.finish_pixel(block, image * kernel.height + line, column, sums)

    def _multiply(self, block: Index, first: Index) -> None:
        """The products of tiles from the `first` one on, int32 [products][rows][32]."""
        kernel, reads, signature = self.kernel, self.reads, self.reads.signature
        data, weights, _ = reads.main.args
        channels, parts = signature.channels, BLOCK // signature.channels
        size = prod(shape_of(weights.ty)[2:])
        products = self.transform.products
        with T.serial(0, parts) as part, T.serial(0, products) as number:
            own = ((block * parts + part) * products + number) * size
            with T.serial(0, reads.calls_a_run) as call:
                offset = call * signature.rows
                start = number * shape_of(data.ty)[1] + (first + offset) * reads.inputs
                elements = (
                    kernel.arguments[data.name][start],
                    kernel.arguments[weights.name][own],
                    kernel.scratch[number * self.product + offset * BLOCK + part * channels],
                    kernel.arguments[weights.name][own + size + call * reads.prefetched],
                )
                call_on(self.inner, *elements)


def _winograd(kernel: Composition) -> WinogradTiles:
    """The reads of a convolution by transformed products."""
    assert isinstance(kernel.reads, WinogradTiles)
    return kernel.reads
