"""Simplify an integer model before it is grouped: fewer transposes, splits as slices, nothing idle.

Networks that were written channels first come with a transpose before and after every convolution.
A transpose sinks through what computes position by position, joins the next one, and is gone where
the two undo each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from stages.dialect.calls import dtype_of, is_op, shape_of
from stages.dialect.elementwise import ELEMENTWISE, WHOLE
from stages.dialect.movement_numpy import slices_of
from stages.graph import interpret
from stages.graph.bindings import bindings_of, needed_bindings, outputs_of, variables_in
from stages.graph.rewriting import Rewriting
from stages.kinds import Model

Array = np.ndarray[Any, Any]
Order = tuple[int, ...]
TRANSPOSE, RESHAPE = "relax.permute_dims", "relax.reshape"
REDUCTIONS = {
    f"relax.{build.__name__}": build
    for build in (relax.op.mean, relax.op.sum, relax.op.max, relax.op.min)
}


def simplify(model: Model) -> Model:
    """The same model with fewer operators; layer names stay."""
    return _Walk(model).run()


class _Walk(Rewriting):
    """One pass over the bindings that outputs depend on."""

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        self.turned: dict[Any, tuple[Any, Order]] = {}
        """New variable that is a transpose → what it is a transpose of, and the order of axes."""
        self.reshaped: dict[Any, Any] = {}
        """New variable that is a reshape → what it is a reshape of."""
        self.parts: dict[Any, tuple[Any, Any]] = {}
        """Old variable that is a split → the new tensor that is split, and the call."""

    def run(self) -> Model:
        """Walk, and build the model anew."""
        returned = {b.value for b in bindings_of(self.main) if isinstance(b.value, relax.Var)}
        for binding in needed_bindings(self.main):
            if binding.var in returned or not self._fold(binding):
                self.mapping[binding.var] = self._value(binding)
        results = [self.mapping[output] for output in outputs_of(self.main)]
        return self.builder.model_after(self.source, results)

    def _fold(self, binding: Any) -> bool:
        """Compute a binding now if it reads constants alone; whether it does."""
        call, read = binding.value, variables_in(binding.value)
        if not isinstance(call, Call) or not read:
            return False
        if not all(variable in self.constants for variable in read):
            return False
        value = interpret.evaluate(call, self.constants)
        if not isinstance(value, np.ndarray):
            return False
        self.constants[binding.var] = value
        return True

    def _value(self, binding: Any) -> Any:
        expr, name = binding.value, str(binding.var.name)
        if isinstance(expr, relax.Var):
            return self.read(expr)
        if isinstance(expr, relax.TupleGetItem):
            return self._part(expr, name)
        if is_op(expr, "relax.split"):
            self.parts[binding.var] = (self.read(expr.args[0]), expr)
            return None
        if is_op(expr, TRANSPOSE):
            return self._transpose(self.read(expr.args[0]), order_of(expr), name)
        sunk = self._sunk(expr, name)
        if sunk is not None:
            return sunk
        return self.builder.emit(self.remapped(expr), name)

    def _part(self, expr: Any, name: str) -> Any:
        """One part of a split is a slice."""
        if expr.tuple_value not in self.parts:
            return self.builder.emit(self.remapped(expr), name)
        source, call = self.parts[expr.tuple_value]
        axis = int(call.attrs.axis) % len(source.ty.shape)
        extents = [shape_of(field)[axis] for field in call.ty.fields]
        begin = sum(extents[: expr.index])
        return self._cut(source, {axis: range(begin, begin + extents[expr.index])}, name)

    # -- transposes --------------------------------------------------------------------------

    def _transpose(self, value: Any, order: Order, name: str) -> Any:
        """`value` with its axes in `order`, in at most one transpose."""
        if value in self.turned:
            value, before = self.turned[value]
            order = tuple(before[axis] for axis in order)
        if order == tuple(range(len(order))):
            return value
        shape = shape_of(value.ty)
        if _keeps_memory(shape, order):
            target = tuple(shape[axis] for axis in order)
            result = self._shaped(value, target, name)
        else:
            result = self.builder.emit(relax.op.permute_dims(value, list(order)), name)
        self.turned[result] = (value, order)
        return result

    def _sunk(self, expr: Any, name: str) -> Any:
        """The operator over untransposed operands, transposed; None where that is not possible."""
        if not isinstance(expr, Call):
            return None
        op = str(expr.op.name)
        if op in ELEMENTWISE:
            return self._sink(expr, name)
        if op == RESHAPE:
            return self._reshape(expr, name)
        if op == "relax.concat":
            return self._concat(expr, name)
        if op == "relax.strided_slice":
            return self._slice(expr, name)
        if op == "relax.take":
            return self._take(expr, name)
        if op in REDUCTIONS and bool(expr.attrs.keepdims) and expr.attrs.axis is not None:
            return self._reduction(expr, name)
        return None

    def _reshape(self, call: Any, name: str) -> Any:
        """The same memory in another shape: of what was reshaped last, if that is all, and under
        the transpose where axes are split, or axes of extent 1 come or go."""
        value, target = self.read(call.args[0]), shape_of(call.ty)
        value = self.reshaped.get(value, value)
        shape = shape_of(value.ty)
        if shape == target:
            return value
        parts = parts_of(shape, target)
        if value not in self.turned or parts is None:
            return self._shaped(value, target, name)
        source, order = self.turned[value]
        own = [order[axis] for axis, extent in enumerate(shape) if extent != 1]
        # Where axes of extent 1 lie is of no account, but always the same.
        moved = [part for axis in sorted(own) for part in parts[own.index(axis)]]
        axes = [axis for axis, extent in enumerate(target) if extent == 1] + moved
        inner = self._shaped(source, tuple(target[axis] for axis in axes), f"{name}.inner")
        return self._transpose(inner, tuple(axes.index(axis) for axis in range(len(axes))), name)

    def _shaped(self, value: Any, shape: tuple[int, ...], name: str) -> Any:
        """`value` in another shape, in at most one reshape."""
        value = self.reshaped.get(value, value)
        if shape_of(value.ty) == shape:
            return value
        result = self.builder.emit(relax.op.reshape(value, shape), name)
        self.reshaped[result] = value
        return result

    def _concat(self, call: Any, name: str) -> Any:
        """A concatenation along the axis that the transposes put there."""
        values = [self.read(field) for field in call.args[0].fields]
        if not all(value in self.turned for value in values):
            return None
        orders = {self.turned[value][1] for value in values}
        if len(orders) != 1:
            return None
        (order,) = orders
        axis = order[int(call.attrs.axis) % len(order)]
        joined = relax.op.concat([self.turned[value][0] for value in values], axis)
        return self._transpose(self.builder.emit(joined, f"{name}.inner"), order, name)

    def _slice(self, call: Any, name: str) -> Any:
        """A slice along the axes that the transpose put there, if it runs forward."""
        value = self.read(call.args[0])
        shape = shape_of(value.ty)
        cuts = [range(n)[cut] for n, cut in zip(shape, slices_of(call, len(shape)), strict=True)]
        if value not in self.turned or any(cut.step < 0 for cut in cuts):
            return None
        chosen = {axis: cut for axis, cut in enumerate(cuts) if cut != range(shape[axis])}
        return self._cut(value, chosen, name) if chosen else value

    def _cut(self, value: Any, cuts: Mapping[int, range], name: str) -> Any:
        """Some of the places along some axes of a tensor, transposed at last if that is."""
        source, order = self.turned.get(value, (value, tuple(range(len(value.ty.shape)))))
        axes = [order[axis] for axis in cuts]
        ends = [[getattr(cut, end) for cut in cuts.values()] for end in ("start", "stop", "step")]
        call = relax.op.strided_slice(source, axes, *ends)
        if value not in self.turned:
            return self.builder.emit(call, name)
        return self._transpose(self.builder.emit(call, f"{name}.inner"), order, name)

    def _take(self, call: Any, name: str) -> Any:
        """Places along the axis that the transpose put there."""
        value, places = map(self.read, call.args)
        if value not in self.turned or len(places.ty.shape) != 1 or call.attrs.axis is None:
            return None
        source, order = self.turned[value]
        axis = order[int(call.attrs.axis) % len(order)]
        taken = relax.op.take(source, places, axis, mode=str(call.attrs.mode))
        return self._transpose(self.builder.emit(taken, f"{name}.inner"), order, name)

    def _reduction(self, call: Any, name: str) -> Any:
        """A reduction along the axes that the transpose put there."""
        value = self.read(call.args[0])
        if value not in self.turned:
            return None
        source, order = self.turned[value]
        axes = sorted(order[int(axis) % len(order)] for axis in call.attrs.axis)
        reduced = REDUCTIONS[str(call.op.name)](source, axes, keepdims=True)
        return self._transpose(self.builder.emit(reduced, f"{name}.inner"), order, name)

    def _sink(self, call: Any, name: str) -> Any:
        """As `_sunk`, for what computes position by position."""
        rank = len(call.ty.shape)
        moving = [self.mapping[a] for a in call.args if self._is_computed(a)]
        orders = {self.turned[v][1] for v in moving if v in self.turned}
        same = [v for v in moving if v in self.turned and len(v.ty.shape) == rank]
        if len(orders) != 1 or len(same) != len(moving):
            return None
        (order,) = orders
        arguments = []
        for argument in call.args:
            if not isinstance(argument, relax.Var):
                arguments.append(argument)
            elif self._is_computed(argument):
                arguments.append(self.turned[self.mapping[argument]][0])
            else:
                tensor = self._turned_constant(call, argument, order, rank)
                if tensor is None:
                    return None
                arguments.append(tensor)
        inner = self.builder.emit(Call(call.op, arguments, call.attrs), f"{name}.inner")
        return self._transpose(inner, order, name)

    def _is_computed(self, argument: Any) -> bool:
        return isinstance(argument, relax.Var) and argument not in self.constants

    def _turned_constant(self, call: Any, parameter: Any, order: Order, rank: int) -> Any:
        """A constant operand as the untransposed operator reads it."""
        value = self.constants[parameter]
        if _is_whole(call, parameter) or value.size == 1:
            return self.read(parameter)
        if value.ndim > rank:
            return None
        aligned = value.reshape((1,) * (rank - value.ndim) + value.shape)
        back = np.argsort(order)
        turned = np.ascontiguousarray(aligned.transpose(back))
        while turned.ndim > 1 and turned.shape[0] == 1:
            turned = turned[0]
        return self.builder.tensor(str(parameter.name), turned, dtype_of(parameter.ty))


def _is_whole(call: Any, parameter: Any) -> bool:
    """Whether an operator reads an operand as a whole, such as a table."""
    positions = WHOLE.get(str(call.op.name), ())
    return any(call.args[position].same_as(parameter) for position in positions)


def order_of(call: Any) -> Order:
    """Where the axes of a transpose come from."""
    rank = len(call.args[0].ty.shape)
    axes = call.attrs.axes
    if axes is None:
        return tuple(range(rank))[::-1]
    return tuple(int(axis) % rank for axis in axes)


def parts_of(shape: Sequence[int], target: Sequence[int]) -> list[list[int]] | None:
    """The axes of a target that each axis of a shape is split into, but for those of extent 1.

    None where it merges some.
    """
    places = [axis for axis, extent in enumerate(target) if extent != 1]
    found: list[list[int]] = []
    for extent in (n for n in shape if n != 1):
        part: list[int] = []
        while prod(target[axis] for axis in part) < extent:
            part.append(places.pop(0))
        if prod(target[axis] for axis in part) > extent:
            return None
        found.append(part)
    return found


def _keeps_memory(shape: Sequence[int], order: Order) -> bool:
    """Whether a transpose moves extents of 1 alone."""
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)
