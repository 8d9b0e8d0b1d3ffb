"""Functions of one byte behind sums, where a LUT takes many registers (AArch64).

An epilogue keeps the bytes of a tile instead of storing them. Once the tile's sums have left their
registers, the LUT is loaded for all of its bytes, and what is found is stored where it belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from tvm.script.ir_builder import tirx as T

from stages.kernels.signature import BLOCK
from stages.nodes import Index, Scalar, Var
from stages.packaging.emitting.addressing import call_on, widths
from stages.packaging.emitting.register_lut import (
    has_register_lut,
    register_lut_name,
    register_lut_text,
)
from stages.packaging.emitting.vector_loops import on_stack
from stages.packaging.epilogues.outputs import Finish, Position
from stages.packaging.epilogues.result_places import ResultPlaces
from stages.packaging.epilogues.vector_finisher import VectorFinisher


class TileLuts:
    """Looks bytes up, a tile at a time, for the results of a composite."""

    def __init__(
        self, finisher: VectorFinisher, places: ResultPlaces, finishes: Mapping[Var, Finish]
    ) -> None:
        self.finisher, self.places, self.finishes = finisher, places, finishes
        self.kernel = finisher.kernel
        self.kept: dict[Any, Any] = {}
        """Buffers of outputs' bytes, while those of a tile are kept."""
        self.is_looked_up = False
        """Whether the values of what is kept are known, so that pixels only have to store them."""

    @cached_property
    def keeps_bytes(self) -> bool:
        """Whether bytes to look up are kept until a tile has all of them."""
        return has_register_lut(self.kernel.isa)

    @property
    def _size(self) -> int:
        """Bytes that are kept of an output, as whole registers."""
        size = self.kernel.sums.pixels_together * self.kernel.sums.strip
        return -(-size // self.kernel.isa.bytes) * self.kernel.isa.bytes

    @property
    def _own(self) -> Index:
        """Where the bytes of the current pixel begin."""
        return self.finisher.pixel_number * self.kernel.sums.strip

    @property
    def _kept_outputs(self) -> dict[Any, Finish]:
        finishes = self.finishes.items() if self.keeps_bytes else ()
        return {output: finish for output, finish in finishes if finish.values is not None}

    def include(self) -> None:
        """Include the text of what looks up what is kept."""
        for finish in self._kept_outputs.values():
            self.kernel.include(
                *register_lut_text(self.kernel.isa, finish.dtype, finish.bounds, self._size)
            )

    def emit_epilogues(self, pixels: Callable[[], None]) -> None:
        """Emit the epilogues of a tile, which `pixels` emits: twice where bytes are kept.

        The first time keeps the bytes; then their values are looked up; the second time stores.
        """
        outputs = self._kept_outputs
        if not outputs:
            pixels()
            return
        with on_stack():
            self.kept = {
                output: T.alloc_buffer((self._size,), finish.dtype)
                for output, finish in outputs.items()
            }
            pixels()
            for output, finish in outputs.items():
                values, found = self.kernel.arguments[finish.values_name], self.kept[output]
                places = values[0], found[0], found[0]
                name = register_lut_name(finish.dtype, finish.bounds, self._size)
                call_on(name, *places)
            self.is_looked_up = True
            pixels()
            self.kept, self.is_looked_up = {}, False

    def keep(self, output: Var, value: Scalar, channel: Index) -> None:
        """Keep a byte, of a channel of the current pixel's strip."""
        T.buffer_store(self.kept[output], value, [self._own + channel])

    def store_kept(self, at: Position, count: int) -> None:
        """Store the values of so many channels from a position on."""
        for output in self.kept:
            result, first = self.places.buffer_of(output), T.bind(self.places.place(output, at))
            begin, dtype = 0, str(result.dtype)
            for width, times in widths(count, BLOCK):
                parts = self.finisher.parts
                with parts(0, times) as part, self.finisher.loop(0, width) as lane:
                    channel = begin + part * width + lane
                    value = self.kept[output][self._own + channel]
                    T.buffer_store(result, T.reinterpret(dtype, value), [first + channel])
                begin += width * times
