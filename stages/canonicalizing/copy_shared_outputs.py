"""Every output of a network becomes a value of its own.

A package writes each output to memory of the caller. So one that is an input as it came, or a value
that is an output already, is copied.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from stages.dialect.calls import shape_of
from stages.graph.bindings import bindings_of, outputs_of
from stages.graph.rewriting import Rewriting
from stages.kinds import Model


def owned(model: Model) -> tuple[Model, set[Any]]:
    """The model with copies where outputs need them, and the variables of `main` that these are."""
    walk = _Walk(model)
    return (walk.run(), walk.copies) if any(walk.shared) else (model, set())


class _Walk(Rewriting):
    """One pass over `main`."""

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        self.outputs = outputs_of(self.main)
        self.returned = {b.var: b.value for b in bindings_of(self.main) if b.var in self.outputs}
        self.copies: set[Any] = set()
        values = [self.returned[output] for output in self.outputs]
        inputs = list(self.mapping)
        self.shared = [v in (*inputs, *values[:at]) for at, v in enumerate(values)]
        """Whether an output is an input, or an earlier output."""

    def run(self) -> Model:
        """Build the model anew."""
        for binding in bindings_of(self.main):
            if binding.var not in self.returned:
                self.copy(binding)
        results = []
        for output, is_shared in zip(self.outputs, self.shared, strict=True):
            value = self.read(self.returned[output])
            results.append(self._copied(value) if is_shared else value)
        return self.builder.model_after(self.source, results)

    def _copied(self, value: Any) -> Any:
        """The same once more: what is reshaped is computed where it is an output."""
        shape = shape_of(value.ty)
        result = self.builder.emit(relax.op.reshape(value, shape), f"{value.name}.copied")
        self.copies.add(result)
        return result
