"""Convolutions by matrix tiles whose epilogues stand between the products of the next tile.

What waits for memory and what keeps the multiplier busy then overlap. Between the first product of
a task and its last one there is no pause, whatever blocks of channels and runs these are of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.packaging.lower import Lowering, divided
from stages.qnn.signature import BLOCK, TILES_BEGIN, TILES_END, KernelSignature

Place = tuple[Any, Any, Any]
"""A tile: its block of channels, its run, its number in that."""
Pixel = Callable[[Any], tuple[Any, Any]]
"""Number of a pixel in a tile → its row, among those of all pictures, and its column."""


@dataclass(frozen=True)
class Window:
    """The windows of a tile: its first one's position, counted in the padded pictures."""

    first: Any
    before: Any
    """Tiles of the block that came before, each of which fetched as much of the next weights."""
    pixel: Pixel


class Interleaving(Lowering):
    """Work items whose sums are computed in tiles, if the schedule says so."""

    signature: KernelSignature
    strides: tuple[int, ...]
    """What micro-kernels are told: rows of a window, words of these, and distances in bytes."""
    is_interleaved = False
    """Whether the epilogue of a tile stands between the products of the next one."""
    made_words = 0
    """Of 32 bits: what the kernel makes of weights that are stored in fewer bits."""

    def window(self, run: Any, tile: Any) -> Window:
        """The windows of a tile."""
        raise NotImplementedError

    def pointers(self, block: Any, part: Any, window: Window, place: Any) -> tuple[Any, ...]:
        """A call's data, weights, sums and the weights to fetch; `part` of the block's channels."""
        raise NotImplementedError

    def beginning(self, channel: Any) -> tuple[Any, ...]:
        """A pointer to what sums begin with, from a channel on, if that is not 0."""
        raise NotImplementedError

    def items(self, begin: Any, end: Any) -> None:
        """A task's work items, its thread's registers shaped for them."""
        with self._in_shape():
            if self.is_interleaved:
                self._interleaved(begin, end)
            else:
                super().items(begin, end)

    def items_of_runs(self, begin: Any, end: Any) -> None:
        """The same, without a pause between blocks where epilogues stand between products."""
        if self.is_interleaved:
            with self._in_shape():
                self._interleaved_blocks(begin, end)
        else:
            super().items_of_runs(begin, end)

    @contextmanager
    def _in_shape(self) -> Iterator[None]:
        if self.uses_tiles:
            T.evaluate(T.call_extern("void", TILES_BEGIN))
        yield
        if self.uses_tiles:
            T.evaluate(T.call_extern("void", TILES_END))

    def _interleaved_blocks(self, begin: Any, end: Any) -> None:
        with T.serial(0, self.blocks) as block:
            before, first, last = (
                T.bind(self.run_from(item, each) * self.tiles)
                for item, each in ((end, tirx.max(block - 1, 0)), (begin, block), (end, block))
            )
            done = T.bind(self._below(end, block) - self._below(begin, block))
            with T.serial(0, last - first) as number:
                # Counted, as to divide by a count would hold up the first product.
                is_first = number == 0
                other = T.bind(tirx.if_then_else(is_first, tirx.max(block - 1, 0), block))
                previous = T.bind(tirx.if_then_else(is_first, before, first + number) - 1)
                self._turn(
                    T.bind(done * self.tiles + number),
                    (block, *divided(first + number, self.tiles)),
                    (other, *divided(previous, self.tiles)),
                )
        end_of_last = T.bind(self.run_from(end, self.blocks - 1) * self.tiles)
        place = self.blocks - 1, *divided(end_of_last - 1, self.tiles)
        self._finish_last((end - begin) * self.tiles, place)

    def _below(self, item: Any, block: Any) -> Any:
        """How many items below one, numbered run by run, are of blocks before a block."""
        run, rest = divided(item, self.blocks)
        return run * block + tirx.min(rest, block)

    def _interleaved(self, begin: Any, end: Any) -> None:
        first = T.bind(begin * self.tiles)
        count = T.bind(end * self.tiles - first)
        with T.serial(0, count) as number:
            before = tirx.max(number - 1, 0)
            self._turn(number, self._tile_of(first + number), self._tile_of(first + before))
        with T.If(count > 0), T.Then():
            self._finish_last(count, self._tile_of(first + count - 1))

    def _turn(self, number: Any, tile: Place, before: Place) -> None:
        """The sums of a task's tile of this number, between them the epilogue of the one before.

        Each half of scratch holds the sums of every other tile.
        """
        done = self._half(tirx.max(number - 1, 0))
        finish = self.finisher(*before, done)
        self._products(tile, self._half(number), done, tirx.min(number, 1), finish)

    def _finish_last(self, count: Any, tile: Place) -> None:
        """The epilogue of the last of `count` tiles."""
        done = self._half(count - 1)
        self._end(self._late, done)
        finish = self.finisher(*tile, done)
        with T.serial(0, self.rows) as m:
            finish(m)

    def _half(self, number: Any) -> Any:
        return T.bind(number % 2 * (self.rows * BLOCK))

    @property
    def sums_words(self) -> int:
        """Sums of a tile of pixels, or of two in turns."""
        return super().sums_words * (2 if self.is_interleaved else 1)

    @property
    def _scratch_words(self) -> int:
        return super()._scratch_words + self.made_words

    @property
    def made(self) -> Any:
        """A pointer to what the kernel makes of weights."""
        return T.address_of(self.scratch[super()._scratch_words])

    def _tile_of(self, number: Any) -> Place:
        """A tile's place, by its number among all."""
        item, tile = divided(number, self.tiles)
        return *self.place_of(item), T.bind(tile)

    @property
    def _late(self) -> range:
        """Registers of pixels whose sums are stored among the products of the next tile.

        Sums have to wait for their last product, and the next product of the same register for
        them: with half of the registers at a time the other half goes on meanwhile. In plain C a
        tile of four, eight or nine steps takes 0.8, 0.9 and 0.9 of the time so, one of 36 0.97.
        """
        registers = self.signature.pixel_registers
        is_alone = self.signature.channels == BLOCK  # else another part of the block comes next
        return range(registers - registers // 2 if is_alone else registers, registers)

    def _begin(self, registers: range, *first: Any) -> None:
        name = f"{self.signature.name}_{'from' if first else 'begin'}"
        for register in registers:
            T.evaluate(T.call_extern("void", f"{name}{register}", *first))

    def _end(self, registers: range, place: Any) -> None:
        for register in registers:
            sums = T.address_of(self.scratch[place])
            T.evaluate(T.call_extern("void", f"{self.signature.name}_end{register}", sums))

    def _products(
        self, where: Place, place: Any, done: Any, ready: Any, finish: Callable[[Any], None]
    ) -> None:
        """A tile's sums; meanwhile the one before, with sums at `done` if `ready`, is finished.

        What the epilogue reads need not be fetched: products do not wait for it.
        """
        kh, words, *_ = self.strides
        steps, name = words // self.signature.step, self.signature.name
        block, run, tile = where
        window, parts = self.window(run, tile), BLOCK // self.signature.channels
        several, products = -(-self.rows // (parts * kh * steps)), self.signature.products_a_step
        early, late = range(self._late.start), self._late
        with T.serial(0, parts) as part:
            data, weights, _, later = self.pointers(block, part, window, place)
            first = self.beginning(block * BLOCK + part * self.signature.channels)
            if self.made_words:
                start = T.int64(0), T.int64(0), *map(T.int64, self.strides)
                T.evaluate(T.call_extern("void", f"{name}_ready", data, weights, later, *start))
            self._begin(early, *first)
            with T.serial(0, kh) as row, T.serial(0, steps) as step:
                numbers = (T.Cast("int64", row), T.Cast("int64", step), *map(T.int64, self.strides))
                if several == 1:  # not every step has a pixel to finish
                    T.evaluate(T.call_extern("void", f"{name}_awake"))
                for product in range(products):
                    if late and product == products * late.start // late.stop:
                        with T.If(tirx.all(row == 0, step == 0)), T.Then():
                            with T.If(ready > 0), T.Then():
                                self._end(late, done)
                            self._begin(late, *first)
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
