"""Convolutions by matrix tiles whose epilogues stand between the products of the next tile.

Epilogues wait for memory while the multiplier works: there is no pause between the first product
of a task and its last one, whatever blocks of channels and runs these are of.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.kernels.signature import BLOCK
from stages.kinds import Table
from stages.nodes import Index, Scalar
from stages.packaging.emitting.vector_loops import on_stack
from stages.packaging.sums.parts import Composition
from stages.packaging.sums.tile_sums import InMatrixTiles
from stages.packaging.sums.window_reads import Windows

Place = tuple[Index, Index, Index]
"""A tile: its block of channels, its run, its number in that."""


class InterleavedTiles(InMatrixTiles):
    """Sums in scratch by matrix tiles, each half of it with those of every other tile."""

    def __init__(self, kernel: Composition) -> None:
        super().__init__(kernel)
        assert isinstance(kernel.reads, Windows)
        self.reads, self.signature = kernel.reads, kernel.composite.signature

    @classmethod
    def fits(cls, kernel: Composition) -> bool:
        """Whether the schedule interleaves the sums of tiles with what follows them."""
        return super().fits(kernel) and bool(kernel.schedule["interleaved"])

    @property
    def words(self) -> int:
        """Sums of two tiles."""
        return 2 * super().words

    def include(self, bodies: Table) -> None:
        """Include the micro-kernel's products on their own."""
        body = bodies[self.signature.name]
        self.kernel.include(*body["shaping"])
        self.kernel.include(body["text"], body["declarations"])

    def emit_task(self, work: Callable[[], None]) -> None:
        """Emit all work of a task, and in the end what follows the last tile."""
        super().emit_task(lambda: self._interleaved(work))

    def _interleaved(self, work: Callable[[], None]) -> None:
        """Tiles as they come, each with the one before, whatever block and run that is of."""
        with on_stack():
            self.done = T.alloc_buffer((1,), "int32")
            self.last = T.alloc_buffer((3,), "int32")
            T.buffer_store(self.done, 0, [0])
            for axis in range(3):
                T.buffer_store(self.last, 0, [axis])
            work()
            with T.If(self.done[0] > 0), T.Then():
                sums = self._half(self.done[0] - 1)
                self._end(self._overlapped, sums)
                self.kernel.each_pixel(self.kernel.work.pixels(*self._before(), sums))

    def tile(self, block: Index, run: Index, tile: Index) -> None:
        """Emit the sums of a tile, and what follows the sums of the tile before."""
        number = T.bind(self.done[0])
        sums = self._half(tirx.max(number - 1, 0))
        finish = self.kernel.work.pixels(*self._before(), sums)
        place = block, run, tile
        self._products(place, self._half(number), sums, tirx.min(number, 1), finish)
        T.buffer_store(self.done, number + 1, [0])
        for axis, value in enumerate(place):
            T.buffer_store(self.last, value, [axis])

    def _before(self) -> Place:
        """The place of the last tile."""
        block, run, tile = (T.bind(self.last[axis]) for axis in range(3))
        return block, run, tile

    def _half(self, number: Index) -> Index:
        return T.bind(number % 2 * (self.rows * BLOCK))

    @property
    def _overlapped(self) -> range:
        """Registers of pixels whose sums are stored among the products of the next tile.

        Sums have to wait for their last product, and the next product of the same register for
        them: with half of the registers at a time the other half goes on meanwhile. In plain C a
        tile of four, eight or nine steps takes 0.8, 0.9 and 0.9 of the time so, one of 36 0.97.
        """
        registers = self.signature.pixel_registers
        is_alone = self.signature.channels == BLOCK  # else another part of the block comes next
        return range(registers - registers // 2 if is_alone else registers, registers)

    def _begin(self, registers: range, *first: Scalar) -> None:
        name = f"{self.signature.name}_{'from' if first else 'begin'}"
        for register in registers:
            T.evaluate(T.call_extern("void", f"{name}{register}", *first))

    def _end(self, registers: range, place: Index) -> None:
        for register in registers:
            sums = T.address_of(self.kernel.scratch[place])
            T.evaluate(T.call_extern("void", f"{self.signature.name}_end{register}", sums))

    def _products(
        self, where: Place, place: Index, done: Index, ready: Index, finish: Callable[[Index], None]
    ) -> None:
        """A tile's sums; meanwhile the one before, with sums at `done` if `ready`, is finished.

        What the epilogue reads need not be fetched: products do not wait for it.
        """
        strides = [number for number in self.reads.strides if number is not None]
        kh, words, *_ = strides
        steps, name = words // self.signature.step, self.signature.name
        block, run, tile = where
        window, parts = self.kernel.work.window(run, tile), BLOCK // self.signature.channels
        several, products = -(-self.rows // (parts * kh * steps)), self.signature.products_a_step
        early, overlapped = range(self._overlapped.start), self._overlapped
        with T.serial(0, parts) as part:
            data, weights, later = self.reads.at(block, part, window)
            first = self.kernel.bias_pointer(block * BLOCK + part * self.signature.channels)
            if self.unpacked_words:
                start = T.int64(0), T.int64(0), *map(T.int64, strides)
                T.evaluate(T.call_extern("void", f"{name}_ready", data, weights, later, *start))
            self._begin(early, *first)
            with T.serial(0, kh) as row, T.serial(0, steps) as step:
                numbers = (T.Cast("int64", row), T.Cast("int64", step), *map(T.int64, strides))
                if several == 1:  # not every step has a pixel to finish
                    T.evaluate(T.call_extern("void", f"{name}_awake"))
                for product in range(products):
                    if overlapped and product == products * overlapped.start // overlapped.stop:
                        with T.If(tirx.all(row == 0, step == 0)), T.Then():
                            with T.If(ready > 0), T.Then():
                                self._end(overlapped, done)
                            self._begin(overlapped, *first)
                    called = f"{name}_product{product}"
                    T.evaluate(T.call_extern("void", called, data, weights, later, *numbers))
                    begin, end = (several * (product + i) // products for i in (0, 1))
                    if begin == end:
                        continue
                    with T.serial(begin, end) as one:
                        m = T.bind(((part * kh + row) * steps + step) * several + one)
                        with T.If(m < ready * self.rows), T.Then():
                            finish(m)
            self._end(early, place + part * self.signature.channels)
