"""From a composite of sums near rounding ties (`numerics/onnx_pointwise_conv.py`) to one PrimFunc.

A vector of channels becomes bytes at once, and the kernel notes which of them lie near a rounding
tie. For those, which are rare, it bounds more tightly what the steps of the float32 sum may lose,
by sums of every few channels. Where that does not decide either, it takes the float32 sum step by
step.
"""

from __future__ import annotations

import operator
from functools import reduce

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of
from stages.dialect.let_bindings import shared
from stages.dialect.numbers import MAGIC, MAGIC_BITS
from stages.dialect.numbers_tir import TIR, rounded_by_sum
from stages.graph.bindings import bindings_of
from stages.nodes import Buffer, Function, Index, Scalar
from stages.numerics.onnx_pointwise_conv import (
    ABOVE,
    OPERANDS,
    QUANTIZE,
    ROUNDINGS,
    ULP,
    is_near,
    level,
    limits_of,
    near_ties,
)
from stages.packaging.emitting.item_kernel import Arguments, item_kernel
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.emitting.vector_loops import Loop, on_stack, with_vectors

MOST_LANES = 64
PART = 16
"""Channels that a bound is taken of at a time."""


def is_near_tie_sum(function: Function) -> bool:
    """Whether a composite is of sums near rounding ties."""
    return is_op(bindings_of(function)[0].value, near_ties.name)


