"""From a composite of a softmax of floats to one PrimFunc: a few rows at a time, in vectors.

Sums run along a row in order, as the operator says: each waits for the one before it, so that
those of several rows take turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, prod
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.packaging.kernel import Kernel
from stages.packaging.plain import on_stack, with_vectors
from stages.packaging.rows import line_kernel
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.composites import calls_in
from stages.qnn.elementwise import ELEMENTWISE
from stages.qnn.expressions import scalar
from stages.qnn.numbers import TIR
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of, storage_dtype
from stages.qnn.sharing import shared
from stages.qnn.softmax import power

SOFTMAX = "relax.qnn.softmax"
ROWS = 4
"""Rows whose sums take turns: as many as an addition takes cycles."""
MOST = 1 << 11
"""Elements of a row whose exponentials are kept on the stack, at most."""


def is_softmax(function: Any) -> bool:
    """Whether a plain composite is a softmax, and what computes its elements one by one."""
    first, *rest = calls_in(function)
    if not is_op(first, SOFTMAX) or len(outputs_of(function)) != 1:
        return False
    is_short = 1 < shape_of(first.ty)[-1] <= MOST
    return is_short and all(_is_by_element(call, shape_of(first.ty)) for call in rest)


def _is_by_element(call: Any, shape: tuple[int, ...]) -> bool:
    """Whether an operator computes by element, of tensors of a shape and of scalars."""
    operands = all(shape_of(a.ty) == shape or prod(shape_of(a.ty)) == 1 for a in call.args)
    return str(call.op.name) in ELEMENTWISE and operands


def lower_softmax(function: Any, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel, as vectors if there is a way."""
    lanes = isa_of(hardware).lanes
    return with_vectors(lambda loop: _Softmax(function, loop, lanes).kernel(symbol), hardware)


class _Softmax:
    def __init__(self, function: Any, loop: Any, lanes: int) -> None:
        self.parameters, self.loop = list(function.params), loop
        self.bindings = [b for b in bindings_of(function) if not isinstance(b.value, relax.Var)]
        call = self.bindings[0].value
        self.data, self.beta = call.args[0], attributes(call)["beta"]
        *rows, self.length = shape_of(call.ty)
        self.count = prod(rows)
        self.rows = gcd(self.count, ROWS)
        self.lanes = min(lanes, 1 << (self.length.bit_length() - 1))
        self.dtype = str(storage_dtype(dtype_of(outputs_of(function)[0].ty)))

    def kernel(self, symbol: str) -> Kernel:
        """Items of work are a few rows."""
        result, lines = (self.count * self.length, self.dtype), self.count // self.rows
        return line_kernel(symbol, self.parameters, result, lines, self._line)

    def _line(self, arguments: Mapping[Any, Any], result: Any, number: Any) -> None:
        data, rows = arguments[self.data], range(self.rows)
        starts = [T.bind((number * self.rows + row) * self.length) for row in rows]
        with on_stack():
            powers = [T.alloc_buffer((self.length,), "float32") for _ in rows]
            totals = T.alloc_buffer((self.rows,), "float32")
            for start, powers_of_row in zip(starts, powers, strict=True):
                self._exponentials(data, start, powers_of_row)
            for row in rows:
                T.buffer_store(totals, powers[row][0], [row])
            with T.serial(1, self.length) as place:
                for row in rows:
                    T.buffer_store(totals, totals[row] + powers[row][place], [row])
            for start, row in zip(starts, rows, strict=True):
                self._results(arguments, result, start, powers[row], totals[row])

    def _exponentials(self, data: Any, start: Any, powers: Any) -> None:
        """Those of a row, less its largest element."""
        most = T.alloc_buffer((self.lanes,), "float32")
        with self.loop(0, self.lanes) as lane:
            T.buffer_store(most, data[start + lane], [lane])
        with T.serial(1, self._tiles) as tile, self.loop(0, self.lanes) as lane:
            value = data[start + self._first(tile) + lane]
            T.buffer_store(most, tirx.max(most[lane], value), [lane])
        with T.serial(1, self.lanes) as lane:
            T.buffer_store(most, tirx.max(most[0], most[lane]), [0])
        with T.serial(0, self._tiles) as tile, self.loop(0, self.lanes) as lane:
            place = self._first(tile) + lane
            value = power(TIR, data[start + place], most[0], self.beta)
            T.buffer_store(powers, shared(value), [place])

    def _results(
        self, arguments: Mapping[Any, Any], result: Any, start: Any, powers: Any, total: Any
    ) -> None:
        """A row of what is made of the shares."""
        with T.serial(0, self._tiles) as tile, self.loop(0, self.lanes) as lane:
            place = self._first(tile) + lane
            values = {self.bindings[0].var: powers[place] / total}
            for binding in self.bindings[1:]:
                call = binding.value
                read = [self._operand(a, values, arguments, start + place) for a in call.args]
                values[binding.var] = scalar(call, read)
            found = values[self.bindings[-1].var]
            T.buffer_store(result, shared(found), [start + place])

    @staticmethod
    def _operand(
        argument: Any, values: Mapping[Any, Any], arguments: Mapping[Any, Any], place: Any
    ) -> Any:
        if argument in values:
            return values[argument]
        return arguments[argument][place if prod(shape_of(argument.ty)) > 1 else 0]

    @property
    def _tiles(self) -> int:
        """Vectors of a row, the last of which overlaps the one before it."""
        return -(-self.length // self.lanes)

    def _first(self, tile: Any) -> Any:
        return tirx.min(tile * self.lanes, self.length - self.lanes)
