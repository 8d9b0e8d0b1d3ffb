"""From a maximum pool of bytes to one PrimFunc, with the halo that its readers want.

Lanes are channels. A window that reaches over an edge has the pixels at the edge in it, which stand
for those beyond: nothing is tested, and nothing padded.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.packaging.kernel import Kernel
from stages.packaging.plain import vectorizes
from stages.packaging.rows import row_kernel
from stages.qnn.composites import calls_in, max_pool_of
from stages.qnn.registry import attributes, dtype_of, shape_of, storage_dtype
from stages.qnn.signature import WORD_BYTES


def lower_max_pool(function: Any, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel; what TIR cannot vectorize is left to LLVM."""
    for loop in (T.vectorized, T.serial):
        made = _MaxPool(function, loop, isa_of(hardware).lanes * WORD_BYTES).kernel(symbol)
        if vectorizes(made.function, hardware):
            return made
    return made


class _MaxPool:
    def __init__(self, function: Any, loop: Any, lanes: int) -> None:
        self.function, self.loop = function, loop
        pool = max_pool_of(function)
        assert pool is not None
        store = [c for c in calls_in(function) if not c.same_as(pool)]
        self.attrs = attributes(pool)
        _, self.input_height, self.input_width, _ = shape_of(pool.args[0].ty)
        self.pictures, self.height, self.width, self.channels = shape_of(pool.ty)
        self.lanes = gcd(self.channels, lanes)
        self.dtype = str(storage_dtype(dtype_of(pool.ty)))
        self.halo, self.fill = [0, 0, 0, 0], 0
        if store:
            self.halo, self.fill = attributes(store[0])["halo"], attributes(store[0])["fill"]

    def kernel(self, symbol: str) -> Kernel:
        """Items of work are rows of all pictures."""
        top, left, bottom, right = self.halo
        size = self.height + top + bottom, self.width + left + right
        shape, fills = (self.pictures, *size, self.channels), [self.fill] * self.pictures
        parameters = self.function.params
        return row_kernel(symbol, parameters, shape, self.halo, fills, self._row, self.dtype)

    def _row(self, arguments: Mapping[Any, Any], result: Any, picture: Any, y: Any) -> None:
        (data,) = arguments.values()
        top, left, bottom, right = self.halo
        line = picture * (self.height + top + bottom) + top + y
        start = T.bind((line * (self.width + left + right) + left) * self.channels)
        (down, across), (above, before, _, _) = self.attrs["strides"], self.attrs["padding"]
        rows = _inside(y * down - above, self.attrs["kernel"][0], self.input_height)
        lines = [T.bind((picture * self.input_height + row) * self.input_width) for row in rows]
        with T.serial(0, self.width) as x:
            columns = _inside(x * across - before, self.attrs["kernel"][1], self.input_width)
            taps = [T.bind((row + column) * self.channels) for row in lines for column in columns]
            with T.serial(0, self.channels // self.lanes) as part, self.loop(0, self.lanes) as lane:
                channel = part * self.lanes + lane
                value = data[taps[0] + channel]
                for tap in taps[1:]:
                    value = tirx.max(value, data[tap + channel])
                T.buffer_store(result, value, [start + x * self.channels + channel])


def _inside(first: Any, count: int, extent: int) -> list[Any]:
    """Positions of a window along one axis, those beyond an edge as the one at it."""
    found = [tirx.max(tirx.min(first + tap, extent - 1), 0) for tap in range(count)]
    return [T.bind(position) for position in found]
