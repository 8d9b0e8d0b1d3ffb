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

from stages.packaging.lower import Lowering
from stages.packaging.plain import on_stack
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
    picture: Any = 0
    """Of a batch, the picture that they are in."""
    apart: Any = None
    """Bytes from one to the next, if they are not always the same."""


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

    def _work(self) -> None:
        """A task's part of the work, its thread's registers shaped for it."""
        with self._in_shape():
            if self.is_interleaved:
                self._interleaved(super()._work)
            else:
                super()._work()

    @contextmanager
    def _in_shape(self) -> Iterator[None]:
        if self.uses_tiles:
            T.evaluate(T.call_extern("void", TILES_BEGIN))
        yield
        if self.uses_tiles:
            T.evaluate(T.call_extern("void", TILES_END))

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
                self._end(self._late, sums)
                finish = self.finisher(*self._before(), sums)
                with T.serial(0, self.rows) as m:
                    finish(m)

    def tile(self, block: Any, run: Any, tile: Any) -> None:
        """A tile; where epilogues stand between products, its sums and what follows the last one's.

        Each half of scratch holds the sums of every other tile.
        """
        if not self.is_interleaved:
            super().tile(block, run, tile)
            return
        number = T.bind(self.done[0])
        sums = self._half(tirx.max(number - 1, 0))
        finish = self.finisher(*self._before(), sums)
        place = block, run, tile
        self._products(place, self._half(number), sums, tirx.min(number, 1), finish)
        T.buffer_store(self.done, number + 1, [0])
        for axis, value in enumerate(place):
            T.buffer_store(self.last, value, [axis])

    def _before(self) -> Place:
        """The place of the last tile."""
        block, run, tile = (T.bind(self.last[axis]) for axis in range(3))
        return block, run, tile

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
