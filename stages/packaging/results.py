"""The results of a composite: where each lies, and how channels that are computed get there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect.calls import attributes, is_op, shape_of
from stages.dialect.let_bindings import shared
from stages.dialect.numbers_tir import fence
from stages.graph.composites import MOVED
from stages.kernels.signature import BLOCK
from stages.packaging.addressing import call_on
from stages.packaging.byte_tables import looked_up_name, looked_up_text
from stages.packaging.computing import Computed
from stages.packaging.finishing import (
    Finish,
    Position,
    finish_of,
    is_handed_on,
    is_packed,
    surroundings,
)
from stages.packaging.narrowing import SATURATED, saturating_text
from stages.packaging.plain import on_stack
from stages.packaging.stores import block_store
from stages.packaging.tile_tables import TileTables

if TYPE_CHECKING:
    from stages.packaging.lanes import Lanes

LOOKED_UP_AT_ONCE = (BLOCK, BLOCK // 2)
"""Bytes whose values are looked up together."""


class Results:
    """The outputs of the composite that a finisher ends."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes, self.of = lanes, lanes.of
        self.composite = self.of.composite
        isa = self.of.isa
        outputs = self.composite.outputs
        found = {o: block_store(self, number, o) for number, o in enumerate(outputs)}
        self.block_stores = {output: store for output, store in found.items() if store is not None}
        """Outputs that are stored a block of channels at a time."""
        others = [output for output in outputs if output not in self.block_stores]
        self.finishes: Mapping[Any, Finish] = {o: finish_of(self.composite, o, isa) for o in others}
        """How each of the others is finished."""
        self.tables = TileTables(self)

    # -- where they lie ------------------------------------------------------------------------

    @cached_property
    def channels(self) -> int:
        """Channels that are computed."""
        return max(map(self._computed, self.composite.outputs))

    def _computed(self, output: Any) -> int:
        """Channels of an output, without zeros behind them."""
        variable, channels = self.composite.results[output], self.stored(output)
        calls = self.composite.calls
        while (call := calls.get(variable)) is not None and is_handed_on(call):
            variable = call.args[0]
            if str(call.op.name) not in MOVED:
                channels = min(channels, shape_of(variable.ty)[-1])
        return channels

    def stored(self, output: Any) -> int:
        """Channels of an output as it is stored."""
        of, call = self.of, self.composite.store_of(output)
        if is_op(call, "relax.qnn.to_bytes"):
            return int(attributes(call)["channels"])
        if is_packed(call):
            return of.blocks * BLOCK
        if surroundings(call) is not None:
            return shape_of(output.ty)[-1]
        return prod(shape_of(output.ty)) // (self.composite.pictures * of.height * of.width)

    def place(self, output: Any, at: Position) -> Any:
        """Where an output has what is at a position."""
        call, channels = self.composite.store_of(output), self.stored(output)
        if (around := surroundings(call)) is not None:
            return at.place(around.halo, channels, around.phases)
        if self.composite.turn_before(self.composite.results[output]) is not None:
            return at.turned(channels)
        return at.place([0, 0, 0, 0], channels)

    def buffer_of(self, output: Any) -> Any:
        """The buffer that an output is written to."""
        return self.of.results[self.composite.outputs.index(output)]

    # -- how they get there --------------------------------------------------------------------

    def include(self) -> None:
        """Include the text of what narrows, looks up and packs."""
        for finish in self.finishes.values():
            if finish.packs:
                self.of.include(*saturating_text(finish.dtype))
            if finish.table is not None and not self.tables.keeps_bytes:
                for width in LOOKED_UP_AT_ONCE:
                    self.of.include(*looked_up_text(self.of.isa, finish.dtype, width))
        for store in self.block_stores.values():
            self.of.include(*store.text())
        self.tables.include()

    @contextmanager
    def of_pixel(self, strip: Any, y: Any, x: Any, count: int) -> Iterator[None]:
        """Where so many channels of a strip are computed; in the end what is stored by the block
        is stored."""
        if not self.block_stores:
            yield
            return
        with on_stack():
            for store in self.block_stores.values():
                store.open(count)
            yield
            for store in self.block_stores.values():
                store.close(strip, y, x)

    def packed_buffers(self, width: int) -> Mapping[Any, Any]:
        """Output → a buffer for integers that instructions saturate, of a vector of channels."""
        wide = [output for output, finish in self.finishes.items() if finish.packs]
        return {o: T.alloc_buffer((BLOCK,), "int32") for o in wide} if width == BLOCK else {}

    def put(
        self,
        at: Position,
        values: Mapping[Any, Computed],
        packed: Mapping[Any, Any],
        lane: tuple[Any, Any],
        width: int,
    ) -> None:
        """Emit what keeps or stores a position of all outputs.

        It is a `lane` of a vector of so many channels, and of a strip.
        """
        own, in_strip = lane
        for output, finish in self.finishes.items():
            if output in packed:
                bare = values[finish.bytes].unsaturated
                T.buffer_store(packed[output], shared(bare), [own])
            elif output in self.tables.kept:
                self.tables.keep(output, shared(values[finish.bytes].value), in_strip)
            else:
                is_looked_up = self._looks_up(finish, width)
                variable = finish.bytes if is_looked_up else self.composite.results[output]
                buffer = self.buffer_of(output)
                value = self.as_stored(values[variable].value, buffer)
                T.buffer_store(buffer, shared(value), [self.place(output, at)])
        for output, store in self.block_stores.items():
            store.put(values[self.composite.results[output]], in_strip)

    def as_stored(self, value: Any, buffer: Any) -> Any:
        """A value in the type it is stored in; a float that integers were made to has one zero."""
        if self.composite.is_of_levels and str(buffer.dtype) == "float32":
            return value + fence(tirx.const(0.0, "float32"))  # TIR would leave a bare 0 out
        return value.astype(str(buffer.dtype))

    def _looks_up(self, finish: Finish, width: int) -> bool:
        """Whether so many channels are looked up together as they are stored."""
        is_kept = self.tables.keeps_bytes
        return finish.table is not None and not is_kept and width in LOOKED_UP_AT_ONCE

    def end(self, packed: Mapping[Any, Any], at: Position, width: int) -> None:
        """Emit what stores `packed` integers, and looks up values of bytes, from the first channel
        at a position on."""
        for output, finish in self.finishes.items():
            place = self.buffer_of(output)[self.place(output, at)]
            if output in packed:
                call_on(SATURATED + finish.dtype, packed[output][0], place)
            if self._looks_up(finish, width):
                values = self.of.arguments[finish.table.name][0]
                call_on(looked_up_name(finish.dtype, width), values, place, place)

    def fill_up(self, strip: Any, y: Any, x: Any) -> None:
        """Emit zeros behind the last channel of a pixel."""
        more = {output: self.stored(output) - self.channels for output in self.finishes}
        if max(more.values(), default=0) <= 0:
            return
        size = self.of.sums.strip
        with T.If(strip == -(-self.channels // size) - 1), T.Then():
            for output, count in more.items():
                buffer, first = self.buffer_of(output), self.channels - strip * size
                with T.serial(0, max(0, count)) as lane:
                    place = self.place(output, self.lanes.position(strip, y, x, first + lane))
                    T.buffer_store(buffer, tirx.const(0, str(buffer.dtype)), [place])
