"""From a composite that packs computed weights to one PrimFunc, a block of channels at a time.

A kernel reads `group` neighbouring terms of every channel of a block, then the next ones. Where
terms lie side by side they are moved together; where channels do, so many rows are interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect import names
from stages.dialect.batch_matmul import BYTE_ZERO_POINT
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of
from stages.graph.axes import order_of
from stages.graph.composites import calls_in
from stages.kernels.signature_text import parse_signature
from stages.nodes import Buffer, Call, Function, Index, Scalar, Var
from stages.packaging.emitting.addressing import divided
from stages.packaging.emitting.item_kernel import Arguments, item_kernel
from stages.packaging.emitting.kernel import Kernel

AT_ONCE = 4
"""Rows that LLVM interleaves well in one go, as ST4 does; of more it looks bytes up."""


def lower_computed_weights(function: Function, symbol: str) -> Kernel:
    """The kernel `symbol`; items of work are blocks of channels of all matrices."""
    return _ComputedWeights(function).kernel(symbol)


class _ComputedWeights:
    """The composite, read once: matrices as they are computed, and how a kernel reads them."""

    def __init__(self, function: Function) -> None:
        (self.source,) = function.params
        *moves, call = calls_in(function)
        self.count, self.outputs, self.depth = shape_of(call.args[0].ty)
        attrs = attributes(call)
        signature = parse_signature(attrs["signature"])
        assert signature.products is not None, "weights of no products"
        self.lanes, self.group = signature.channels, signature.products.group
        self.dtype = signature.products.element
        self.blocks = shape_of(call.ty)[1]
        self.groups = attrs["depth"] // self.group
        self.outer, (self.channel, self.term) = _strides(self.source, moves)

    def kernel(self, symbol: str) -> Kernel:
        """One line is a block."""
        items = self.count * self.blocks
        size = items * self.groups * self.group * self.lanes
        return item_kernel(symbol, [self.source], (size, self.dtype), items, self._block)

    def _block(self, arguments: Arguments, result: Buffer, number: Index) -> None:
        matrix, block = map(T.bind, divided(number, self.blocks))
        self.data, self.result = arguments[self.source], result
        self.written = T.bind(number * (self.groups * self.group * self.lanes))
        self.read = T.bind(self._start(matrix) + block * (self.lanes * self.channel))
        full, rest = divmod(self.outputs, self.lanes)
        if full == self.blocks:
            self._channels(self.lanes)
            return
        with T.If(block < full):
            with T.Then():
                self._channels(self.lanes)
            with T.Else():
                with T.serial(0, self.groups) as group:
                    self._store(group, 0, self.lanes, self._zeros(self.lanes))
                if rest:
                    with T.If(block == full), T.Then():
                        self._channels(rest)

    def _start(self, matrix: Index) -> Index:
        """Where a matrix begins, whose number counts through the axes before its own."""
        place: Any = 0
        for extent, stride in reversed(self.outer):
            place += matrix % extent * stride
            matrix = tirx.truncdiv(matrix, extent)
        return place

    def _channels(self, count: int) -> None:
        """So many channels of a block: whole groups, the last one in part, and what is behind."""
        full, rest = divmod(self.depth, self.group)
        with T.serial(0, full) as group:
            self._group(group, count, self.group)
        if rest:
            self._group(full, count, rest)
        with T.serial(full + bool(rest), self.groups) as group:
            self._store(group, 0, self.lanes, self._zeros(self.lanes))

    def _group(self, group: Index, count: int, terms: int) -> None:
        """Some terms of every channel, zeros behind them."""
        if self.channel == 1 and count == self.lanes:
            first = self.read + group * (self.group * self.term)
            rows = [self._values(first + term * self.term, count) for term in range(terms)]
            rows += [tirx.Broadcast(tirx.const(0, self.dtype), count)] * (self.group - terms)
            self._store(group, 0, count, _interleaved(rows, count))
            return
        with T.serial(0, count) as lane:
            first = self.read + lane * self.channel + group * (self.group * self.term)
            if self.term == 1 and terms == self.group:
                self._store(group, lane, 1, self._values(first, self.group))
                return
            self._store(group, lane, 1, self._zeros(1))
            for term in range(terms):
                place = self._place(group, lane) + term
                T.buffer_store(self.result, self._values(first + term * self.term, 1), [place])

    def _place(self, group: Index, lane: Index) -> Index:
        return self.written + (group * self.lanes + lane) * self.group

    def _store(self, group: Index, lane: Index, lanes: int, value: Scalar) -> None:
        """Store the terms of a group for some channels."""
        place, size = self._place(group, lane), lanes * self.group
        T.buffer_store(self.result, value, [_neighbours(place, size)])

    def _zeros(self, lanes: int) -> Scalar:
        zero, size = tirx.const(0, self.dtype), lanes * self.group
        return tirx.Broadcast(zero, size) if size > 1 else zero

    def _values(self, place: Index, count: int) -> Scalar:
        """Neighbouring elements of the source as they are multiplied."""
        value = self.data[_neighbours(place, count)]
        lanes = f"x{count}" if count > 1 else ""
        if dtype_of(self.source.ty) == "uint8":
            wide = f"int16{lanes}"
            value = value.astype(wide) - tirx.const(BYTE_ZERO_POINT.whole, wide)
        return value.astype(f"{self.dtype}{lanes}")


def _interleaved(rows: Sequence[Scalar], count: int) -> Scalar:
    """The first elements of rows of so many, then the second ones, and so on."""
    if len(rows) == 1:
        return rows[0]
    if len(rows) <= AT_ONCE:
        order = [term * count + lane for lane in range(count) for term in range(len(rows))]
        return tirx.Shuffle(rows, order)
    halves = [_interleaved(rows[first::2], count) for first in range(2)]
    return _interleaved(halves, count * len(rows) // 2)


def _neighbours(place: Index, count: int) -> Index:
    """So many places from one on."""
    return tirx.Ramp(place, 1, count) if count > 1 else place


def _strides(source: Var, moves: Sequence[Call]) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Extents and strides of the axes before a matrix, and the strides of its channels and terms,
    in a tensor that is transposed first, or only reshaped."""
    shape = shape_of(source.ty)
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    axes = list(zip(shape, strides, strict=True))
    for call in moves:
        if is_op(call, names.PERMUTE_DIMS):
            axes = [axes[axis] for axis in order_of(call)]
    (_, channel), (_, term) = axes[-2:]
    return axes[:-2], (channel, term)
