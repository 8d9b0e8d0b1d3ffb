"""What is computed of a product's results, element by element, in the shape that these have.

    f(reshape(dense(x, w)))  ->  reshape(f(dense(x, w)))

A kernel of products gives rows, which a model may see as batches of them, or as heads. What follows
is computed in the kernel, before anything is stored, only if no reshape stands between.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax

from stages.dialect import names
from stages.dialect.calls import dtype_of, is_op, shape_of
from stages.dialect.elementwise import ELEMENTWISE, WHOLE
from stages.graph.bindings import variables_in
from stages.graph.passes import Pass
from stages.kinds import Model
from stages.nodes import Call, Expr, Var, VarBinding

OF_ROWS = (
    names.QNN_DENSE,
    names.QNN_FLOAT_DENSE,
    names.QNN_BATCH_DENSE,
    names.QNN_FLOAT_BATCH_DENSE,
)
"""Products whose results are rows."""


class SinkReshapes(Pass):
    """Moves reshapes of products behind what computes element by element."""

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        self.results: set[Var] = set()
        """New variables that are a product, or computed of one element by element."""
        self.rows: dict[Var, Any] = {}
        """New variable → that of the results that it is a reshape of."""

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """An operator on the rows that its operands are reshapes of."""
        return self._sunk(binding.value, str(binding.var.name)) if _is_each(binding.value) else None

    def copy(self, binding: VarBinding) -> None:
        """Keep a binding, and note what it is of the rows of products."""
        super().copy(binding)
        expr, result = binding.value, self.mapping[binding.var]
        if is_op(expr, names.RESHAPE):
            source = self.mapping[expr.args[0]]
            if source in self.results or source in self.rows:
                self.rows[result] = self.rows.get(source, source)
            return
        read = [self.mapping[v] for v in variables_in(expr)] if _is_each(expr) else []
        goes_on = any(v in self.results and shape_of(v.ty) == shape_of(result.ty) for v in read)
        if goes_on or any(is_op(expr, product) for product in OF_ROWS):
            self.results.add(result)

    def _sunk(self, call: Call, name: str) -> Any | None:
        """The operator on the rows themselves, reshaped; None where that is not possible."""
        shape = shape_of(call.ty)
        read = [self.mapping.get(v) for v in variables_in(call) if shape_of(v.ty) == shape]
        rows = next((self.rows[v] for v in read if v in self.rows), None)
        if rows is None:
            return None
        whole = WHOLE.get(str(call.op.name), ())
        operands = []
        for position, argument in enumerate(call.args):
            if isinstance(argument, relax.Var) and position not in whole:
                argument = self._operand(argument, shape, shape_of(rows.ty))
            elif isinstance(argument, relax.Var):
                argument = self.read(argument)
            if argument is None:
                return None
            operands.append(argument)
        inner = self.builder.emit(Call(call.op, operands, call.attrs), f"{name}.inner")
        result = self.builder.emit(relax.op.reshape(inner, shape), name)
        self.results.add(inner)
        self.rows[result] = inner
        return result

    def _operand(self, variable: Var, shape: tuple[int, ...], rows: tuple[int, ...]) -> Var | None:
        """An operand, which broadcasts to a shape, for rows of another one; None if it cannot."""
        own = shape_of(variable.ty)
        source = self.rows.get(self.mapping[variable]) if variable in self.mapping else None
        if source is not None and own == shape and shape_of(source.ty) == rows:
            return source
        if prod(own) == 1:
            wanted: tuple[int, ...] = ()
        elif prod(own) == prod(shape):
            wanted = rows
        elif prod(own) == own[-1] == shape[-1] == rows[-1]:
            wanted = own[-1:]
        else:
            return None
        if own == wanted:
            return self.read(variable)
        if variable in self.constants:
            value = self.constants[variable].reshape(wanted)
            return self.builder.tensor(str(variable.name), value, dtype_of(variable.ty))
        return self.builder.emit(
            relax.op.reshape(self.read(variable), wanted), f"{variable.name}.rows"
        )


def _is_each(expr: Expr) -> bool:
    """Whether an operator computes element by element."""
    return isinstance(expr, Call) and str(getattr(expr.op, "name", "")) in ELEMENTWISE
