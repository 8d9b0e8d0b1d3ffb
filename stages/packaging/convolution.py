"""A composite around a convolution by a micro-kernel, one call per tile of pixels and channels.

A tile's pixels are neighbours in an output row, or in the line that rows are joined into.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.codegen import caller
from stages.kinds import Table
from stages.packaging.direct import NAME as SUMS_APART
from stages.packaging.direct import PAUSE, SUMS, Called, apart, pause, tile_function
from stages.packaging.interleaving import Pixel, Window
from stages.packaging.kernel import Helper, Kernel, digest_of
from stages.packaging.placing import Placing
from stages.packaging.plain import on_stack
from stages.qnn.groups import first_read
from stages.qnn.methods import WORD_BYTES
from stages.qnn.packed import WEIGHTS_RANK, reads_of, rows_of
from stages.qnn.registry import attributes, dtype_of, shape_of, storage_dtype
from stages.qnn.signature import BLOCK, RING_BYTES

APART = 3
"""Where strides say how far from one another the pixels of a tile are."""


class Convolution(Placing):
    """Sums by a micro-kernel.

    It stays out of the loops over tiles, alone or with one tile's epilogue, unless its counters are
    few: among constants that LLVM takes out of such a loop it would spill them.
    """

    least_strip = BLOCK
    """Channels that an epilogue can finish alone: those of a word of bits."""

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
        self.place_tiles(self.is_direct)
        rows = self.rows_apart(pixel)
        if self.reads:
            rows = rows.by_pixels(pixel, window[1])
        self.strides = (
            *rows_of(self.composite.main, self.signature),
            rows.row,
            self.distance * attrs["strides"][1] * pixel,
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
        numbers = [None if self.turns and n == APART else s for n, s in enumerate(self.strides)]
        self.called = Called(name, text, 4, numbers, self.begins)
        if self.is_interleaved:
            self.include(*text)
        elif not self.is_direct:
            self.help(self.called)

    @property
    def _share(self) -> int:
        """Bytes of the next block's weights that are fetched with every word of a window.

        Nothing where a block is not finished before the next one's weights are read, or these are
        read but once, or have just been computed.
        """
        if self.signature.is_whole or self.goes_through_blocks or self.has_matrices:
            return 0
        return -(-self.signature.weight_bytes // self.calls_together)

    @property
    def fetched(self) -> int:
        """Elements of the next block's weights that one call of the micro-kernel fetches."""
        weights = self.composite.main.args[1]
        size = prod(shape_of(weights.ty)[1:]) * storage_dtype(dtype_of(weights.ty)).itemsize
        words = size // self.signature.weight_bytes
        return words * self._share // storage_dtype(dtype_of(weights.ty)).itemsize

    def help(self, called: Called) -> None:
        """Have a function compute sums, with constants behind its pointers."""
        problem = {"name": called.name, "text": called.text, "strides": list(called.constants)}
        self.inner = f"sums_{digest_of(problem)}"
        numbers = [number for number in called.constants if number is not None]
        taken = called.text, called.pointers, numbers, int(called.begins)
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
        T.evaluate(T.call_extern("void", SUMS_APART, *operands, *places))
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

    def pointers(self, block: Any, part: Any, window: Window, place: Any) -> tuple[Any, ...]:
        """A call's data, weights, sums and the weights to fetch, or where bytes are made of them;
        `part` of the block's channels."""
        reads = self._reads(block, part, window)
        sums = T.address_of(self.scratch[place + part * self.signature.channels])
        return *reads[:SUMS], sums, *reads[SUMS:]

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
        before = window.before
        if self.calls_together < self.calls:
            before = tirx.truncmod(before, self.calls_together)
        fetched = (block + 1) * parts * size + (before * parts + part) * self.fetched
        channel = self._first(output)
        first = self.wide_at(channel) if self.wide_words else self.data_of(window, channel)
        read = self.arguments[weights.name]
        later = self.made if self.made_words else T.address_of(read[fetched])
        told = () if window.apart is None else (window.apart,)
        return first, T.address_of(read[own]), later, *told
