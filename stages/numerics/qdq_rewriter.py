"""Rewrites a QDQ graph: what it emits when an old variable is read."""

from __future__ import annotations

from tvm import relax

from stages.dialect.calls import dtype_of
from stages.dialect.dtypes import parse
from stages.graph.bindings import remap, variables_in
from stages.nodes import Call, Var
from stages.numerics import linear_quantizers
from stages.numerics.qdq_graph import QdqGraph, Quantized
from stages.numerics.qdq_sums import accumulated
from stages.numerics.quantization_grid import Grid


class QdqRewriter(QdqGraph):
    """Emits a variable when something reads it, so that a float operator which was replaced leaves
    nothing behind."""

    def note_dequantized(self, variable: Var, call: Call) -> None:
        """Remember what an old dequantize_linear reads, if its grid is known."""
        found = self.grid(call)
        if found is not None:
            self.quantized[variable] = Quantized(self.value(call.args[0]), found)

    def value(self, variable: Var) -> Var:
        """The new variable that holds what `variable` held, emitted now if it was not before."""
        waiting = [variable]
        while waiting:
            current = waiting[-1]
            missing = self._emit(current) if current not in self.values else []
            if missing:
                waiting.extend(missing)
            else:
                waiting.pop()
        return self.values[variable]

    def _emit(self, variable: Var) -> list[Var]:
        """Emit an old variable, or say which others it needs before."""
        name = str(variable.name)
        tensor = self.tensor(variable)
        if tensor is not None:
            self.values[variable] = self.builder.tensor(name, tensor, dtype_of(variable.ty))
            return []
        if variable in self.quantized:
            self.values[variable] = self.dequantize(self.quantized[variable], name)
            return []
        sums = accumulated(self, variable)
        if sums is not None:
            self.values[variable] = sums
            return []
        expression = self.expressions[variable]
        missing = [each for each in variables_in(expression) if each not in self.values]
        if not missing:
            replaced = remap(expression, self.values)
            is_alias = isinstance(replaced, relax.Var)
            self.values[variable] = replaced if is_alias else self.builder.emit(replaced, name)
        return missing

    def dequantize(self, quantized: Quantized, name: str) -> Var:
        """The float variable that a quantized value stands for."""
        scale, zero_point = self._operands(quantized.grid, name)
        call = linear_quantizers.dequantize_linear(quantized.value, scale, zero_point)
        return self.builder.emit(call, name)

    def _operands(self, of: Grid, name: str) -> tuple[Var, Var]:
        if id(of) in self._stated:
            scale, zero_point = self._stated[id(of)]
            return self.value(scale), self.value(zero_point)
        storage = "int8" if parse(of.dtype).is_signed else "uint8"
        if of.dtype in ("int16", "uint16", "int32"):
            storage = of.dtype
        return (
            self.builder.tensor(f"{name}.scale", of.scale),
            self.builder.tensor(f"{name}.zero_point", of.zero_point.astype(storage), of.dtype),
        )
