"""Convolutions by a micro-kernel that reads windows where they lie, with the halo around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import attributes, dtype_of, shape_of, storage_dtype
from stages.kernels.channel_groups import first_read
from stages.kernels.packed_conv2d import WEIGHTS_RANK, reads_of, rows_of, stored_row
from stages.kernels.signature import BLOCK
from stages.kinds import Table
from stages.nodes import Index, Scalar
from stages.packaging.sums.parts import Composition, InputReader, Window
from stages.packaging.sums.tile_function import MicroKernelCall


@dataclass(frozen=True)
class RowStrides:
    """Where rows of a window lie: `row` bytes apart, and after every `per` rows `wrap` more."""

    row: int
    per: int = 1
    wrap: int = 0

    def start(self, y: int) -> int:
        """Where a row begins, as `stages.synthesizing.operands.row_start` has it."""
        return y * self.row + y // self.per * self.wrap

    def by_pixels(self, pixel: int, columns: int) -> RowStrides:
        """Where pixels lie, of so many bytes, that are rows of their own."""
        return RowStrides(pixel, columns, self.row - columns * pixel)


class Windows(InputReader):
    """Windows of images, or of rows of a matrix, as they lie."""

    def __init__(self, kernel: Composition) -> None:
        super().__init__(kernel)
        self.main = kernel.composite.main
        self.signature = kernel.composite.signature
        self.rows, self.channels = self.signature.rows, self.signature.channels
        self.is_tiled, self.keeps_sums = (
            self.signature.is_tiled,
            self.signature.keeps_sums_in_registers,
        )
        attrs, data = attributes(self.main), self.main.args[0]
        *_, self.input_height, self.input_width, words = shape_of(data.ty)
        self.pixel = words * storage_dtype(dtype_of(data.ty)).itemsize
        """Bytes of one."""
        self.phases = attrs["phases"]
        self.reads = reads_of(attrs, self.signature)
        """What a tile of the kernel reads, if that is not all (`Groups.reads`)."""

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return int(attributes(self.main)["channels"][1])

    @property
    def preloads_bias(self) -> bool:
        """Whether the micro-kernel can preload the bias, and it is the same for all pixels."""
        is_plain = attributes(self.main)["scale"] == 1 and shape_of(self.main.args[2].ty)[0] == 1
        sums = self.kernel.sums
        return (sums.in_registers or sums.uses_tiles) and self.signature.preloads_bias and is_plain

    @property
    def has_computed_weights(self) -> bool:
        """Whether each image has weights of its own."""
        return len(shape_of(self.main.args[1].ty)) > WEIGHTS_RANK

    @cached_property
    def row_strides(self) -> RowStrides:
        """Where the rows of a window lie.

        In a polyphase layout odd rows are where the other phase is, in front or behind.
        """
        line = self.input_width * self.pixel
        if self.phases == 1:
            return RowStrides(line)
        top, _ = attributes(self.main)["origin"]
        first, second = (stored_row(top + y, self.input_height, self.phases) for y in (0, 1))
        row = (second - first) * line
        return RowStrides(row, self.phases, line - self.phases * row)

    @property
    def strides(self) -> tuple[int | None, ...]:
        """What micro-kernels are told: rows of a window, words of these, and distances in bytes;
        None is told with every tile."""
        attrs, rows = attributes(self.main), self.row_strides
        if self.reads:
            rows = rows.by_pixels(self.pixel, attrs["window"][1])
        distance = self.kernel.work.distance
        return (
            *rows_of(self.main, self.signature),
            rows.row,
            None if distance is None else distance * attrs["strides"][1] * self.pixel,
            self.input_height * self.input_width * self.pixel,
            self.share,
            rows.per,
            rows.wrap,
        )

    @property
    def share(self) -> int:
        """Bytes of the next block's weights that are fetched with every word of a window.

        Nothing where a block is not finished before the next one's weights are read, or these are
        read but once, or have just been computed.
        """
        work = self.kernel.work
        if self.signature.covers_layer or work.blocks_are_inner or self.has_computed_weights:
            return 0
        return -(-self.signature.weight_bytes // work.tiles_per_row_block)

    @property
    def prefetched(self) -> int:
        """Elements of the next block's weights that one call of the micro-kernel fetches."""
        weights = self.main.args[1]
        size = prod(shape_of(weights.ty)[1:]) * storage_dtype(dtype_of(weights.ty)).itemsize
        words = size // self.signature.weight_bytes
        return words * self.share // storage_dtype(dtype_of(weights.ty)).itemsize

    def micro_kernel(self, bodies: Table) -> MicroKernelCall:
        """The micro-kernel of the signature, for the strides of this layer."""
        body = bodies[self.signature.name]
        name = self.signature.preload_name if self.preloads_bias else self.signature.name
        text = body["text"], body["declarations"]
        return MicroKernelCall(name, text, 4, self.strides, self.preloads_bias)

    def operands(self, block: Index, part: Index, run: Index, tile: Index) -> tuple[Scalar, ...]:
        """Where data and weights begin, and the weights to fetch; what is told with a tile."""
        window = self.kernel.work.window(run, tile)
        with T.If(part == 0), T.Then():
            self.kernel.finisher.prefetch(block, window.pixel)
        return self.at(block, part, window)

    def operands_of(
        self, block: Index, run: Index, tile: Index
    ) -> Callable[[Any], tuple[Any, ...]]:
        """The `operands` of each part of a block; what the epilogue will read is fetched before."""
        window = self.kernel.work.window(run, tile)
        self.kernel.finisher.prefetch(block, window.pixel)
        return lambda part: self.at(block, part, window)

    def at(self, block: Index, part: Index, window: Window) -> tuple[Scalar, ...]:
        """The pointers of a call, given the windows of its tile."""
        kernel, weights = self.kernel, self.main.args[1]
        parts = BLOCK // self.channels
        size = prod(shape_of(weights.ty)[1 - WEIGHTS_RANK :])
        own = (block * parts + part) * size
        if self.has_computed_weights:
            own += window.image * (kernel.blocks * parts * size)
        output = (block * parts + part) * self.channels
        before = window.before
        if kernel.work.tiles_per_row_block < kernel.work.tiles_per_block:
            before = tirx.truncmod(before, kernel.work.tiles_per_row_block)
        fetched = (block + 1) * parts * size + (before * parts + part) * self.prefetched
        first = self.pointer(window, self._first(output))
        read = kernel.arguments[weights.name]
        later = kernel.unpacked if kernel.sums.unpacked_words else T.address_of(read[fetched])
        told = () if window.pixel_stride is None else (window.pixel_stride,)
        return first, T.address_of(read[own]), later, *told

    def _first(self, output: Index) -> Index:
        """The first channel that a tile of output channels reads."""
        if not self.reads:
            return 0
        channels = shape_of(self.main.args[0].ty)[-1]
        return first_read(output, self.reads, channels, tirx.min)

    def pointer(self, window: Window, channel: Index = 0) -> Scalar:
        """A pointer to where the first window of a tile begins, or to a channel there."""
        data = self.main.args[0]
        top, left = attributes(self.main)["origin"]
        row = stored_row(top, self.input_height, self.phases)
        position = row * self.input_width + left + window.first
        channels = shape_of(data.ty)[-1]
        return T.address_of(self.kernel.arguments[data.name][position * channels + channel])

    def place_of(self, y: Index, x: Index) -> Index:
        """Where the window of a result begins, counted in the padded images."""
        down, right = attributes(self.main)["strides"]
        image, line = self.kernel.image_row(y)
        row = image * self.input_height + line * (down // self.phases)
        return row * self.input_width + x * right
