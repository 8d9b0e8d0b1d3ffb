"""From a composite of a sum along rows of floats to one PrimFunc: a few rows at a time.

Means and variances of normalizations are such. Sums are taken in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from stages.packaging.kernel import Kernel
from stages.packaging.plain import on_stack
from stages.packaging.rows import line_kernel
from stages.packaging.turns import added_up, lines_of, take_turns
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.composites import calls_in
from stages.qnn.elementwise import ELEMENTWISE, WHOLE
from stages.qnn.expressions import scalar
from stages.qnn.registry import dtype_of, is_op, shape_of, storage_dtype
from stages.qnn.sharing import shared

SUM, MEAN = "relax.sum", "relax.mean"
LEAST = 16
"""Elements of a row, at least, for its sum to be what takes time."""


def is_row_sum(function: Any) -> bool:
    """Whether a plain composite sums floats up along the last axis alone, what is computed of them
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
        and all(_is_by_element(each, full) for each in calls[:place])
        and all(_is_by_element(each, reduced) for each in calls[place + 1 :])
    )


def _is_by_element(call: Any, shape: tuple[int, ...]) -> bool:
    """Whether an operator computes by element, of tensors of a shape and of scalars."""
    name = str(call.op.name)
    is_known = name in ELEMENTWISE and not WHOLE.get(name) and shape_of(call.ty) == shape
    operands = [a for a in call.args if isinstance(a, relax.Var)]
    return is_known and all(shape_of(a.ty) == shape or prod(shape_of(a.ty)) == 1 for a in operands)


def lower_row_sum(function: Any, symbol: str) -> Kernel:
    """The kernel; items of work are a few rows."""
    return _RowSum(function).kernel(symbol)


class _RowSum:
    def __init__(self, function: Any) -> None:
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
        result, lines = (self.count, self.dtype), lines_of(self.count)
        return line_kernel(symbol, self.parameters, result, lines, self._line)

    def _line(self, arguments: Mapping[Any, Any], result: Any, number: Any) -> None:
        self.arguments = arguments
        take_turns(number, self.count, lambda rows: self._rows(rows, result))

    def _rows(self, rows: Sequence[Any], result: Any) -> None:
        starts = [T.bind(row * self.length) for row in rows]

        def term(row: int, place: Any) -> Any:
            value = self._value(self.summed, starts[row] + place, {})
            return shared(value.astype("float64"))

        with on_stack():
            totals = T.alloc_buffer((len(rows),), "float64")
            added_up(totals, self.length, term)
            for index, row in enumerate(rows):
                total = totals[index].astype("float32")
                if is_op(self.calls[self.sums], MEAN):
                    total = total / tirx.const(float(self.length), "float32")
                value = self._value(self.output, row, {self.sums: total})
                T.buffer_store(result, shared(value), [row])

    def _value(self, variable: Any, place: Any, known: dict[Any, Any]) -> Any:
        """A tensor at a place, or a scalar."""
        if variable in known:
            return known[variable]
        call = self.calls.get(variable)
        if call is None:
            is_scalar = prod(shape_of(variable.ty)) == 1
            return self.arguments[variable][0 if is_scalar else place]
        read = [self._value(a, place, known) for a in call.args if isinstance(a, relax.Var)]
        known[variable] = scalar(call, read)
        return known[variable]
