"""What `main` says of its variables: who gives each, who reads it, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import relax

from stages.graph.bindings import bindings_of, calls_of, variables_in
from stages.graph.composites import is_of_levels, is_reshape
from stages.kinds import Array, Model
from stages.nodes import Var

ELEMENTWISE = "elementwise"
"""The attribute `composite` of a function of levels without a main operator."""


@dataclass(frozen=True)
class Caller:
    """A call of a composite in `main`."""

    variable: Any
    """The variable of `main` that the call gives."""
    function: Any
    actual: Mapping[Var, Any]
    """The composite's parameter → what `main` hands in."""

    @property
    def name(self) -> str:
        """The name of the layer that the call is of."""
        return str(self.variable.name)

    @property
    def kind(self) -> str:
        """The attribute `composite` of its function."""
        return str(self.function.attrs["composite"])

    @property
    def is_of_levels(self) -> bool:
        """Whether it is of levels, so that its results lie as readers want them; results of others
        also lie as the user sees them."""
        return is_of_levels(self.function)

    def reads(self, variable: Var) -> int:
        """How many operators inside read a variable of `main`."""
        inside = [p for p, a in self.actual.items() if a.same_as(variable)]
        values = (b.value for b in bindings_of(self.function))
        return sum(any(p in variables_in(value) for p in inside) for value in values)


class Graph:
    """A canonicalized model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.main = model.module["main"]
        self.bindings = bindings_of(self.main)
        self.readings = Counter(v for b in self.bindings for v in variables_in(b.value))
        """How often `main` reads a variable."""
        self.callers = {
            b.var: Caller(b.var, f, dict(zip(f.params, b.value.args, strict=True)))
            for b, f in calls_of(model)
        }
        """Variable → the call of a composite that gives it, in order."""
        self.results = {variable: [variable] for variable in self.callers}
        """The same → its results: itself, or what `main` takes out of it."""
        self.views: dict[Var, Any] = {}
        """Variable → what it names the memory of anew."""
        parts: dict[Var, dict[int, Any]] = {}
        for binding in self.bindings:
            value = binding.value
            if isinstance(value, relax.TupleGetItem):
                parts.setdefault(value.tuple_value, {})[value.index] = binding.var
            elif is_reshape(value):
                self.views[binding.var] = value.args[0]
        for variable, fields in parts.items():
            self.results[variable] = [fields[index] for index in sorted(fields)]
        self.producers = {
            result: caller
            for variable, caller in self.callers.items()
            for result in self.results[variable]
        }
        """Result → the call that gives it, alone or among others."""

    def tensor(self, variable: Var) -> Array | None:
        """The value of a variable, if it is known when the package is built."""
        return self.model.params.get(str(variable.name))

    def readers(self, variable: Var) -> list[Caller]:
        """The calls of composites that read a variable."""
        return [caller for caller in self.callers.values() if caller.reads(variable)]

    def viewed(self, variable: Var) -> list[Any]:
        """What a variable names the memory of, step by step: itself at first."""
        passed = [variable]
        while passed[-1] in self.views:
            passed.append(self.views[passed[-1]])
        return passed

    def is_given(self, variable: Var) -> bool:
        """Whether what a variable names is the user's, or a tensor."""
        return self.viewed(variable)[-1] in list(self.main.params)
