"""The results of a composite: how channels that are computed get to where they lie.

An epilogue takes a block of 32 channels at once, or a *strip* of it: as many channels as a tile's
sums can stay in registers for (`Sums.strip`). A strip is computed vector by vector, and a *lane* of
a vector is one channel at one position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect.let_bindings import shared
from stages.dialect.numbers_tir import fence
from stages.kernels.signature import BLOCK
from stages.nodes import Buffer, Index, Scalar, Var
from stages.packaging.emitting.addressing import call_on
from stages.packaging.emitting.byte_lut import lut_name, lut_text
from stages.packaging.emitting.vector_loops import on_stack
from stages.packaging.epilogues.block_stores import block_store
from stages.packaging.epilogues.elements import Computed
from stages.packaging.epilogues.outputs import (
    Finish,
    Position,
    finish_of,
)
from stages.packaging.epilogues.result_places import ResultPlaces
from stages.packaging.epilogues.saturation import SATURATED, saturating_text
from stages.packaging.epilogues.tile_luts import TileLuts
from stages.packaging.epilogues.vector_finisher import VectorFinisher

LUT_WIDTHS = (BLOCK, BLOCK // 2)
"""Bytes whose values are looked up together."""


class Results:
    """The outputs of the composite that a finisher ends."""

    def __init__(self, finisher: VectorFinisher) -> None:
        self.finisher, self.kernel = finisher, finisher.kernel
        self.composite = self.kernel.composite
        self.places = places = ResultPlaces(self.kernel)
        isa = self.kernel.isa
        outputs = self.composite.outputs
        found = {o: block_store(places, number, o) for number, o in enumerate(outputs)}
        self.block_stores = {output: store for output, store in found.items() if store is not None}
        """Outputs that are stored a block of channels at a time."""
        others = [output for output in outputs if output not in self.block_stores]
        self.finishes: Mapping[Var, Finish] = {o: finish_of(self.composite, o, isa) for o in others}
        """How each of the others is finished."""
        self.luts = TileLuts(finisher, places, self.finishes)

    def include(self) -> None:
        """Include the text of what narrows, looks up and packs."""
        for finish in self.finishes.values():
            if finish.has_saturating_pack:
                self.kernel.include(*saturating_text(finish.dtype))
            if finish.values is not None and not self.luts.keeps_bytes:
                for width in LUT_WIDTHS:
                    self.kernel.include(*lut_text(self.kernel.isa, finish.dtype, width))
        for store in self.block_stores.values():
            self.kernel.include(*store.text())
        self.luts.include()

    @contextmanager
    def of_pixel(self, strip: Index, y: Index, x: Index, count: int) -> Iterator[None]:
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

    def packed_buffers(self, width: int) -> Mapping[Var, Buffer]:
        """Output → a buffer for integers that instructions saturate, of a vector of channels."""
        wide = [output for output, finish in self.finishes.items() if finish.has_saturating_pack]
        return {o: T.alloc_buffer((BLOCK,), "int32") for o in wide} if width == BLOCK else {}

    def put(
        self,
        at: Position,
        values: Mapping[Var, Computed],
        packed: Mapping[Var, Buffer],
        lane: Index,
        channel: Index,
        width: int,
    ) -> None:
        """Emit what keeps or stores a position of all outputs.

        It is a `lane` of a vector `width` channels wide, and that `channel` of the strip.
        """
        for output, finish in self.finishes.items():
            if output in packed:
                bare = values[finish.bytes].unsaturated
                assert bare is not None, "what is packed is saturated"
                T.buffer_store(packed[output], shared(bare), [lane])
            elif output in self.luts.kept:
                self.luts.keep(output, shared(values[finish.bytes].value), channel)
            else:
                is_looked_up = self._looks_up(finish, width)
                variable = finish.bytes if is_looked_up else self.composite.results[output]
                buffer = self.places.buffer_of(output)
                value = self.as_stored(values[variable].value, buffer)
                T.buffer_store(buffer, shared(value), [self.places.place(output, at)])
        for output, store in self.block_stores.items():
            store.put(values[self.composite.results[output]], channel)

    def as_stored(self, value: Scalar, buffer: Buffer) -> Scalar:
        """A value in the type it is stored in; a float that integers were made to has one zero."""
        if self.composite.is_of_levels and str(buffer.dtype) == "float32":
            return value + fence(tirx.const(0.0, "float32"))  # TIR would leave a bare 0 out
        return value.astype(str(buffer.dtype))

    def _looks_up(self, finish: Finish, width: int) -> bool:
        """Whether so many channels are looked up together as they are stored."""
        is_kept = self.luts.keeps_bytes
        return finish.values is not None and not is_kept and width in LUT_WIDTHS

    def end(self, packed: Mapping[Var, Buffer], at: Position, width: int) -> None:
        """Emit what stores `packed` integers, and looks up values of bytes, from the first channel
        at a position on."""
        for output, finish in self.finishes.items():
            place = self.places.buffer_of(output)[self.places.place(output, at)]
            if output in packed:
                call_on(SATURATED + finish.dtype, packed[output][0], place)
            if self._looks_up(finish, width):
                values = self.kernel.arguments[finish.values_name][0]
                call_on(lut_name(finish.dtype, width), values, place, place)

    def fill_up(self, strip: Index, y: Index, x: Index) -> None:
        """Emit zeros behind the last channel of a pixel."""
        places = self.places
        more = {output: places.stored(output) - places.channels for output in self.finishes}
        if max(more.values(), default=0) <= 0:
            return
        size = self.kernel.sums.strip
        with T.If(strip == -(-places.channels // size) - 1), T.Then():
            for output, count in more.items():
                buffer, first = places.buffer_of(output), places.channels - strip * size
                with T.serial(0, max(0, count)) as behind:
                    at = self.finisher.position(strip, y, x, first + behind)
                    zero = tirx.const(0, str(buffer.dtype))
                    T.buffer_store(buffer, zero, [places.place(output, at)])
