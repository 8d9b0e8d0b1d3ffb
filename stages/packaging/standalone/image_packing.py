"""From a composite that writes images of few channels to one PrimFunc.

Lanes are pixels: their first channels, computed from the planes or pixels that the user hands in,
then the others, are put together as the bytes of a word. With row packing, the words that two
rows have of a pixel are one twice as wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.dialect import names
from stages.dialect.calls import attributes, is_op, shape_of
from stages.dialect.elementwise import WHOLE
from stages.dialect.let_bindings import shared
from stages.dialect.padding import Sides
from stages.dialect.relax_te import scalar
from stages.kernels.operand_storage import WORD_BITS, WORD_BYTES
from stages.nodes import Buffer, Index, Scalar, Var
from stages.packaging.emitting.composite import Composite
from stages.packaging.emitting.halo import StoredHalo
from stages.packaging.emitting.item_kernel import Arguments, row_kernel
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.emitting.vector_loops import Loop, on_stack, with_vectors

BYTE = 8
REPEATED = 0x0101010101010101
"""Equal bytes, by the byte."""


def lower_image_packing(composite: Composite, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel, as vectors if there is a way."""
    lanes = isa_of(hardware).lanes
    stored = attributes(composite.store_of(composite.outputs[0]))["channels"]
    kind = _PackedImages if stored == WORD_BYTES else _UnpaddedImages
    return with_vectors(lambda loop: kind(composite, loop, lanes).kernel(symbol), hardware)


class _PackedImages:
    """Images whose pixels are a word for each of the rows that are packed."""

    def __init__(self, composite: Composite, loop: Loop, lanes: int) -> None:
        self.composite, self.loop = composite, loop
        (self.output,) = composite.outputs
        self.store = composite.store_of(self.output)
        self.images, self.height, self.width, self.channels = shape_of(self.store.args[0].ty)
        self.lanes = min(lanes, self.width)
        attrs = attributes(self.store)
        self.packed_rows, self.depth = attrs["packed_rows"], attrs["channels"]
        self.dtype = f"uint{WORD_BITS * self.packed_rows}"
        self.sides, self.level = attrs["halo"].sides, attrs["halo"].level
        rows, columns = self.sides.around(self.height, self.width)
        self.size = rows // self.packed_rows, columns

    def kernel(self, symbol: str) -> Kernel:
        """Items of work are packed rows of all images but those that are all halo."""
        top, left, bottom, right = self.sides
        sides = Sides(top // self.packed_rows, left, bottom // self.packed_rows, right)
        word = self.level * REPEATED & (1 << WORD_BITS * self.packed_rows) - 1
        shape, halo = (self.images, *self.size, 1), StoredHalo(sides, (word,))
        parameters = self.composite.parameters
        return row_kernel(symbol, parameters, shape, halo, self._row, self.dtype)

    def _row(self, arguments: Arguments, result: Buffer, image: Index, row: Index) -> None:
        """One line; its last pixels overlap their neighbours, written twice alike."""
        self.arguments = arguments
        top, left, *_ = self.sides
        height, width = self.size
        start = T.bind((image * height + top // self.packed_rows + row) * width + left)
        with T.serial(0, -(-self.width // self.lanes)) as tile:
            first = T.bind(tirx.min(tile * self.lanes, self.width - self.lanes))
            with self.loop(0, self.lanes) as lane:
                x = first + lane
                T.buffer_store(result, shared(self._packed(image, row, x)), [start + x])

    def _packed(self, image: Index, row: Index, x: Index) -> Scalar:
        """The words of a pixel in all rows of a line; rows in the halo are filled."""
        total: Any = None
        top, _, bottom, _ = self.sides
        for part in range(self.packed_rows):
            y = row * self.packed_rows + part - top % self.packed_rows
            if top % self.packed_rows or bottom % self.packed_rows:
                inside = tirx.max(tirx.min(y, self.height - 1), 0)
                outside = tirx.const(self.level * REPEATED % (1 << WORD_BITS), "uint32")
                word = tirx.Select(y == inside, self._word(image, inside, x), outside)
            else:
                word = self._word(image, y, x)
            word = word.astype(self.dtype) << tirx.const(WORD_BITS * part, self.dtype)
            total = word if total is None else total | word
        return total

    def _word(self, image: Index, y: Index, x: Index) -> Scalar:
        """The bytes of one pixel."""
        total: Any = None
        for channel in range(min(WORD_BYTES, self.channels)):
            byte = self._value(self.store.args[0], (image, y, x, channel))
            word = byte.astype("uint8").astype("uint32") << tirx.const(BYTE * channel, "uint32")
            total = word if total is None else total | word
        return total

    def _value(self, variable: Var, at: Sequence[Index]) -> Scalar:
        """A tensor at a position."""
        if variable not in self.composite.calls:
            return self._element(variable, at)
        call = self.composite.calls[variable]
        if is_op(call, names.PERMUTE_DIMS):
            axes = [int(axis) for axis in call.attrs.axes]
            return self._value(call.args[0], [at[axes.index(axis)] for axis in range(len(axes))])
        whole = WHOLE.get(str(call.op.name), ())
        operands = [
            self.arguments[operand] if i in whole else self._value(operand, at)
            for i, operand in enumerate(call.args)
        ]
        return scalar(call, operands)

    def _element(self, parameter: Var, at: Sequence[Index]) -> Scalar:
        """An element of what the kernel is given: a scalar, or of the extents of the position."""
        place: Any = 0
        shape = shape_of(parameter.ty)
        for extent, index in zip(shape, at[len(at) - len(shape) :], strict=True):
            place = place * extent + index
        return self.arguments[parameter][place]


class _UnpaddedImages(_PackedImages):
    """Images whose pixels lie close together: a channel of several pixels is computed at a time,
    then bytes are put in their order."""

    def kernel(self, symbol: str) -> Kernel:
        """Items of work are rows of all images."""
        shape, halo = (self.images, *self.size, self.depth), StoredHalo(self.sides, (self.level,))
        parameters = self.composite.parameters
        return row_kernel(symbol, parameters, shape, halo, self._row, "uint8")

    def _row(self, arguments: Arguments, result: Buffer, image: Index, row: Index) -> None:
        """One row; its last pixels overlap their neighbours, written twice alike."""
        self.arguments = arguments
        top, left, *_ = self.sides
        height, width = self.size
        start = T.bind(((image * height + top + row) * width + left) * self.depth)
        with on_stack(), T.serial(0, -(-self.width // self.lanes)) as tile:
            first = T.bind(tirx.min(tile * self.lanes, self.width - self.lanes))
            self._tile(result, image, row, first, start + first * self.depth)

    def _tile(self, result: Buffer, image: Index, row: Index, first: Index, place: Index) -> None:
        """Neighbouring pixels, as many as there are lanes."""
        size = self.depth * self.lanes
        planes = T.alloc_buffer((size,), "uint8")
        for channel in range(self.depth):
            with self.loop(0, self.lanes) as lane:
                value = self._value(self.store.args[0], (image, row, first + lane, channel))
                byte = shared(value.astype("uint8"))
                T.buffer_store(planes, byte, [channel * self.lanes + lane])
        if self.lanes == 1:
            for channel in range(self.depth):
                T.buffer_store(result, planes[channel], [place + channel])
            return
        starts = range(0, size, self.lanes)
        vectors = [planes[tirx.Ramp(at, 1, self.lanes)] for at in starts]
        order = [at + lane for lane in range(self.lanes) for at in starts]
        T.buffer_store(result, tirx.Shuffle(vectors, order), [tirx.Ramp(place, 1, size)])
