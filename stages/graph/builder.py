"""Build Relax modules binding by binding, with tensors as named parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from stages.dialect.calls import tensor_type
from stages.dialect.operators import normalizer
from stages.graph.bindings import output_names, variables_in
from stages.kinds import Array, Model
from stages.nodes import Expr, Function, GlobalVar, Var, VarBinding

KEPT = ("numerics", "quantization", "islands", "pictures")
"""Attributes of `main` that hold at every stage."""


class FunctionBuilder:
    """One Relax function under construction: parameters may be added at any time."""

    def __init__(self) -> None:
        self.params: list[Var] = []
        self._bindings: list[VarBinding] = []
        self._names: set[str] = set()
        self._normalizer = normalizer()

    def unique(self, name: str) -> str:
        """`name`, with a number behind it where it is taken."""
        candidate, count = name, 1
        while candidate in self._names:
            candidate, count = f"{name}_{count}", count + 1
        self._names.add(candidate)
        return candidate

    def param(self, name: str, shape: Sequence[int], dtype: str) -> Var:
        """A new parameter of the function."""
        variable = relax.Var(self.unique(name), tensor_type(shape, dtype))
        self.params.append(variable)
        return variable

    def emit(self, expr: Expr, name: str) -> Var:
        """Bind `expr` (its type inferred) to a new variable called `name`."""
        return self.emit_typed(self._normalizer.normalize(expr), name)

    def emit_typed(self, value: Expr, name: str) -> Var:
        """Bind an expression that knows its type, such as a call of a function."""
        variable = relax.DataflowVar(self.unique(name), value.ty)
        self._bindings.append(relax.VarBinding(variable, value))
        return variable

    def prune(self, outputs: Sequence[Var]) -> None:
        """Drop bindings and parameters that `outputs` do not depend on."""
        needed = set(outputs)
        kept = []
        for binding in reversed(self._bindings):
            if binding.var in needed:
                kept.append(binding)
                needed.update(variables_in(binding.value))
        self._bindings = kept[::-1]
        self.params = [parameter for parameter in self.params if parameter in needed]

    def finish(self, outputs: Sequence[Var], attrs: Mapping[str, Any]) -> Function:
        """The function; a single output is returned bare, several as a tuple."""
        results = []
        for output in outputs:
            result = relax.Var(self.unique(f"{output.name}.out"), output.ty)
            self._bindings.append(relax.VarBinding(result, output))
            results.append(result)
        body = results[0] if len(results) == 1 else relax.Tuple(results)
        block = relax.DataflowBlock(self._bindings)
        sequence = self._normalizer.normalize(relax.SeqExpr([block], body))
        function = relax.Function(self.params, sequence, sequence.ty, is_pure=True)
        for key, value in attrs.items():
            function = function.with_attr(key, value)
        return function


class ModelBuilder(FunctionBuilder):
    """A `main` function and the tensors behind its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: dict[str, Array] = {}
        self._inputs: list[Var] = []

    def input(self, name: str, shape: Sequence[int], dtype: str) -> Var:
        """A new graph input."""
        variable = relax.Var(self.unique(name), tensor_type(shape, dtype))
        self._inputs.append(variable)
        return variable

    def tensor(self, name: str, value: Array, dtype: str | None = None) -> Var:
        """A parameter holding `value`; `dtype` is the dialect dtype where it is below 8 bits."""
        contiguous = np.ascontiguousarray(value).reshape(np.shape(value))  # it widens scalars
        variable = self.param(name, contiguous.shape, dtype or str(contiguous.dtype))
        self.tensors[variable.name] = contiguous
        return variable

    def model(
        self,
        outputs: Sequence[Var],
        output_names: Sequence[str],
        functions: Mapping[GlobalVar, Function] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Model:
        """The finished model; `functions` maps the GlobalVars that `main` calls to functions."""
        tensors = list(self.params)
        self.params = self._inputs + tensors
        main = self.finish(
            outputs,
            {
                "global_symbol": "main",
                "num_input": len(self._inputs),
                "output_names": list(output_names),
                **(attrs or {}),
            },
        )
        module = tvm.IRModule({relax.GlobalVar("main"): main, **(functions or {})})
        relax.analysis.well_formed(module)
        return Model(module, {variable.name: self.tensors[variable.name] for variable in tensors})

    def model_after(
        self,
        source: Model,
        outputs: Sequence[Var],
        functions: Mapping[GlobalVar, Function] | None = None,
    ) -> Model:
        """The finished model of a stage: `source`'s names of outputs and what holds for them."""
        attrs = source.module["main"].attrs
        kept = {name: attrs[name] for name in KEPT if name in attrs}
        return self.model(outputs, output_names(source), functions, kept)
