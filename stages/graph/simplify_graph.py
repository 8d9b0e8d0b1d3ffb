"""Simplify an integer model before it is grouped: fewer transposes, splits as slices, nothing idle.

Networks that were written channels first come with a transpose before and after every convolution.
A transpose sinks through what computes position by position, joins the next one, and is gone where
the two undo each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tvm import relax

from stages.dialect import names
from stages.dialect.calls import dtype_of, is_op, shape_of
from stages.dialect.elementwise import ELEMENTWISE, WHOLE
from stages.dialect.movement_numpy import slices_of
from stages.graph import interpret
from stages.graph.axes import Order, keeps_memory, order_of, parts_of
from stages.graph.bindings import bindings_of, needed_bindings, variables_in
from stages.graph.passes import Pass
from stages.kinds import Model
from stages.nodes import Call, Expr, TupleGetItem, Var, VarBinding

TRANSPOSE, RESHAPE = names.PERMUTE_DIMS, names.RESHAPE
REDUCTIONS = {
    f"relax.{build.__name__}": build
    for build in (relax.op.mean, relax.op.sum, relax.op.max, relax.op.min)
}


def simplify(model: Model) -> Model:
    """Give an equal model of fewer operators; layer names stay."""
    return SimplifyGraph(model).run()


class SimplifyGraph(Pass):
    """Sinks transposes and joins them, makes splits slices, computes what is constant."""

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        self.returned = {b.value for b in bindings_of(self.main) if isinstance(b.value, Var)}
        self.transposed: dict[Var, tuple[Var, Order]] = {}
        """New variable that is a transpose → what it is a transpose of, and the order of axes."""
        self.reshaped: dict[Var, Var] = {}
        """New variable that is a reshape → what it is a reshape of."""
        self.parts: dict[Var, tuple[Var, Call]] = {}
        """Old variable that is a split → the new tensor that is split, and the call."""

    def bindings(self) -> Sequence[VarBinding]:
        """The bindings that outputs depend on."""
        return needed_bindings(self.main)

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """A constant, a slice, a transpose that has joined another, or one that has sunk."""
        if binding.var not in self.returned and self._fold(binding):
            return None
        expr, name = binding.value, str(binding.var.name)
        if isinstance(expr, TupleGetItem):
            return self._part(expr, name)
        if is_op(expr, names.SPLIT):  # only its parts are read
            self.parts[binding.var] = (self.read(expr.args[0]), expr)
            self.leave_out(binding.var)
            return None
        if is_op(expr, TRANSPOSE):
            return self._joined(expr, name)
        return self._sunk(expr, name) if isinstance(expr, Call) else None

    def copy(self, binding: VarBinding) -> None:
        """Keep a binding, and note what it is a transpose or a reshape of."""
        super().copy(binding)
        expr, result = binding.value, self.mapping[binding.var]
        if is_op(expr, TRANSPOSE):
            self.transposed[result] = (self.read(expr.args[0]), order_of(expr))
        elif is_op(expr, RESHAPE):
            self.reshaped[result] = self.read(expr.args[0])

    def _fold(self, binding: VarBinding) -> bool:
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

    def _part(self, expr: TupleGetItem, name: str) -> Var | None:
        """One part of a split is a slice."""
        if expr.tuple_value not in self.parts:
            return None
        source, call = self.parts[expr.tuple_value]
        axis = int(call.attrs.axis) % len(source.ty.shape)
        extents = [shape_of(field)[axis] for field in call.ty.fields]
        begin = sum(extents[: expr.index])
        return self._cut(source, {axis: range(begin, begin + extents[expr.index])}, name)

    # -- transposes --------------------------------------------------------------------------

    def _joined(self, call: Call, name: str) -> Var | None:
        """A transpose and the one before it; None where it stays as it is."""
        value, order = self.read(call.args[0]), order_of(call)
        is_idle = keeps_memory(shape_of(value.ty), order)
        return self._transpose(value, order, name) if value in self.transposed or is_idle else None

    def _transpose(self, value: Var, order: Order, name: str) -> Var:
        """`value` with its axes in `order`, in at most one transpose."""
        if value in self.transposed:
            value, before = self.transposed[value]
            order = tuple(before[axis] for axis in order)
        if order == tuple(range(len(order))):
            return value
        shape = shape_of(value.ty)
        if keeps_memory(shape, order):
            target = tuple(shape[axis] for axis in order)
            result = self._shaped(value, target, name)
        else:
            result = self.builder.emit(relax.op.permute_dims(value, list(order)), name)
        self.transposed[result] = (value, order)
        return result

    def _sunk(self, expr: Call, name: str) -> Var | None:
        """The operator over untransposed operands, transposed; None where that is not possible."""
        op = str(expr.op.name)
        if op in ELEMENTWISE:
            return self._sink(expr, name)
        if op == RESHAPE:
            return self._reshape(expr, name)
        if op == names.CONCAT:
            return self._concat(expr, name)
        if op == names.STRIDED_SLICE:
            return self._slice(expr, name)
        if op == names.TAKE:
            return self._take(expr, name)
        if op in REDUCTIONS and bool(expr.attrs.keepdims) and expr.attrs.axis is not None:
            return self._reduction(expr, name)
        return None

    def _reshape(self, call: Call, name: str) -> Var | None:
        """The same memory in another shape: of what was reshaped last, if that is all, and under
        the transpose where axes are split, or axes of extent 1 come or go."""
        given, target = self.read(call.args[0]), shape_of(call.ty)
        value = self.reshaped.get(given, given)
        shape = shape_of(value.ty)
        if shape == target:
            return value
        parts = parts_of(shape, target)
        if value not in self.transposed or parts is None:
            return None if value.same_as(given) else self._shaped(value, target, name)
        source, order = self.transposed[value]
        own = [order[axis] for axis, extent in enumerate(shape) if extent != 1]
        # Where axes of extent 1 lie is of no account, but always the same.
        moved = [part for axis in sorted(own) for part in parts[own.index(axis)]]
        axes = [axis for axis, extent in enumerate(target) if extent == 1] + moved
        inner = self._shaped(source, tuple(target[axis] for axis in axes), f"{name}.inner")
        return self._transpose(inner, tuple(axes.index(axis) for axis in range(len(axes))), name)

    def _shaped(self, value: Var, shape: tuple[int, ...], name: str) -> Var:
        """`value` in another shape, in at most one reshape."""
        value = self.reshaped.get(value, value)
        if shape_of(value.ty) == shape:
            return value
        result = self.builder.emit(relax.op.reshape(value, shape), name)
        self.reshaped[result] = value
        return result

    def _concat(self, call: Call, name: str) -> Var | None:
        """A concatenation along the axis that the transposes put there."""
        values = [self.read(field) for field in call.args[0].fields]
        if not all(value in self.transposed for value in values):
            return None
        orders = {self.transposed[value][1] for value in values}
        if len(orders) != 1:
            return None
        (order,) = orders
        axis = order[int(call.attrs.axis) % len(order)]
        joined = relax.op.concat([self.transposed[value][0] for value in values], axis)
        return self._transpose(self.builder.emit(joined, f"{name}.inner"), order, name)

    def _slice(self, call: Call, name: str) -> Var | None:
        """A slice along the axes that the transpose put there, if it runs forward."""
        value = self.read(call.args[0])
        shape = shape_of(value.ty)
        cuts = [range(n)[cut] for n, cut in zip(shape, slices_of(call, len(shape)), strict=True)]
        if value not in self.transposed or any(cut.step < 0 for cut in cuts):
            return None
        chosen = {axis: cut for axis, cut in enumerate(cuts) if cut != range(shape[axis])}
        return self._cut(value, chosen, name) if chosen else value

    def _cut(self, value: Var, cuts: Mapping[int, range], name: str) -> Var:
        """Some of the places along some axes of a tensor, transposed at last if that is."""
        source, order = self.transposed.get(value, (value, tuple(range(len(value.ty.shape)))))
        axes = [order[axis] for axis in cuts]
        ends = [[getattr(cut, end) for cut in cuts.values()] for end in ("start", "stop", "step")]
        call = relax.op.strided_slice(source, axes, *ends)
        if value not in self.transposed:
            return self.builder.emit(call, name)
        return self._transpose(self.builder.emit(call, f"{name}.inner"), order, name)

    def _take(self, call: Call, name: str) -> Var | None:
        """Places along the axis that the transpose put there."""
        value, places = map(self.read, call.args)
        if value not in self.transposed or len(places.ty.shape) != 1 or call.attrs.axis is None:
            return None
        source, order = self.transposed[value]
        axis = order[int(call.attrs.axis) % len(order)]
        taken = relax.op.take(source, places, axis, mode=str(call.attrs.mode))
        return self._transpose(self.builder.emit(taken, f"{name}.inner"), order, name)

    def _reduction(self, call: Call, name: str) -> Var | None:
        """A reduction along the axes that the transpose put there."""
        value = self.read(call.args[0])
        if value not in self.transposed:
            return None
        source, order = self.transposed[value]
        axes = sorted(order[int(axis) % len(order)] for axis in call.attrs.axis)
        reduced = REDUCTIONS[str(call.op.name)](source, axes, keepdims=True)
        return self._transpose(self.builder.emit(reduced, f"{name}.inner"), order, name)

    def _sink(self, call: Call, name: str) -> Var | None:
        """As `_sunk`, for what computes position by position."""
        rank = len(call.ty.shape)
        moving = [self.mapping[a] for a in call.args if self._is_computed(a)]
        orders = {self.transposed[v][1] for v in moving if v in self.transposed}
        same = [v for v in moving if v in self.transposed and len(v.ty.shape) == rank]
        if len(orders) != 1 or len(same) != len(moving):
            return None
        (order,) = orders
        arguments: list[Expr] = []
        for argument in call.args:
            if not isinstance(argument, Var):
                arguments.append(argument)
            elif self._is_computed(argument):
                arguments.append(self.transposed[self.mapping[argument]][0])
            else:
                tensor = self._transposed_constant(call, argument, order, rank)
                if tensor is None:
                    return None
                arguments.append(tensor)
        inner = self.builder.emit(Call(call.op, arguments, call.attrs), f"{name}.inner")
        return self._transpose(inner, order, name)

    def _is_computed(self, argument: Expr) -> bool:
        return isinstance(argument, Var) and argument not in self.constants

    def _transposed_constant(
        self, call: Call, parameter: Var, order: Order, rank: int
    ) -> Var | None:
        """A constant operand as the untransposed operator reads it."""
        value = self.constants[parameter]
        if _is_whole(call, parameter) or value.size == 1:
            return self.read(parameter)
        if value.ndim > rank:
            return None
        aligned = value.reshape((1,) * (rank - value.ndim) + value.shape)
        back = np.argsort(order)
        result = np.ascontiguousarray(aligned.transpose(back))
        while result.ndim > 1 and result.shape[0] == 1:
            result = result[0]
        return self.builder.tensor(str(parameter.name), result, dtype_of(parameter.ty))


def _is_whole(call: Call, parameter: Var) -> bool:
    """Whether an operator reads an operand as a whole, such as a table."""
    positions = WHOLE.get(str(call.op.name), ())
    return any(call.args[position].same_as(parameter) for position in positions)
