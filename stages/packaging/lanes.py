"""Results of single channels, by TIR behind the sums of a micro-kernel.

What it computes is read from the same arithmetic as everywhere (`stages.qnn.expressions`), one
vector of channels at a time; results are NHWC, with the halo that their readers want.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.script.ir_builder import tirx as T

from stages.packaging.addressing import MIN_LANES, border_class, widths
from stages.packaging.byte_tables import looked_up_name, looked_up_text
from stages.packaging.finishing import (
    SAME,
    Finish,
    Position,
    halo_of,
    surroundings,
)
from stages.packaging.halo import fill_halo
from stages.packaging.kernel import Kernel
from stages.packaging.kernel_parts import Pixel
from stages.packaging.narrowing import SATURATED, saturating_text
from stages.packaging.plain import on_stack, with_vectors
from stages.packaging.tile_tables import TileTables
from stages.qnn.elementwise import WHOLE, WIDENED
from stages.qnn.expressions import clipped, saturates, scalar, unsaturated
from stages.qnn.llvm import NEAREST, FunctionText
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of, storage_dtype
from stages.qnn.sharing import shared
from stages.qnn.signature import BLOCK

FEW_REGISTERS = 16
"""With no more an epilogue computes one register at a time: two were slower as often as faster."""
LOOKED_UP_AT_ONCE = (BLOCK, BLOCK // 2)
"""Bytes whose values are looked up together."""
FETCH = "bk_fetch"
"""A function of one pointer: it brings what is there into the first cache."""


@dataclass(frozen=True)
class Computed:
    """What an operator gives at one position."""

    value: Any
    wide: Any = None
    """The same in 32 bits, if it is bytes by a clip."""
    unsaturated: Any = None
    """An int32 that saturating makes it of, if there is one."""


class Lanes(TileTables):
    """An epilogue of vectors of channels, as many as there are, in TIR."""

    least_strip = 1

    def made(self, make: Callable[[], Kernel]) -> Kernel:
        """The kernel, its epilogue as vectors if there is a way."""

        def by(loop: Any) -> Kernel:
            self.loop = loop
            return make()

        return with_vectors(by, self.of.hardware)

    @property
    def sums_dtype(self) -> str:
        """That of the main operator."""
        return dtype_of(self.of.composite.main.ty)

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return self.of.reads.outputs

    @property
    def lanes(self) -> int:
        """Channels at a time, at most: the steps of one value wait for each other, so that with
        registers to spare two take turns."""
        together = 2 if self.of.isa.registers > FEW_REGISTERS else 1
        return max(MIN_LANES, self.of.isa.lanes * together)

    def include(self) -> None:
        """What fetches, narrows and looks up; the rest is TIR."""
        code = FunctionText()
        code.prefetch("%place", NEAREST)
        code.do("ret void")
        self.of.include(code.function(FETCH, ["ptr %place"]), list(code.declarations))
        for finish in self.finishes.values():
            if finish.packs:
                self.of.include(*saturating_text(finish.dtype))
            if finish.table is not None and not self.keeps_bytes:
                for width in LOOKED_UP_AT_ONCE:
                    self.of.include(*looked_up_text(self.of.isa, finish.dtype, width))
        self.include_tables()

    def fetch(self, block: Any, pixel: Pixel) -> None:
        """Fetch a tile of the pictures that the epilogue reads, a line of the cache a pixel."""
        extent = self.of.height, self.of.width, self.outputs
        shape = (self.of.composite.pictures, *extent)
        others = self.of.composite.parameters[len(self.of.composite.main.args) :]
        read = {p: [0, 0, 0, 0] for p in others if shape_of(p.ty) == shape}
        for call in self.of.composite.calls.values():
            if is_op(call, "relax.qnn.from_bytes"):
                read[call.args[0]] = halo_of(call)
        if not read:
            return
        with T.serial(0, self.of.sums.rows) as m:
            y, x = pixel(m)
            at = Position(*self.of.line_of(y), x, block * BLOCK, extent)
            for parameter, halo in read.items():
                pointer = T.address_of(self.of.arguments[parameter.name][at.place(halo)])
                T.evaluate(T.call_extern("void", FETCH, pointer))

    def fill_halos(self) -> None:
        """Task 0 writes what surrounds every output; no other task touches that."""
        stores = [
            (result, output, surroundings(self.of.composite.store_of(output)))
            for result, output in zip(self.of.results, self.of.composite.outputs, strict=True)
        ]
        if any(around is not None for _, _, around in stores):
            with T.If(self.of.task == 0), T.Then():
                for result, output, around in stores:
                    if around is not None:
                        shape = shape_of(output.ty)
                        dtype = str(storage_dtype(dtype_of(output.ty)))
                        fills = [around.fill] * self.of.composite.pictures
                        fill_halo(result, shape, dtype, around.halo, fills, around.phases)

    def pixel(self, strip: Any, y: Any, x: Any, sums: Any) -> None:
        """The epilogue of one pixel and strip: whole strips as vectors, the last as it is."""
        full, rest = divmod(self.outputs, self.of.sums.strip)
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
            self.store_kept(self._position(strip, y, x, 0), count)
            return
        first = 0
        for width, times in widths(count, self.lanes):
            parts = T.unroll if self.of.sums.is_direct else T.serial
            loop = self.loop if width >= MIN_LANES else parts
            with on_stack(), parts(0, times) as part:
                lane = first + part * width
                packed = {}
                if width == BLOCK:
                    wide = [output for output, finish in self.finishes.items() if finish.packs]
                    packed = {output: T.alloc_buffer((BLOCK,), "int32") for output in wide}
                with loop(0, width) as inner:
                    at = self._position(strip, y, x, lane + inner)
                    self.kept_at = self.number * self.of.sums.strip + lane + inner
                    self._channel(at, self.of.scratch[sums + lane + inner], packed, inner, width)
                self._finish(packed, self._position(strip, y, x, lane), width)
            first += width * times

    def _position(self, strip: Any, y: Any, x: Any, lane: Any) -> Position:
        extent = self.of.height, self.of.width, self.outputs
        return Position(*self.of.line_of(y), x, strip * self.of.sums.strip + lane, extent)

    def _channel(
        self, at: Position, raw: Any, packed: dict[Any, Any], lane: Any, width: int
    ) -> None:
        """Compute a position of all outputs, a lane of those that are `packed`."""
        values: dict[Any, Computed] = {}
        for variable, call in self.of.composite.calls.items():
            values[variable] = self._value(call, values, at, raw)
        for result, output in zip(self.of.results, self.of.composite.outputs, strict=True):
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
            T.buffer_store(result, shared(found), [self.place(output, at)])

    def _looks_up(self, finish: Finish, width: int) -> bool:
        """Whether so many channels are looked up together as they are stored."""
        return finish.table is not None and not self.keeps_bytes and width in LOOKED_UP_AT_ONCE

    def place(self, output: Any, at: Position) -> Any:
        """Where an output has what is at a position."""
        around = surroundings(self.of.composite.store_of(output))
        return at.place(around.halo, around.phases) if around else at.place()

    def _finish(self, packed: dict[Any, Any], at: Position, width: int) -> None:
        """Store what is packed, and look up values of bytes, from the first channel at a position
        on."""
        for result, output in zip(self.of.results, self.of.composite.outputs, strict=True):
            finish, place = self.finishes[output], result[self.place(output, at)]
            if output in packed:
                self._call(SATURATED + finish.dtype, packed[output][0], place)
            if self._looks_up(finish, width):
                values = self.of.arguments[finish.table.name][0]
                self._call(looked_up_name(finish.dtype, width), values, place, place)

    @staticmethod
    def _call(name: str, *places: Any) -> None:
        T.evaluate(T.call_extern("void", name, *map(T.address_of, places)))

    def _value(self, call: Any, values: dict[Any, Computed], at: Position, raw: Any) -> Computed:
        """What an operator gives at one position.

        What reads bytes next takes them in 32 bits, if there they are, where it would only widen
        them again.
        """
        if call.same_as(self.of.composite.main):
            return Computed(self.main_value(call, at, raw))
        name = str(call.op.name)
        if name in SAME or surroundings(call) is not None:
            return values[call.args[0]]
        if is_op(call, "relax.qnn.from_bytes"):
            return Computed(self.of.arguments[call.args[0].name][at.place(halo_of(call))])
        operands = []
        for position, argument in enumerate(call.args):
            if not isinstance(argument, relax.Var):
                continue
            if argument in values:
                found = values[argument]
                is_wide = position in WIDENED.get(name, ()) and found.wide is not None
                operands.append(found.wide if is_wide else found.value)
            elif position in WHOLE.get(name, ()):
                operands.append(self.of.arguments[argument.name])
            else:
                operands.append(self._operand(argument, at))
        bare = unsaturated(call, operands) if saturates(call) else None
        return Computed(scalar(call, operands), clipped(call, operands), bare)

    def main_value(self, call: Any, at: Position, raw: Any) -> Any:
        """What the main operator gives, from its raw sum."""
        if self.of.reads.begins:
            return raw
        bias = call.args[2]
        row = border_class(call, at.y, at.x) * shape_of(bias.ty)[1]
        scale = int(attributes(call)["scale"])
        scaled = raw * scale if scale != 1 else raw
        return scaled + self.of.arguments[bias.name][row + at.channel]

    def _operand(self, parameter: Any, at: Position) -> Any:
        """A tensor parameter at a position, its axes those of the result from the last one on."""
        index: Any = 0
        shape = shape_of(parameter.ty)
        where = (at.picture, at.y, at.x, at.channel)[-len(shape) :] if shape else ()
        for extent, coordinate in zip(shape, where, strict=True):
            index = index * extent + (coordinate if extent > 1 else 0)
        return self.of.arguments[parameter.name][index]
