"""Products of two computed matrices that stay in loops, as vectors compute them fast.

Those are exact sums of floats, integers of 16 bits, and matrices that several others share. A
vector holds neighbouring columns of the result. Where their number has no divisor that a vector
could hold, as 197 tokens have not, there are more:

    f(matmul(a, b)), b [..., K, N]  ->  strided_slice(f(matmul(a, pad(b))))

for what is computed of every value alone (f).
"""

from __future__ import annotations

from tvm import relax

from stages.dialect import names
from stages.dialect.calls import is_op, shape_of
from stages.dialect.elementwise import ELEMENTWISE, WHOLE
from stages.graph.bindings import remap, variables_in
from stages.graph.passes import Pass
from stages.kinds import Model
from stages.nodes import Call, Expr, Var, VarBinding

FITTING = 16
"""What the columns are made a multiple of."""
NARROW, WIDE = 8, 64
"""Columns that one vector, or some beside each other, hold."""


class PadColumns(Pass):
    """Adds columns to products where too few would fit a vector."""

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        self._wider: dict[Var, Var] = {}
        """Old variable → the new one that has its columns and more."""

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """A product, or what is computed of one, whose own columns are cut out when it is read."""
        variable = binding.var
        wider = self._more(binding.value, str(variable.name))
        if wider is not None:
            self._wider[variable] = wider
            self.defer(variable, lambda: self._kept(variable))
        return None

    def _kept(self, variable: Var) -> Var:
        """The columns that a variable had."""
        columns, wider = shape_of(variable.ty)[-1], self._wider[variable]
        last = len(shape_of(wider.ty)) - 1
        kept = relax.op.strided_slice(wider, [last], [0], [columns])
        return self.builder.emit(kept, f"{variable.name}.kept")

    def _more(self, expr: Expr, name: str) -> Var | None:
        """A product, or what is computed of one alone, with more columns; None to leave it."""
        missing = self._missing(expr)
        if missing and isinstance(expr, Call):
            left, right = map(self.read, expr.args)
            width = [0, 0] * (len(shape_of(right.ty)) - 1) + [0, missing]
            wide = self.builder.emit(relax.op.nn.pad(right, width), f"{name}.columns")
            return self.builder.emit(relax.op.matmul(left, wide), name)
        if not isinstance(expr, Call) or str(expr.op.name) not in ELEMENTWISE:
            return None
        computed = [each for each in variables_in(expr) if each not in self.constants]
        if len(computed) != 1 or computed[0] not in self._wider or not self._is_alike(expr):
            return None
        known = {each: self.read(each) for each in variables_in(expr) if each in self.constants}
        return self.builder.emit(
            remap(expr, {**known, computed[0]: self._wider[computed[0]]}), name
        )

    def _is_alike(self, call: Call) -> bool:
        """Whether every position is computed in the same way."""
        read = (each for each in variables_in(call) if each in self.constants)
        return not WHOLE.get(str(call.op.name)) and all(self.constants[v].size == 1 for v in read)

    def _missing(self, expr: Expr) -> int:
        """How many columns to add to the right operand of a product, 0 to leave it as it is."""
        if not is_op(expr, names.MATMUL) or expr.args[1] in self.constants:
            return 0
        shape = shape_of(expr.args[1].ty)
        columns = shape[-1]
        fits = any(columns % width == 0 for width in range(NARROW, WIDE + 1))
        return 0 if len(shape) < 2 or columns < NARROW or fits else -columns % FITTING
