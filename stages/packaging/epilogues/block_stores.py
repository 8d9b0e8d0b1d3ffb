"""Results that are stored a block of channels at a time: planes and LUTs.

An epilogue puts what it computes into buffers on the stack, one value a channel. Functions in LLVM
IR make of these what is stored; as TVM puts them where they are called, nothing of the buffers is
left in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.codegen import Text
from stages.dialect.calls import attributes, is_op, shape_of
from stages.dialect.let_bindings import shared
from stages.kernels import operator_names
from stages.kernels.packed_edges import stored_of
from stages.kernels.signature import BLOCK
from stages.nodes import Index, Var
from stages.packaging.emitting.addressing import call_on, output_offset
from stages.packaging.epilogues.elements import Computed
from stages.packaging.epilogues.level_packing import luts_text, planes_text
from stages.packaging.epilogues.result_places import ResultPlaces
from stages.packaging.epilogues.threshold_counts import digit_of


class BlockStore:
    """Stores an output from buffers of bytes, each of a block's channels."""

    count = 1
    """Buffers."""

    def __init__(self, places: ResultPlaces, number: int, output: Var) -> None:
        self.places, self.output = places, output
        self.name = f"bk_stored_{number}"
        """The function that stores."""
        self.call = places.composite.store_of(output)
        self.buffers: list[Any] = []

    def text(self) -> Text:
        """The function that stores, as LLVM IR."""
        raise NotImplementedError

    def open(self, channels: int) -> None:
        """Have buffers for so many channels of one pixel, with zeros behind them."""
        self.buffers = [T.alloc_buffer((BLOCK,), "uint8") for _ in range(self.count)]
        for buffer in self.buffers:
            if channels < BLOCK:
                with T.serial(channels, BLOCK) as lane:
                    T.buffer_store(buffer, tirx.const(0, "uint8"), [lane])

    def put(self, found: Computed, lane: Index) -> None:
        """Emit what is kept of a channel."""
        for buffer, value in zip(self.buffers, self.values(found), strict=True):
            T.buffer_store(buffer, shared(value), [lane])

    def values(self, found: Computed) -> Sequence[Any]:
        """What is kept of a channel, one value for each buffer."""
        raise NotImplementedError

    def close(self, block: Index, y: Index, x: Index) -> None:
        """Emit what stores a block's channels of a pixel."""
        result = self.places.buffer_of(self.output)
        place = result[output_offset(self.output, self.call, block, y, x)]
        buffers = [buffer[0] for buffer in self.buffers]
        call_on(self.name, *buffers, place)


class Planes(BlockStore):
    """Words of bits, of the binary digits of levels."""

    def __init__(self, places: ResultPlaces, number: int, output: Var) -> None:
        super().__init__(places, number, output)
        self.stored = stored_of(attributes(self.call))
        self.count = self.stored.bits

    def text(self) -> Text:
        """From digits to words, which lie as far apart as the planes do."""
        _, height, width, words = shape_of(self.output.ty)
        plane_stride = self.stored.inner or height * width * words
        return planes_text(self.name, self.places.kernel.hardware, self.stored, plane_stride)

    def values(self, found: Computed) -> Sequence[Any]:
        """A byte of 0 or 1 for each digit of a level."""
        if found.reached:
            return [digit_of(found.reached, digit) for digit in range(self.stored.bits)]
        level, one = found.value, tirx.const(1, "uint8")
        return [(level >> tirx.const(digit, "uint8")) & one for digit in range(self.stored.bits)]


class LevelLuts(BlockStore):
    """Sums of every four levels that bits choose."""

    def text(self) -> Text:
        """From levels to LUTs."""
        attrs = attributes(self.call)
        bits, is_balanced = attrs["bits"], bool(attrs["balanced"])
        return luts_text(self.name, self.places.kernel.hardware, bits, is_balanced)

    def values(self, found: Computed) -> Sequence[Any]:
        """A level."""
        return [found.value]


def block_store(places: ResultPlaces, number: int, output: Var) -> BlockStore | None:
    """What stores an output by whole blocks, if that is how it lies."""
    call = places.composite.store_of(output)
    if is_op(call, operator_names.QNN_BITPACK):
        return Planes(places, number, output)
    if is_op(call, operator_names.QNN_TO_TABLES):
        return LevelLuts(places, number, output)
    return None
