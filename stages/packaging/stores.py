"""Results that are stored a block of channels at a time: planes, tables, and what is padded.

An epilogue puts what it computes into buffers on the stack, one value a channel. Functions in LLVM
IR make of these what is stored; as TVM puts them where they are called, nothing of the buffers is
left in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.codegen import Text
from stages.packaging.addressing import output_offset
from stages.packaging.computing import Computed
from stages.packaging.recoding import planes_text, tables_text
from stages.packaging.thresholds import digit_of
from stages.qnn.packed import stored_of
from stages.qnn.registry import attributes, is_op, shape_of, storage_dtype
from stages.qnn.sharing import shared
from stages.qnn.signature import BLOCK

if TYPE_CHECKING:
    from stages.packaging.results import Results


class BlockStore:
    """Stores one output of a composite from buffers of a block's channels."""

    dtypes: Sequence[str]
    """Types of the buffers."""

    def __init__(self, results: Results, number: int, output: Any) -> None:
        self.results, self.number, self.output = results, number, output
        self.call = results.composite.store_of(output)
        self.buffers: list[Any] = []

    @property
    def result(self) -> Any:
        """The buffer that is written."""
        return self.results.of.results[self.number]

    def text(self) -> Text | None:
        """What it calls."""
        return None

    def open(self, count: int) -> None:
        """Have buffers for so many channels of one pixel, with zeros behind them."""
        self.buffers = [T.alloc_buffer((BLOCK,), dtype) for dtype in self.dtypes]
        for buffer, dtype in zip(self.buffers, self.dtypes, strict=True):
            if count < BLOCK:
                with T.serial(count, BLOCK) as lane:
                    T.buffer_store(buffer, tirx.const(0, dtype), [lane])

    def put(self, found: Computed, lane: Any) -> None:
        """Emit what is kept of a channel."""
        for buffer, value in zip(self.buffers, self.values(found), strict=True):
            T.buffer_store(buffer, shared(value), [lane])

    def values(self, found: Computed) -> Sequence[Any]:
        """What that is, one for each buffer."""
        raise NotImplementedError

    def close(self, block: Any, y: Any, x: Any) -> None:
        """Emit what stores a block's channels of a pixel."""
        place = self.result[output_offset(self.output, self.call, block, y, x)]
        buffers = [buffer[0] for buffer in self.buffers]
        T.evaluate(T.call_extern("void", self.name, *map(T.address_of, (*buffers, place))))

    @property
    def name(self) -> str:
        """The function that stores."""
        return f"bk_stored_{self.number}"


class Planes(BlockStore):
    """Words of bits, of the binary digits of levels."""

    def __init__(self, results: Results, number: int, output: Any) -> None:
        super().__init__(results, number, output)
        self.stored = stored_of(attributes(self.call))
        self.dtypes = ["uint8"] * self.stored.bits

    def text(self) -> Text:
        """From digits to words, which lie as far apart as the planes do."""
        _, height, width, words = shape_of(self.output.ty)
        apart = self.stored.inner or height * width * words
        return planes_text(self.name, self.results.of.hardware, self.stored, apart)

    def values(self, found: Computed) -> Sequence[Any]:
        """A byte of 0 or 1 for each digit of a level."""
        if found.reached:
            return [digit_of(found.reached, digit) for digit in range(self.stored.bits)]
        level, one = found.value, tirx.const(1, "uint8")
        return [(level >> tirx.const(digit, "uint8")) & one for digit in range(self.stored.bits)]


class Tables(BlockStore):
    """Sums of every four levels that bits choose."""

    dtypes = ("uint8",)

    def text(self) -> Text:
        """From levels to tables."""
        attrs = attributes(self.call)
        bits, is_balanced = attrs["bits"], bool(attrs["balanced"])
        return tables_text(self.name, self.results.of.hardware, bits, is_balanced)

    def values(self, found: Computed) -> Sequence[Any]:
        """A level."""
        return [found.value]


class Few(BlockStore):
    """The first channels of those that are computed, because no more are stored."""

    def __init__(self, results: Results, number: int, output: Any) -> None:
        super().__init__(results, number, output)
        self.dtypes = [str(storage_dtype(str(output.ty.dtype)))]

    def values(self, found: Computed) -> Sequence[Any]:
        """The value."""
        return [self.results.as_stored(found.value, self.result)]

    def close(self, block: Any, y: Any, x: Any) -> None:
        """Emit a loop that leaves out what is behind the last channel."""
        (buffer,) = self.buffers
        with T.serial(0, BLOCK) as lane:
            channel = block * BLOCK + lane
            with T.If(channel < self.results.stored(self.output)), T.Then():
                at = self.results.lanes.position(block, y, x, lane)
                place = self.results.place(self.output, at)
                T.buffer_store(self.result, buffer[lane], [place])


def block_store(results: Results, number: int, output: Any) -> BlockStore | None:
    """What stores an output by whole blocks, if that is how it lies."""
    call = results.composite.store_of(output)
    if is_op(call, "relax.qnn.bitpack"):
        return Planes(results, number, output)
    if is_op(call, "relax.qnn.to_tables"):
        return Tables(results, number, output)
    if results.stored(output) < results.channels:
        return Few(results, number, output)
    return None
