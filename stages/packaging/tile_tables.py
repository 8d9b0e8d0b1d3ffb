"""Functions of one byte behind sums, where a table takes many registers (AArch64).

An epilogue keeps the bytes of a tile instead of storing them. Once the tile's sums have left their
registers, the table is loaded for all of its bytes, and what is found is stored where it belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from tvm.script.ir_builder import tirx as T

from stages.packaging.addressing import widths
from stages.packaging.finishing import Finish, Position, finish_of
from stages.packaging.kernel_parts import Finisher
from stages.packaging.plain import on_stack
from stages.packaging.register_tables import looks_up_fours, name_of, text_of
from stages.qnn.signature import BLOCK


class TileTables(Finisher):
    """A finisher that may look bytes up, a tile at a time."""

    loop: Any = staticmethod(T.vectorized)
    """How the channels of an epilogue are gone through."""
    kept: Mapping[Any, Any] = {}
    """Buffers of outputs' bytes, while those of a tile are kept."""
    kept_at: Any = 0
    """Where in these the current byte is."""
    is_looked_up = False
    """Whether the values of what is kept are known, so that pixels only have to store them."""

    @cached_property
    def finishes(self) -> dict[Any, Finish]:
        """How each output is finished."""
        composite, isa = self.of.composite, self.of.isa
        return {output: finish_of(composite, output, isa) for output in composite.outputs}

    @cached_property
    def keeps_bytes(self) -> bool:
        """Whether bytes to look up are kept until a tile has all of them."""
        return looks_up_fours(self.of.isa)

    @property
    def _size(self) -> int:
        """Bytes that are kept of an output, as whole registers."""
        size = self.of.sums.pixels_together * self.of.sums.strip
        return -(-size // self.of.isa.bytes) * self.of.isa.bytes

    @property
    def _kept_outputs(self) -> dict[Any, Finish]:
        finishes = self.finishes.items() if self.keeps_bytes else ()
        return {output: finish for output, finish in finishes if finish.table is not None}

    def include_tables(self) -> None:
        """Include the text of what looks up what is kept."""
        for finish in self._kept_outputs.values():
            self.of.include(*text_of(self.of.isa, finish.dtype, finish.bounds, self._size))

    def place(self, output: Any, at: Position) -> Any:
        """Where an output has what is at a position."""
        raise NotImplementedError

    def together(self, pixels: Callable[[], None]) -> None:
        """What `pixels` emits, the epilogues of a tile; where bytes are kept, twice.

        Between that and storing them their values are looked up.
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
                values, found = self.of.arguments[finish.table.name], self.kept[output]
                places = values[0], found[0], found[0]
                name = name_of(finish.dtype, finish.bounds, self._size)
                T.evaluate(T.call_extern("void", name, *map(T.address_of, places)))
            self.is_looked_up = True
            pixels()
            self.kept, self.is_looked_up = {}, False

    def keep(self, output: Any, value: Any) -> None:
        """Keep a byte."""
        T.buffer_store(self.kept[output], value, [self.kept_at])

    def store_kept(self, at: Position, count: int) -> None:
        """Store the values of so many channels from a position on."""
        for result, output in zip(self.of.results, self.of.composite.outputs, strict=True):
            if output not in self.kept:
                continue
            first, own = T.bind(self.place(output, at)), self.number * self.of.sums.strip
            begin, dtype = 0, str(result.dtype)
            for width, times in widths(count, BLOCK):
                parts = T.unroll if self.of.sums.is_direct else T.serial
                with parts(0, times) as part, self.loop(0, width) as lane:
                    channel = begin + part * width + lane
                    value = self.kept[output][own + channel]
                    T.buffer_store(result, T.reinterpret(dtype, value), [first + channel])
                begin += width * times
