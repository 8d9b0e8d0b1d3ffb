"""Results of sums, by TIR: a vector of channels at a time, pixel by pixel.

What it computes is read from the same arithmetic as everywhere (`stages.packaging.computing`).
Results are NHWC, with the halo that their readers want, or packed a block of channels at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.packaging.addressing import MIN_LANES, widths
from stages.packaging.byte_tables import looked_up_name, looked_up_text
from stages.packaging.computing import Computed, Elements
from stages.packaging.counting import computed_apart, saturates_words
from stages.packaging.finishing import Finish, Position, fill_halos, halo_of, surroundings
from stages.packaging.kernel import Kernel
from stages.packaging.kernel_parts import Pixel
from stages.packaging.narrowing import SATURATED, saturating_text, words_text
from stages.packaging.plain import on_stack, with_vectors
from stages.packaging.stores import BlockStore, block_store
from stages.packaging.tile_tables import TileTables
from stages.qnn.llvm import NEAREST, FunctionText
from stages.qnn.numbers import fence
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of
from stages.qnn.sharing import shared
from stages.qnn.signature import BLOCK

FEW_REGISTERS = 16
"""With no more an epilogue computes one register at a time: two were slower as often as faster."""
LOOKED_UP_AT_ONCE = (BLOCK, BLOCK // 2)
"""Bytes whose values are looked up together."""
FETCH = "bk_fetch"
"""A function of one pointer: it brings what is there into the first cache."""


class Lanes(TileTables):
    """An epilogue of vectors of channels, as many as there are, in TIR."""

    def made(self, make: Callable[[], Kernel]) -> Kernel:
        """The kernel, its epilogue as vectors if there is a way."""

        def by(loop: Any) -> Kernel:
            self.loop = loop
            return make()

        return with_vectors(by, self.of.hardware)

    @cached_property
    def elements(self) -> Elements:
        """What is computed."""
        return Elements(self.of)

    @property
    def least_strip(self) -> int:  # type: ignore[override]
        """A block where anything is stored by whole blocks, which no smaller strip has."""
        return BLOCK if self.block_stores else 1

    @property
    def sums_dtype(self) -> str:
        """That of the main operator; pools give integers."""
        composite = self.of.composite
        if composite.reads_floats:
            return "float32"
        return dtype_of(composite.main.ty) if composite.has_micro_kernel else "int32"

    @cached_property
    def outputs(self) -> int:
        """Channels of the results, with those that fill up the last block where they are stored."""
        return max(map(self.channels_of, self.of.composite.outputs))

    def channels_of(self, output: Any) -> int:
        """Channels of an output as it is stored, of packed ones whole blocks."""
        of, call = self.of, self.of.composite.store_of(output)
        if is_op(call, "relax.qnn.to_bytes"):
            return int(attributes(call)["channels"])
        if call.op.name in ("relax.qnn.bitpack", "relax.qnn.to_tables"):
            return of.blocks * BLOCK
        if surroundings(call) is not None:
            return shape_of(output.ty)[-1]
        return prod(shape_of(output.ty)) // (of.composite.pictures * of.height * of.width)

    @cached_property
    def block_stores(self) -> dict[Any, BlockStore]:
        """Outputs that are stored a block of channels at a time."""
        outputs = self.of.composite.outputs
        found = {o: block_store(self, number, o) for number, o in enumerate(outputs)}
        return {output: store for output, store in found.items() if store is not None}

    @property
    def lanes(self) -> int:
        """Channels at a time, at most: the steps of one value wait for each other, so that with
        registers to spare two take turns.

        Levels are soon as short as bytes, which fill a register of 128 bits.
        """
        least = BLOCK // 2 if self.of.composite.is_of_levels else MIN_LANES
        together = 2 if self.of.isa.registers > FEW_REGISTERS else 1
        return max(least, self.of.isa.lanes * together)

    def include(self) -> None:
        """What fetches, narrows, looks up and packs; the rest is TIR."""
        code = FunctionText()
        code.prefetch("%place", NEAREST)
        code.do("ret void")
        self.of.include(code.function(FETCH, ["ptr %place"]), list(code.declarations))
        for output, finish in self.finishes.items():
            if output in self.block_stores:
                continue
            if finish.packs:
                self.of.include(*saturating_text(finish.dtype))
            if finish.table is not None and not self.keeps_bytes:
                for width in LOOKED_UP_AT_ONCE:
                    self.of.include(*looked_up_text(self.of.isa, finish.dtype, width))
        for store in self.block_stores.values():
            if (text := store.text()) is not None:
                self.of.include(*text)
        if saturates_words(self.elements, BLOCK):
            self.of.include(*words_text())
        self.include_tables()

    def fetch(self, block: Any, pixel: Pixel) -> None:
        """Fetch a tile of the pictures that the epilogue reads, a line of the cache a pixel."""
        shape = (self.of.composite.pictures, self.of.height, self.of.width, self.outputs)
        others = self.of.composite.parameters[len(self.of.composite.main.args) :]
        read = {p: ([0, 0, 0, 0], shape[-1]) for p in others if shape_of(p.ty) == shape}
        for call in self.of.composite.calls.values():
            if is_op(call, "relax.qnn.from_bytes"):
                read[call.args[0]] = halo_of(call), shape_of(call.args[0].ty)[-1]
        if not read:
            return
        with T.serial(0, self.of.sums.rows) as m:
            y, x = pixel(m)
            at = self.position(block, y, x, 0, BLOCK)
            for parameter, (halo, channels) in read.items():
                place = self.of.arguments[parameter.name][at.place(halo, channels)]
                T.evaluate(T.call_extern("void", FETCH, T.address_of(place)))

    def fill_halos(self) -> None:
        """Task 0 writes what surrounds every output."""
        fill_halos(self.of)

    def pixel(self, strip: Any, y: Any, x: Any, sums: Any) -> None:
        """The epilogue of one pixel and strip: whole strips as vectors, the last as it is."""
        full, rest = divmod(self.outputs * self.of.pixels, self.of.sums.strip)
        if not rest:
            self._channels(strip, y, x, sums, self.of.sums.strip)
        elif not full:
            self._channels(strip, y, x, sums, rest)
        else:
            with T.If(strip < full):
                with T.Then():
                    self._channels(strip, y, x, sums, self.of.sums.strip)
                with T.Else():
                    self._channels(strip, y, x, sums, rest)

    def _channels(self, strip: Any, y: Any, x: Any, sums: Any, count: int) -> None:
        """So many channels of a strip, by vectors as long as there are channels for one."""
        if self.is_looked_up:
            self.store_kept(self.position(strip, y, x, 0), count)
            return
        with self._blocks(strip, y, x):
            first = 0
            for width, times in widths(count, self.lanes):
                parts = T.unroll if self.of.sums.is_direct else T.serial
                with on_stack(), parts(0, times) as part:
                    self._vector(strip, y, x, sums, first + part * width, width)
                first += width * times

    @contextmanager
    def _blocks(self, strip: Any, y: Any, x: Any) -> Iterator[None]:
        """Where channels are computed; what is stored by the block is stored in the end."""
        if not self.block_stores:
            yield
            return
        with on_stack():
            for store in self.block_stores.values():
                store.open()
            yield
            for store in self.block_stores.values():
                store.close(strip, y, x)

    def _vector(self, strip: Any, y: Any, x: Any, sums: Any, lane: Any, width: int) -> None:
        """So many channels from a lane of a strip on."""
        parts = T.unroll if self.of.sums.is_direct else T.serial
        loop = self.loop if width >= MIN_LANES else parts

        def each(emit: Callable[[Any, Position, Any], None]) -> None:
            with loop(0, width) as inner:
                at = self.position(strip, y, x, lane + inner)
                emit(inner, at, self.of.scratch[sums + lane + inner])

        apart = computed_apart(self.elements, each, width)
        packed = {}
        if width == BLOCK:
            wide = [output for output, finish in self._direct.items() if finish.packs]
            packed = {output: T.alloc_buffer((BLOCK,), "int32") for output in wide}

        def channel(inner: Any, at: Position, raw: Any) -> None:
            self.kept_at = self.number * self.of.sums.strip + lane + inner
            values = self.elements.at(at, raw, apart, inner)
            self._channel(at, values, packed, inner, width)
            for output, store in self.block_stores.items():
                store.put(values[self.of.composite.results[output]], lane + inner)

        each(channel)
        self._finish(packed, self.position(strip, y, x, lane), width)

    def position(self, strip: Any, y: Any, x: Any, lane: Any, size: int | None = None) -> Position:
        """A lane of a strip, of as many as are finished together unless another `size` is told."""
        first = strip * (self.of.sums.strip if size is None else size)
        extent = self.of.height, self.of.width
        return Position(*self.of.line_of(y), x, first + lane, extent)

    # -- outputs that are stored as they are computed -------------------------------------------

    @cached_property
    def _direct(self) -> dict[Any, Finish]:
        finishes = self.finishes.items()
        return {output: finish for output, finish in finishes if output not in self.block_stores}

    def _channel(
        self,
        at: Position,
        values: dict[Any, Computed],
        packed: dict[Any, Any],
        lane: Any,
        width: int,
    ) -> None:
        """Store a position of all outputs, a lane of those that are `packed`."""
        for result, output in zip(self.of.results, self.of.composite.outputs, strict=True):
            if output in self.block_stores:
                continue
            finish = self.finishes[output]
            if output in packed:
                bare = values[finish.bytes].unsaturated
                T.buffer_store(packed[output], shared(bare), [lane])
                continue
            if output in self.kept:
                self.keep(output, shared(values[finish.bytes].value))
                continue
            found = values[self.of.composite.results[output]].value
            if self._looks_up(finish, width):
                found = values[finish.bytes].value.astype(str(result.dtype))
            T.buffer_store(result, shared(self.stored(found, result)), [self.place(output, at)])

    def stored(self, value: Any, result: Any) -> Any:
        """A value as it is stored; a float that integers were made to has one zero, +0."""
        if self.of.composite.is_of_levels and str(result.dtype) == "float32":
            return value + fence(tirx.const(0.0, "float32"))  # TIR would leave a bare 0 out
        return value.astype(str(result.dtype))

    def _looks_up(self, finish: Finish, width: int) -> bool:
        """Whether so many channels are looked up together as they are stored."""
        return finish.table is not None and not self.keeps_bytes and width in LOOKED_UP_AT_ONCE

    def place(self, output: Any, at: Position) -> Any:
        """Where an output has what is at a position."""
        call, channels = self.of.composite.store_of(output), self.channels_of(output)
        if (around := surroundings(call)) is not None:
            return at.place(around.halo, channels, around.phases)
        if self.of.composite.turn_before(self.of.composite.results[output]) is not None:
            return at.turned(channels)
        return at.place([0, 0, 0, 0], channels)

    def _finish(self, packed: dict[Any, Any], at: Position, width: int) -> None:
        """Store what is packed, and look up values of bytes, from the first channel at a position
        on."""
        for result, output in zip(self.of.results, self.of.composite.outputs, strict=True):
            if output in self.block_stores:
                continue
            finish, place = self.finishes[output], result[self.place(output, at)]
            if output in packed:
                self._call(SATURATED + finish.dtype, packed[output][0], place)
            if self._looks_up(finish, width):
                values = self.of.arguments[finish.table.name][0]
                self._call(looked_up_name(finish.dtype, width), values, place, place)

    @staticmethod
    def _call(name: str, *places: Any) -> None:
        T.evaluate(T.call_extern("void", name, *map(T.address_of, places)))
