"""From a maximum pool of bytes to one PrimFunc, with the halo that its readers want.

Lanes are channels. A window that reaches over an edge has the pixels at the edge in it, which stand
for those beyond: nothing is tested, and nothing padded.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.dialect.calls import attributes, dtype_of, shape_of, storage_dtype
from stages.graph.composites import calls_in, max_pool_of
from stages.kernels import operator_names
from stages.kernels.operand_storage import WORD_BYTES
from stages.kernels.packed_conv2d import stored_row
from stages.nodes import Buffer, Function, Index
from stages.packaging.emitting.halo import StoredHalo
from stages.packaging.emitting.item_kernel import Arguments, row_kernel
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.emitting.vector_loops import Loop, with_vectors


def lower_max_pool(function: Function, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel, as vectors if there is a way."""
    lanes = isa_of(hardware).lanes * WORD_BYTES
    return with_vectors(lambda loop: _MaxPool(function, loop, lanes).kernel(symbol), hardware)


class _MaxPool:
    """The composite, read once, and how neighbouring channels are gone through."""

    def __init__(self, function: Function, loop: Loop, lanes: int) -> None:
        self.function, self.loop = function, loop
        calls = {str(call.op.name): attributes(call) for call in calls_in(function)}
        pool = max_pool_of(function)
        self.attrs = attributes(pool)
        _, *self.size, _ = shape_of(pool.args[0].ty)
        *_, self.stored_height, self.stored_width, _ = shape_of(function.params[0].ty)
        self.origin = calls.get(operator_names.QNN_FROM_BYTES, {"origin": [0, 0]})["origin"]
        self.images, self.height, self.width, self.channels = shape_of(pool.ty)
        self.lanes = gcd(self.channels, lanes)
        self.dtype = str(storage_dtype(dtype_of(pool.ty)))
        store = calls.get(operator_names.QNN_TO_BYTES)
        self.halo = StoredHalo.of(store) if store else StoredHalo()
        self.stored = self.halo.sides.around(self.height, self.width)

    def kernel(self, symbol: str) -> Kernel:
        """Items of work are rows of all images."""
        shape = (self.images, *self.stored, self.channels)
        return row_kernel(symbol, self.function.params, shape, self.halo, self._row, self.dtype)

    def _row(self, arguments: Arguments, result: Buffer, image: Index, y: Index) -> None:
        (data,) = arguments.values()
        (top, left, *_), (rows, width) = self.halo.sides, self.stored
        line = image * rows + stored_row(top + y, rows, self.halo.phases)
        start = T.bind((line * width + left) * self.channels)
        first = image * self.stored_height
        lines = [T.bind((first + row) * self.stored_width) for row in self._taps(0, y)]
        with T.serial(0, self.width) as x:
            columns = self._taps(1, x)
            taps = [T.bind((row + column) * self.channels) for row in lines for column in columns]
            with T.serial(0, self.channels // self.lanes) as part, self.loop(0, self.lanes) as lane:
                channel = part * self.lanes + lane
                value = data[taps[0] + channel]
                for tap in taps[1:]:
                    value = tirx.max(value, data[tap + channel])
                T.buffer_store(result, value, [start + x * self.channels + channel])

    def _taps(self, axis: int, position: Index) -> list[Any]:
        """Where a window lies along an axis; what is beyond an edge lies at it."""
        first = position * self.attrs["strides"][axis] - self.attrs["padding"][axis]
        taps = [first + tap for tap in range(self.attrs["kernel"][axis])]
        inside = [tirx.max(tirx.min(tap, self.size[axis] - 1), 0) for tap in taps]
        return [T.bind(self.origin[axis] + tap) for tap in inside]
