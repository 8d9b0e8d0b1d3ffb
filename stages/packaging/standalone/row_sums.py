"""From a composite of a sum along rows of floats to one PrimFunc: a few rows at a time.

Means and variances of normalizations are such. Sums are taken in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from stages.dialect import names
from stages.dialect.calls import dtype_of, is_op, shape_of, storage_dtype
from stages.dialect.let_bindings import shared
from stages.graph.bindings import bindings_of, outputs_of
from stages.graph.composites import calls_in
from stages.nodes import Buffer, Function, Index, Scalar
from stages.packaging.emitting.fused_elementwise import is_by_element, value_at
from stages.packaging.emitting.interleaved_rows import accumulate_rows, each_group, group_count
from stages.packaging.emitting.item_kernel import Arguments, item_kernel
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.emitting.vector_loops import on_stack

SUM, MEAN = names.SUM, names.MEAN
LEAST = 16
"""Elements of a row, at least, for its sum to be what takes time."""


def is_row_sum(function: Function) -> bool:
    """Whether a TE composite sums floats up along the last axis alone, what is computed of them
    and of the sums element by element included."""
    calls = calls_in(function)
    sums = [call for call in calls if is_op(call, SUM) or is_op(call, MEAN)]
    if len(sums) != 1 or len(outputs_of(function)) != 1:
        return False
    (call,) = sums
    full, reduced = shape_of(call.args[0].ty), shape_of(call.ty)
    axes = [int(axis) % len(full) for axis in call.attrs.axis or range(len(full))]
    is_along = axes == [len(full) - 1] and full[-1] >= LEAST and prod(reduced) > 1
    place = calls.index(call)
    return (
        is_along
        and dtype_of(call.ty) == "float32"
        and all(is_by_element(each, full) for each in calls[:place])
        and all(is_by_element(each, reduced) for each in calls[place + 1 :])
    )


def lower_row_sum(function: Function, symbol: str) -> Kernel:
    """The kernel; items of work are a few rows."""
    return _RowSum(function).kernel(symbol)


class _RowSum:
    """The composite, read once: its sum, and what is computed of that."""

    def __init__(self, function: Function) -> None:
        self.parameters = list(function.params)
        (output,) = outputs_of(function)
        values = {binding.var: binding.value for binding in bindings_of(function)}
        self.output = values.pop(output)
        self.calls = values
        self.sums = next(v for v, c in values.items() if is_op(c, SUM) or is_op(c, MEAN))
        (self.summed,) = self.calls[self.sums].args
        *rows, self.length = shape_of(self.summed.ty)
        self.count = prod(rows)
        self.dtype = str(storage_dtype(dtype_of(output.ty)))

    def kernel(self, symbol: str) -> Kernel:
        """The whole kernel."""
        result, groups = (self.count, self.dtype), group_count(self.count)
        return item_kernel(symbol, self.parameters, result, groups, self._group)

    def _group(self, arguments: Arguments, result: Buffer, number: Index) -> None:
        self.arguments = arguments
        each_group(number, self.count, lambda rows: self._rows(rows, result))

    def _rows(self, rows: Sequence[Index], result: Buffer) -> None:
        starts = [T.bind(row * self.length) for row in rows]

        def term(row: int, place: Index) -> Scalar:
            value = value_at(self.summed, starts[row] + place, {}, self.calls, self.arguments)
            return shared(value.astype("float64"))

        with on_stack():
            totals = T.alloc_buffer((len(rows),), "float64")
            accumulate_rows(totals, self.length, term)
            for index, row in enumerate(rows):
                total = totals[index].astype("float32")
                if is_op(self.calls[self.sums], MEAN):
                    total = total / tirx.const(float(self.length), "float32")
                known = {self.sums: total}
                value = value_at(self.output, row, known, self.calls, self.arguments)
                T.buffer_store(result, shared(value), [row])
