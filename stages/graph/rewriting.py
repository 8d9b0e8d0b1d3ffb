"""A walk over a model's `main` that builds it anew: what every rewriting of a model shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stages.dialect.calls import dtype_of, shape_of
from stages.graph.bindings import remap, variables_in
from stages.graph.builder import ModelBuilder
from stages.kinds import Model

Array = np.ndarray[Any, Any]
Extents = Callable[[tuple[int, ...]], tuple[int, ...]]


class Rewriting:
    """The source, the model under construction, and what each old variable is in the new one.

    Graph inputs are declared at once, in order; a tensor becomes a parameter when something reads
    it, so that one that nothing reads any more is left out.
    """

    def __init__(self, source: Model, extents: Extents = tuple) -> None:
        """`extents` is what becomes of an input's shape."""
        self.source = source
        self.main = source.module["main"]
        self.builder = ModelBuilder()
        self.mapping: dict[Any, Any] = {}
        """Old variable → new variable."""
        count = int(self.main.attrs["num_input"])
        for parameter in self.main.params[:count]:
            self.mapping[parameter] = self.builder.input(
                str(parameter.name), extents(shape_of(parameter.ty)), dtype_of(parameter.ty)
            )
        self.constants: dict[Any, Array] = {
            parameter: source.params[str(parameter.name)] for parameter in self.main.params[count:]
        }
        """Old variables whose value is known."""

    def read(self, variable: Any) -> Any:
        """The new variable for an old one."""
        if variable not in self.mapping:
            self.mapping[variable] = self.builder.tensor(
                str(variable.name), self.constants[variable], dtype_of(variable.ty)
            )
        return self.mapping[variable]

    def remapped(self, expr: Any) -> Any:
        """An expression over new variables."""
        return remap(expr, {variable: self.read(variable) for variable in variables_in(expr)})

    def copy(self, binding: Any) -> None:
        """Keep a binding as it is."""
        value = self.remapped(binding.value)
        self.mapping[binding.var] = self.builder.emit(value, str(binding.var.name))
