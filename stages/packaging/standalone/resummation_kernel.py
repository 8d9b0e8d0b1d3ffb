"""Exact re-summation at level boundaries, of sums of floats: one PrimFunc.

The kernel copies a vector of sums and notes which are so near a boundary between two levels that
the order of additions decides. Those, which are rare, it takes again in float64.
"""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.dialect.calls import attributes, is_op, shape_of
from stages.dialect.let_bindings import shared
from stages.dialect.names import QNN_RESUM
from stages.dialect.resummation import MAGIC, OPERANDS
from stages.graph.bindings import bindings_of
from stages.nodes import Buffer, Function, Index
from stages.packaging.emitting.item_kernel import Arguments, item_kernel
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.emitting.vector_loops import Loop, on_stack, with_vectors

MOST_LANES = 64


def is_resummation(function: Function) -> bool:
    """Whether a composite takes sums again near level boundaries."""
    return is_op(bindings_of(function)[0].value, QNN_RESUM)


def lower_resummation(function: Function, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel, as vectors if there is a way."""
    most = min(MOST_LANES, 4 * isa_of(hardware).lanes)
    return with_vectors(lambda loop: _Resummation(function, loop, most).kernel(symbol), hardware)


class _Resummation:
    """The composite, read once, and how channels of a vector are gone through."""

    def __init__(self, function: Function, loop: Loop, lanes: int) -> None:
        self.parameters, self.loop = list(function.params), loop
        call = bindings_of(function)[0].value
        self.operands = dict(zip(OPERANDS, call.args, strict=True))
        attrs = attributes(call)
        self.strides = attrs["strides"]
        self.ends = [tirx.const(float(attrs[end]), "float32") for end in ("low", "high")]
        _, self.height, self.width, self.channels = shape_of(call.ty)
        self.lanes = min(lanes, self.channels)

    def kernel(self, symbol: str) -> Kernel:
        """Items of work are rows of the image."""
        size = self.height * self.width * self.channels
        return item_kernel(symbol, self.parameters, (size, "float32"), self.height, self._line)

    def _line(self, arguments: Arguments, result: Buffer, y: Index) -> None:
        self.buffers = {name: arguments[operand] for name, operand in self.operands.items()}
        tiles = -(-self.channels // self.lanes)
        with on_stack(), T.serial(0, self.width) as x, T.serial(0, tiles) as tile:
            # The last tile overlaps its neighbour: the same sums are written twice, alike.
            first = T.bind(tirx.min(tile * self.lanes, self.channels - self.lanes))
            place = T.bind((y * self.width + x) * self.channels)
            near = T.alloc_buffer((self.lanes,), "int32")
            with self.loop(0, self.lanes) as lane:
                self._compare(result, near, place, first, lane)
            count = T.alloc_buffer((1,), "int32")
            T.buffer_store(count, tirx.const(0, "int32"), [0])
            with T.serial(0, self.lanes) as lane:
                T.buffer_store(count, count[0] | near[lane], [0])
            with T.If(count[0] != 0), T.Then():
                self._resum(result, near, place, first, (y, x))

    def _resum(
        self, result: Buffer, near: Buffer, place: Index, first: Index, at: tuple[Index, Index]
    ) -> None:
        """Take those sums of a tile again that are near a boundary."""
        with T.serial(0, self.lanes) as lane, T.If(near[lane] != 0), T.Then():
            self._sum(result, place, first + lane, *at)

    def _compare(
        self, result: Buffer, near: Buffer, place: Index, first: Index, lane: Index
    ) -> None:
        """Copy one sum, and note whether it is near a boundary."""
        at, channel = self.buffers, first + lane
        total = at["sums"][place + channel]
        scaled = total * at["slope"][channel] + at["offset"][channel]
        scaled = tirx.min(tirx.max(scaled, self.ends[0]), self.ends[1])
        magic = tirx.const(MAGIC, "float32")
        away = tirx.abs(scaled - ((scaled + magic) - magic))
        reach = at["slack"][channel] * at["largest"][0] + at["least"][channel]
        is_near = away >= tirx.const(0.5, "float32") - reach
        T.buffer_store(near, shared(tirx.Select(is_near, 1, 0)), [lane])
        T.buffer_store(result, total, [place + channel])

    def _sum(self, result: Buffer, place: Index, channel: Index, y: Index, x: Index) -> None:
        """The sum of one pixel and channel, in float64, rounded once."""
        _, kh, kw, depth = shape_of(self.operands["weight"].ty)
        columns = shape_of(self.operands["data"].ty)[2]
        data, weight = self.buffers["data"], self.buffers["weight"]
        total = T.alloc_buffer((1,), "float64")
        T.buffer_store(total, tirx.const(0.0, "float64"), [0])
        with T.serial(0, kh) as ky, T.serial(0, kw) as kx, T.serial(0, depth) as c:
            row, column = y * self.strides[0] + ky, x * self.strides[1] + kx
            value = data[(row * columns + column) * depth + c].astype("float64")
            factor = weight[((channel * kh + ky) * kw + kx) * depth + c].astype("float64")
            T.buffer_store(total, total[0] + value * factor, [0])
        T.buffer_store(result, total[0].astype("float32"), [place + channel])
