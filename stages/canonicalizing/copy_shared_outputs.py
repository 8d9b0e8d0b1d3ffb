"""Every output of a network becomes a value of its own.

    y = x, z = x -> y = x, z = reshape(x, its own shape)

A package writes each output to memory of the caller. So one that is an input as it came, or a value
that is an output already, is copied.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from stages.dialect import names
from stages.dialect.calls import is_op, shape_of
from stages.graph.bindings import bindings_of, outputs_of
from stages.graph.passes import Pass
from stages.kinds import Model
from stages.nodes import Expr, Function, Var, VarBinding


class CopySharedOutputs(Pass):
    """Copies each output that is an input, or an earlier output."""

    def __init__(self, source: Model) -> None:
        super().__init__(source)
        values = returned_by(self.main)
        self.shared = [
            value in self.mapping or value in values[:at] for at, value in enumerate(values)
        ]
        """Whether an output is an input, or an earlier output."""

    def is_needed(self) -> bool:
        """Whether an output is to be copied."""
        return any(self.shared)

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """Nothing inside changes."""
        return None

    def finish(self, results: Sequence[Var]) -> Model:
        """The new model, whose outputs are copies where they have to be."""
        pairs = zip(results, self.shared, strict=True)
        return super().finish([self._copied(v) if is_shared else v for v, is_shared in pairs])

    def _copied(self, value: Var) -> Var:
        """A copy of a value: what is reshaped is computed where it is an output."""
        self.rewrites += 1
        call = relax.op.reshape(value, shape_of(value.ty))
        return self.builder.emit(call, f"{value.name}.copied")


def returned_by(main: Function) -> list[Var]:
    """The values that `main` returns, in order; each output's own variable stands for one."""
    values = {binding.var: binding.value for binding in bindings_of(main)}
    return [values[output] for output in outputs_of(main)]


def copies_of(main: Function) -> set[Var]:
    """The outputs that are copies: an input or another output, reshaped to the shape it has."""
    made = {binding.var: binding.value for binding in bindings_of(main)}
    values, inputs = returned_by(main), main.params[: int(main.attrs["num_input"])]
    shared, found = {*values, *inputs}, set[Var]()
    for value in values:
        call = made.get(value)
        if not is_op(call, names.RESHAPE) or call.args[0] not in shared:
            continue
        if shape_of(call.ty) == shape_of(call.args[0].ty):
            found.add(value)
    return found
