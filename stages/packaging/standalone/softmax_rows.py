"""From a composite of a softmax to one PrimFunc: a few rows at a time, in vectors.

Exponentials are computed, of floats, or looked up, of bytes, once for each element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of, storage_dtype
from stages.dialect.let_bindings import shared
from stages.dialect.numbers_tir import TIR
from stages.graph.bindings import bindings_of, outputs_of
from stages.graph.composites import calls_in
from stages.nodes import Buffer, Function, Index, Scalar
from stages.numerics import rule_names
from stages.numerics.float_softmax import power
from stages.numerics.onnx_layers import softmax_levels, softmax_place
from stages.packaging.emitting.fused_elementwise import is_by_element, value_at
from stages.packaging.emitting.interleaved_rows import (
    ROWS,
    accumulate_rows,
    each_group,
    group_count,
    vectors_of,
)
from stages.packaging.emitting.item_kernel import SCRATCH, Arguments, item_kernel
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.emitting.vector_loops import Loop, on_stack, with_vectors
from stages.packaging.standalone.te_reductions import STACK_BYTES

OF_FLOATS, OF_BYTES = rule_names.QNN_SOFTMAX, rule_names.QNN_QLINEAR_SOFTMAX
MOST = 1 << 11
"""Elements of a row whose exponentials are kept, at most."""
POWERS = "float32"
"""Type of the exponentials."""


def is_softmax(function: Function) -> bool:
    """Whether a TE composite is a softmax, and what computes its elements one by one."""
    first, *rest = calls_in(function)
    is_one = is_op(first, OF_FLOATS) or is_op(first, OF_BYTES)
    if not is_one or len(outputs_of(function)) != 1:
        return False
    is_short = 1 < shape_of(first.ty)[-1] <= MOST
    return is_short and all(is_by_element(call, shape_of(first.ty)) for call in rest)


def lower_softmax(function: Function, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel, as vectors if there is a way."""
    lanes = isa_of(hardware).lanes
    kind = _OfFloats if is_op(calls_in(function)[0], OF_FLOATS) else _OfBytes
    return with_vectors(lambda loop: kind(function, loop, lanes).kernel(symbol), hardware)


@dataclass(frozen=True)
class _Powers:
    """Exponentials of a row: a part of a buffer from an element on."""

    buffer: Buffer
    start: int

    def __getitem__(self, place: Index) -> Scalar:
        return self.buffer[self.start + place]

    def store(self, value: Scalar, place: Index) -> None:
        """Store the exponential of a place in the row."""
        T.buffer_store(self.buffer, value, [self.start + place])


class _Softmax:
    """The composite, read once; how elements become exponentials depends on their type."""

    most_dtype: str
    """Type in which the largest element of a row is looked for."""

    def __init__(self, function: Function, loop: Loop, lanes: int) -> None:
        self.parameters, self.loop = list(function.params), loop
        first, *_ = bindings_of(function)
        (output,) = outputs_of(function)
        self.softmax, self.call = first.var, first.value
        self.calls = {binding.var: binding.value for binding in bindings_of(function)}
        self.output = self.calls.pop(output)
        *rows, self.length = shape_of(self.call.ty)
        self.count = prod(rows)
        self.lanes = min(lanes, 1 << (self.length.bit_length() - 1))
        self.tiles, self.first = vectors_of(self.length, self.lanes)
        self.dtype = str(storage_dtype(dtype_of(output.ty)))
        self.room = -(-self.length // lanes) * lanes
        size = self.room * storage_dtype(POWERS).itemsize
        # What is too long for the stack is in the scratch memory of the kernel.
        self.scratch = ROWS * self.room if size >= STACK_BYTES else 0

    def kernel(self, symbol: str) -> Kernel:
        """Items of work are a few rows."""
        result, groups = (self.count * self.length, self.dtype), group_count(self.count)
        room = self.scratch, POWERS
        return item_kernel(symbol, self.parameters, result, groups, self._group, scratch=room)

    def _group(self, arguments: Arguments, result: Buffer, number: Index) -> None:
        self.arguments = arguments
        each_group(number, self.count, lambda rows: self._rows(rows, result))

    def _rows(self, rows: Sequence[Index], result: Buffer) -> None:
        starts = [T.bind(row * self.length) for row in rows]
        with on_stack():
            powers = [self._powers(row) for row in range(len(rows))]
            totals = T.alloc_buffer((len(rows),), POWERS)
            for start, of_row in zip(starts, powers, strict=True):
                self._exponentials(start, self._largest(start), of_row)
            accumulate_rows(totals, self.length, lambda row, place: powers[row][place])
            for row, start in enumerate(starts):
                self._results(result, start, powers[row], totals[row])

    def _powers(self, row: int) -> _Powers:
        """Where the exponentials of a row are kept."""
        if self.scratch:
            return _Powers(self.arguments[SCRATCH], row * self.room)
        return _Powers(T.alloc_buffer((self.length,), POWERS), 0)

    def _largest(self, start: Index) -> Scalar:
        """The largest element of a row."""
        data = self.arguments[self.call.args[0]]
        most = T.alloc_buffer((self.lanes,), self.most_dtype)

        def value(tile: Index, lane: Index) -> Scalar:
            return data[start + self.first(tile) + lane].astype(self.most_dtype)

        with self.loop(0, self.lanes) as lane:
            T.buffer_store(most, value(0, lane), [lane])
        with T.serial(1, self.tiles) as tile, self.loop(0, self.lanes) as lane:
            T.buffer_store(most, tirx.max(most[lane], value(tile, lane)), [lane])
        with T.serial(1, self.lanes) as lane:
            T.buffer_store(most, tirx.max(most[0], most[lane]), [0])
        return most[0]

    def _exponentials(self, start: Index, most: Scalar, powers: _Powers) -> None:
        """Exponentials of a row, less its largest element."""
        raise NotImplementedError

    def _share(self, power: Scalar, total: Scalar) -> Scalar:
        """What an element becomes."""
        raise NotImplementedError

    def _results(self, result: Buffer, start: Index, powers: _Powers, total: Scalar) -> None:
        """A row of what is made of the shares."""
        with T.serial(0, self.tiles) as tile, self.loop(0, self.lanes) as lane:
            place = self.first(tile) + lane
            known = {self.softmax: self._share(powers[place], total)}
            found = value_at(self.output, start + place, known, self.calls, self.arguments)
            T.buffer_store(result, shared(found), [start + place])


class _OfFloats(_Softmax):
    """A softmax of floats."""

    most_dtype = "float32"

    def _exponentials(self, start: Index, most: Scalar, powers: _Powers) -> None:
        data, beta = self.arguments[self.call.args[0]], attributes(self.call)["beta"]
        with T.serial(0, self.tiles) as tile, self.loop(0, self.lanes) as lane:
            place = self.first(tile) + lane
            powers.store(shared(power(TIR, data[start + place], most, beta)), place)

    def _share(self, power: Scalar, total: Scalar) -> Scalar:
        return power / total


class _OfBytes(_Softmax):
    """A softmax of bytes, whose exponentials a LUT holds."""

    most_dtype = "int32"

    def _exponentials(self, start: Index, most: Scalar, powers: _Powers) -> None:
        data, table = (self.arguments[argument] for argument in self.call.args)
        before = T.bind(softmax_place(0, most))
        with T.serial(0, self.length) as place:  # no vector looks them up faster
            value = table[data[start + place].astype("int32") + before]
            powers.store(value, place)

    def _share(self, power: Scalar, total: Scalar) -> Scalar:
        return softmax_levels(power, total, dtype_of(self.call.ty), **attributes(self.call))