def lower_near_tie_sums(function: Function, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel, as vectors if there is a way."""
    most = min(MOST_LANES, 4 * isa_of(hardware).lanes)
    return with_vectors(lambda loop: _NearTieSums(function, loop, most).kernel(symbol), hardware)


class _NearTieSums:
    """The composite, read once, and how channels of a vector are gone through."""

    def __init__(self, function: Function, loop: Loop, lanes: int) -> None:
        self.parameters, self.loop = list(function.params), loop
        call = bindings_of(function)[0].value
        self.operands = dict(zip(OPERANDS, call.args, strict=True))
        self.attrs, self.dtype = attributes(call), dtype_of(call.ty)
        _, self.height, self.width, self.channels = shape_of(call.ty)
        self.columns, self.depth = shape_of(self.operands["data"].ty)[2:]
        self.lanes = min(lanes, self.channels)

    def kernel(self, symbol: str) -> Kernel:
        """Items of work are pixels."""
        pixels = self.height * self.width
        result = (pixels * self.channels, self.dtype)
        return item_kernel(symbol, self.parameters, result, pixels, self._pixel)

    def _pixel(self, arguments: Arguments, result: Buffer, number: Index) -> None:
        self.buffers = {name: arguments[operand] for name, operand in self.operands.items()}
        rows, columns = self.attrs["strides"]
        y, x = tirx.truncdiv(number, self.width) * rows, number % self.width * columns
        first = T.bind((y * self.columns + x) * self.depth)
        tiles = -(-self.channels // self.lanes)
        with on_stack():
            norm = self._norm(first)
            with T.serial(0, tiles) as tile:
                # The last tile overlaps its neighbour: the same bytes are written twice, alike.
                channel = T.bind(tirx.min(tile * self.lanes, self.channels - self.lanes))
                self._tile(result, norm, first, number * self.channels, channel)

    def _value(self, place: Index) -> Scalar:
        zero_point = tirx.const(self.attrs["data_zero_point"].whole, "int32")
        return self.buffers["data"][place].astype("int32") - zero_point

    def _norm(self, first: Index) -> Scalar:
        """The Euclidean norm of a pixel's values."""
        squares = T.alloc_buffer((1,), "int32")
        T.buffer_store(squares, tirx.const(0, "int32"), [0])
        with T.serial(0, self.depth) as k:
            value = self._value(first + k)
            T.buffer_store(squares, shared(squares[0] + value * value), [0])
        root = tirx.sqrt(squares[0].astype("float32"))
        return T.bind(root * tirx.const(self.attrs["data_scale"], "float32"))

    def _tile(
        self, result: Buffer, norm: Scalar, first: Index, place: Index, channel: Index
    ) -> None:
        near = T.alloc_buffer((self.lanes,), "int8")
        with self.loop(0, self.lanes) as lane:
            self._lane(result, near, norm, place, channel + lane, lane)
        count = T.alloc_buffer((1,), "int8")
        T.buffer_store(count, tirx.const(0, "int8"), [0])
        with T.serial(0, self.lanes) as lane:
            T.buffer_store(count, count[0] | near[lane], [0])
        with T.If(count[0] != 0), T.Then():
            self._resum(result, near, (first, place, channel))

    def _resum(self, result: Buffer, near: Buffer, at: tuple[Index, Index, Index]) -> None:
        """Take those bytes of a tile again that are near a tie."""
        first, place, channel = at
        with T.serial(0, self.lanes) as lane, T.If(near[lane] != 0), T.Then():
            lost = self._lost(first, channel + lane)
            with T.If(self._is_near(lost, place, channel + lane)), T.Then():
                self._in_order(result, first, place, channel + lane)

    def _is_near(self, lost: Scalar, place: Index, channel: Index) -> Scalar:
        """Whether a byte may be another one if its sum loses that much, in sums of integers."""
        at = self.buffers
        slope = at["slope"][channel]
        found = level(
            TIR, at["sums"][place + channel], slope, at["offset"][channel], limits_of(self.attrs)
        )
        reach = TIR.absolute(slope) * tirx.const(ABOVE * ULP, "float32")
        return is_near(TIR, found, TIR.round_even(found), reach, lost, at["least"][channel])

    def _lost(self, first: Index, channel: Index) -> Scalar:
        """The sizes of what is rounded for one channel, added up: float32, of sums of integers.

        After each step that is at most the sum of all channels before its part, and all products
        of the part, without their signs. Other roundings are of no more than all products.
        """
        sums, lost = T.alloc_buffer((2,), "int32"), T.alloc_buffer((1,), "float32")
        products = T.alloc_buffer((PART,), "int32")
        T.buffer_store(sums, tirx.const(0, "int32"), [1])
        T.buffer_store(lost, tirx.const(0.0, "float32"), [0])
        starts = range(0, self.depth, self.attrs["block"])
        for start in starts:
            T.buffer_store(sums, tirx.const(0, "int32"), [0])
            count = min(self.attrs["block"], self.depth - start)
            with T.serial(0, count // PART) as part:
                self._part(sums, lost, products, (first, channel, start + part * PART), PART)
            if rest := count % PART:
                last = start + count - rest
                self._part(sums, lost, products, (first, channel, last), rest)
        others = tirx.const(ROUNDINGS + len(starts), "float32")
        return T.bind(lost[0] + sums[1].astype("float32") * others)

    def _part(
        self,
        sums: Buffer,
        lost: Buffer,
        products: Buffer,
        at: tuple[Index, Index, Index],
        count: int,
    ) -> None:
        """Some neighbouring channels of such a bound."""
        first, channel, k = at
        with self.loop(0, count) as lane:
            weight = self.buffers["weight"][channel * self.depth + k + lane].astype("int32")
            T.buffer_store(products, shared(self._value(first + k + lane) * weight), [lane])
        before = T.bind(TIR.absolute(sums[0]))
        T.buffer_store(sums, shared(sums[0] + self._reduced(products, count)), [0])
        with self.loop(0, count) as lane:
            T.buffer_store(products, shared(TIR.absolute(products[lane])), [lane])
        size = T.bind(self._reduced(products, count))
        T.buffer_store(sums, shared(sums[1] + size), [1])
        most = (before + size).astype("float32") * tirx.const(count, "float32")
        T.buffer_store(lost, shared(lost[0] + most), [0])

    def _reduced(self, buffer: Buffer, count: int) -> Scalar:
        """The sum of some integers."""
        if count == PART and self.loop is not T.serial:
            vector = buffer[tirx.Ramp(0, 1, count)]
            return tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.add", vector)
        return reduce(operator.add, [buffer[lane] for lane in range(count)])

    def _lane(
        self, result: Buffer, near: Buffer, norm: Scalar, place: Index, channel: Index, lane: Index
    ) -> None:
        at = self.buffers
        bounds = limits_of(self.attrs)
        total = at["sums"][place + channel]
        found = level(TIR, total, at["slope"][channel], at["offset"][channel], bounds)
        # Levels are far below 2^22 in size: a sum rounds them, and has the integer in its bits.
        moved = rounded_by_sum(found)
        whole = moved - tirx.const(MAGIC, "float32")
        is_one = is_near(TIR, found, whole, at["reach"][channel], norm, at["least"][channel])
        one, none = (tirx.const(bit, "int8") for bit in (1, 0))
        T.buffer_store(near, shared(tirx.Select(is_one, one, none)), [lane])
        offset = tirx.const(self.attrs["zero_point"].whole - MAGIC_BITS, "int32")
        integer = TIR.bits_of(moved, "int32") + offset
        T.buffer_store(result, shared(integer.astype(self.dtype)), [place + channel])

    def _in_order(self, result: Buffer, first: Index, place: Index, channel: Index) -> None:
        """The byte of one pixel and channel, of a float32 sum."""
        attrs, block = self.attrs, self.attrs["block"]
        total = T.alloc_buffer((2,), "float32")
        T.buffer_store(total, tirx.const(0.0, "float32"), [1])
        for start in range(0, self.depth, block):
            T.buffer_store(total, tirx.const(0.0, "float32"), [0])
            with T.serial(0, min(block, self.depth - start)) as k:
                value = self._value(first + start + k).astype("float32")
                value = TIR.product(value, tirx.const(attrs["data_scale"], "float32"))
                weight = self.buffers["weight"][channel * self.depth + start + k]
                factor = weight.astype("float32")
                factor = TIR.product(factor, self.buffers["weight_scale"][channel])
                T.buffer_store(total, TIR.multiply_add(factor, value, total[0]), [0])
            T.buffer_store(total, total[1] + total[0], [1])
        scale = tirx.const(attrs["scale"], "float32")
        zero_point = tirx.const(attrs["zero_point"].whole, "int32")
        sums, limits = (
            total[1] + self.buffers["bias"][channel],
            {k: attrs[k] for k in ("low", "high")},
        )
        found = QUANTIZE(TIR, sums, scale, zero_point, **limits)
        T.buffer_store(result, found.astype(self.dtype), [place + channel])
