"""A composite around a convolution by a micro-kernel, one call per tile of pixels and channels.

A tile's pixels are neighbours in an output row, or in the line that rows are joined into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.codegen import caller
from stages.kinds import Table
from stages.packaging.direct import NAME as APART
from stages.packaging.direct import PAUSE, SUMS, Called, apart, pause, tile_function
from stages.packaging.interleaving import Pixel, Window
from stages.packaging.joining import Line
from stages.packaging.kernel import Helper, Kernel, digest_of
from stages.packaging.plain import on_stack
from stages.packaging.widening import Apart, Widening
from stages.qnn.geometry import are_joinable
from stages.qnn.groups import first_read
from stages.qnn.methods import WORD_BYTES
from stages.qnn.packed import WEIGHTS_RANK, reads_of, rows_of, stored_row
from stages.qnn.registry import attributes, dtype_of, shape_of, storage_dtype
from stages.qnn.signature import BLOCK, RING_BYTES


class Convolution(Widening):
    """Sums by a micro-kernel.

    It stays out of the loops over tiles, alone or with one tile's epilogue, unless its counters are
    few: among constants that LLVM takes out of such a loop it would spill them.
    """

    least_strip = BLOCK
    """Channels that an epilogue can finish alone: those of a word of bits."""
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
        self.phases = attrs["phases"]
        self.reads = reads_of(attrs, self.signature)
        joinable = are_joinable(window, attrs["strides"], self.composite.pictures, self.phases)
        self.is_joined = joinable and not self.has_matrices and self.line.is_shorter
        rows = self.rows_apart(pixel)
        if self.reads:
            rows = rows.by_pixels(pixel, window[1])
        self.strides = (
            *rows_of(self.composite.main, self.signature),
            rows.row,
            attrs["strides"][1] * pixel,
            self.input_height * self.input_width * pixel,
            self._share,
            rows.per,
            rows.wrap,
        )
        self.is_interleaved = self.uses_tiles and self.schedule["interleaved"]
        if self.signature.makes_bytes:
            self.made_words = RING_BYTES // WORD_BYTES
        if self.signature.is_widened:
            self.widen_windows(pixel)
        text = body["text"], body["declarations"]
        name = self.signature.beginning if self.begins else self.signature.name
        self.called = Called(name, text, 4, self.strides, self.begins)
        if self.is_interleaved:
            self.include(*text)
        elif not self.is_direct:
            self.help(self.called)

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
    def runs(self) -> int:
        """Work items of a block: rows, or tiles where rows are joined."""
        return self.line.tiles if self.is_joined else self.lines

    @property
    def calls(self) -> int:
        """Tiles of a block of channels."""
        return self.runs * self.tiles

    @property
    def _share(self) -> int:
        """Bytes of the next block's weights that are fetched with every word of a window.

        Nothing where a block is not finished before the next one's weights are read, or these are
        read but once, or have just been computed.
        """
        if self.signature.is_whole or self.goes_through_blocks or self.has_matrices:
            return 0
        return -(-self.signature.weight_bytes // self.calls)

    @property
    def fetched(self) -> int:
        """Elements of the next block's weights that one call of the micro-kernel fetches."""
        weights = self.composite.main.args[1]
        size = prod(shape_of(weights.ty)[1:]) * storage_dtype(dtype_of(weights.ty)).itemsize
        words = size // self.signature.weight_bytes
        return words * self._share // storage_dtype(dtype_of(weights.ty)).itemsize

    def help(self, called: Called) -> None:
        """Have a function compute sums, with constants behind its pointers."""
        problem = {"name": called.name, "text": called.text, "strides": called.constants}
        self.inner = f"sums_{digest_of(problem)}"
        taken = called.text, called.pointers, called.constants, int(called.begins)
        function = caller(self.inner, called.name, *taken)
        self.helpers.append(Helper(self.inner, function, problem))

    @cached_property
    def is_direct(self) -> bool:
        """Whether sums stay in registers until they are results."""
        if self.float_outputs:
            return False
        return self.signature.keeps_sums and self.signature.channels >= self.least_strip

    @property
    def stays_in_loop(self) -> bool:
        """Whether a tile whose sums stay in registers needs no function of its own: it leaves as
        many to what LLVM takes out of the loop over tiles."""
        return self.is_direct and 2 * self.rows * self.strip <= self.isa.registers * self.isa.lanes

    @property
    def begins(self) -> bool:
        """Whether sums begin with the bias, so that nobody has to add it.

        If they can, and it is the same for all pixels.
        """
        main = self.composite.main
        is_plain = attributes(main)["scale"] == 1 and shape_of(main.args[2].ty)[0] == 1
        return (self.is_direct or self.uses_tiles) and self.signature.begins and is_plain

    def beginning(self, channel: Any) -> tuple[Any, ...]:
        """A pointer to the bias from a channel on, if sums begin with it."""
        if not self.begins:
            return ()
        bias = self.arguments[self.composite.main.args[2].name]
        return (T.address_of(bias[channel]),)

    @property
    def strip(self) -> int:
        """Channels of a tile that are finished together."""
        return self.signature.channels if self.is_direct else BLOCK

    @property
    def sums_words(self) -> int:
        """Sums in scratch, if any are there."""
        return 0 if self.is_direct else super().sums_words

    def kernel(self) -> Kernel:
        """The kernel, and what computes its tiles if that is a function of its own."""
        if self.stays_in_loop:
            text, declarations = apart(self.called, self.rows, self.strip)
            self.include(f"{text}\n{pause()}", declarations)
        elif self.is_direct:
            symbol = f"tile_{self.symbol}"
            function = tile_function(
                symbol,
                self.called,
                self.texts,
                (self.rows, self.strip),
                self.declare_tile,
                self._body,
            )
            self.helpers = [Helper(symbol, function, {"tile": self.symbol})]
        return super().kernel()

    def _body(self, block: Any, run: Any, tile: Any) -> None:
        """A tile, strip by strip; its sums are on the stack until LLVM takes them to registers."""
        with on_stack():
            sums = [T.alloc_buffer((BLOCK,), self.sums_dtype) for _ in range(self.rows)]
            parts = BLOCK // self.strip
            with T.serial(0, parts) as part:
                strip = T.bind(block * parts + part)
                with T.If(strip * self.strip < self.outputs), T.Then():
                    self._strip(block, part, strip, run, tile, sums)

    def _strip(
        self, block: Any, part: Any, strip: Any, run: Any, tile: Any, sums: Sequence[Any]
    ) -> None:
        """The sums of a tile's channels in a strip, and what follows."""
        operands = *self.operands(block, part, run, tile), *self.beginning(strip * self.strip)
        places = [T.address_of(pixel[0]) for pixel in sums]
        T.evaluate(T.call_extern("void", APART, *operands, *places))
        self.finish_strip(strip, run, tile, sums)

    def finish_strip(self, strip: Any, run: Any, tile: Any, sums: Sequence[Any]) -> None:
        """What follows the sums of a tile's channels in a strip, pixel by pixel."""
        scratch = self.scratch
        for m, pixel in enumerate(sums):
            T.evaluate(T.call_extern("void", PAUSE))
            self.scratch = pixel  # its own, so that its sums are at 0
            self.finisher(strip, run, tile, -m * BLOCK)(m)
        self.scratch = scratch

    def tile(self, block: Any, run: Any, tile: Any) -> None:
        """A tile, by its function if it has one."""
        self.widen(block, run, tile)
        if not self.is_direct:
            super().tile(block, run, tile)
            return
        if self.stays_in_loop:
            self._body(block, run, tile)
            return
        tensors = [T.address_of(tensor[0]) for tensor in (*self.arguments.values(), *self.results)]
        if self.wide_words:
            tensors.append(self.wide_at(0))
        called = f"tile_{self.symbol}"
        T.evaluate(T.call_extern("void", called, *tensors, block, run, tile))

    @cached_property
    def outputs(self) -> int:
        """Channels of the result, with those that fill up the last block."""
        return self.blocks * BLOCK

    @property
    def tiles(self) -> int:
        """Tiles of a work item."""
        return 1 if self.is_joined else super().tiles

    def start(self, block: Any, run: Any, tile: Any) -> None:
        """The sums of a tile, int32 [rows][32]."""
        window = self.window(run, tile)
        self.fetch(block, window.pixel)
        with T.serial(0, BLOCK // self.signature.channels) as part:
            channel = block * BLOCK + part * self.signature.channels
            pointers = *self.pointers(block, part, window, 0), *self.beginning(channel)
            T.evaluate(T.call_extern("void", self.inner, *pointers))

    def operands(self, block: Any, part: Any, run: Any, tile: Any) -> tuple[Any, ...]:
        """A micro-kernel's pointers without that to its sums, for a `part` of a block's channels.

        With the first part of it, what the epilogue will read is fetched.
        """
        window = self.window(run, tile)
        with T.If(part == 0), T.Then():
            self.fetch(block, window.pixel)
        return self._reads(block, part, window)

    def fetch(self, block: Any, pixel: Pixel) -> None:
        """Bring closer what the epilogue of a tile will read."""

    def finisher(self, block: Any, run: Any, tile: Any, place: Any) -> Callable[[Any], None]:
        """The epilogue of a pixel; those of joined rows that are in the halo are left out."""
        if not self.is_joined:
            return super().finisher(block, run, tile, place)
        places = self.line.places(self.line.first(run))

        def finish(m: Any) -> None:
            y, x, is_inside = map(T.bind, places(m))
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
        picture, line = self.line_of(run)
        x = self.column_of(tile)
        row = picture * self.input_height + line * (strides[0] // self.phases)
        before = run * self.tiles + tirx.truncdiv(x + self.rows - 1, self.rows)
        first = row * self.input_width + x * strides[1]
        return Window(first, before, lambda m: (run, x + m), picture)

    def pointers(self, block: Any, part: Any, window: Window, place: Any) -> tuple[Any, ...]:
        """A call's data, weights, sums and the weights to fetch, or where bytes are made of them;
        `part` of the block's channels."""
        reads = self._reads(block, part, window)
        sums = T.address_of(self.scratch[place + part * self.signature.channels])
        return *reads[:SUMS], sums, *reads[SUMS:]

    def data_of(self, window: Window, channel: Any = 0) -> Any:
        """A pointer to where the first window of a tile begins, or to a channel there."""
        data = self.composite.main.args[0]
        top, left = attributes(self.composite.main)["origin"]
        row = stored_row(top, self.input_height, self.phases)
        position = row * self.input_width + left + window.first
        return T.address_of(self.arguments[data.name][position * shape_of(data.ty)[-1] + channel])

    def _first(self, output: Any) -> Any:
        """The first channel that a tile of output channels reads."""
        if not self.reads:
            return 0
        channels = shape_of(self.composite.main.args[0].ty)[-1]
        return first_read(output, self.reads, channels, tirx.min)

    def _reads(self, block: Any, part: Any, window: Window) -> tuple[Any, ...]:
        weights = self.composite.main.args[1]
        parts = BLOCK // self.signature.channels
        size = prod(shape_of(weights.ty)[1 - WEIGHTS_RANK :])
        own = (block * parts + part) * size
        if self.has_matrices:
            own += window.picture * (self.blocks * parts * size)
        output = (block * parts + part) * self.signature.channels
        fetched = (block + 1) * parts * size + (window.before * parts + part) * self.fetched
        channel = self._first(output)
        first = self.wide_at(channel) if self.wide_words else self.data_of(window, channel)
        read = self.arguments[weights.name]
        later = self.made if self.made_words else T.address_of(read[fetched])
        return first, T.address_of(read[own]), later
