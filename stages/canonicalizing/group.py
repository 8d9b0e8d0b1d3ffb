"""A composite under construction, and the order in which composites run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from stages.dialect.calls import dtype_of, shape_of
from stages.graph.bindings import bindings_of, outputs_of, variables_in
from stages.graph.composites import LINEAR, TE
from stages.nodes import Function, Var, VarBinding


@dataclass(eq=False)
class Group:
    """Bindings in order; `kind` names the main operator, or what the composite is."""

    kind: str
    layer: str
    bindings: list[VarBinding] = field(default_factory=list)

    @property
    def is_of_levels(self) -> bool:
        """Whether it becomes a composite of levels."""
        return self.kind not in (TE, LINEAR)

    @property
    def defined(self) -> list[Var]:
        """The variables the group computes."""
        return [binding.var for binding in self.bindings]

    @property
    def macs(self) -> int:
        """Multiplications of its product, of any width; 0 if it has none."""
        call = self.bindings[0].value
        if not call.op.name.endswith(("conv2d", "dense")):
            return 0
        return prod(shape_of(call.ty)) * prod(shape_of(call.args[1].ty)[1:])


Item = Group | VarBinding
"""A composite, or a binding that is none."""


def in_order(items: Sequence[Item]) -> list[Item]:
    """Groups and bindings so that each stands behind what it reads, else in the order given."""
    made = {id(item): set(defined_by(item)) for item in items}
    pending, result, missing = list(items), [], set().union(*made.values())
    while pending:
        ready = next(i for i in pending if not (read_by(i) - made[id(i)]) & missing)
        pending.remove(ready)
        missing -= made[id(ready)]
        result.append(ready)
    return result


def defined_by(item: Item) -> list[Var]:
    """The variables that an item computes."""
    return item.defined if isinstance(item, Group) else [item.var]


def read_by(item: Item) -> set[Var]:
    """The variables that an item's operators read."""
    bindings = item.bindings if isinstance(item, Group) else [item]
    return {variable for binding in bindings for variable in variables_in(binding.value)}


def escaping(items: Sequence[Item], function: Function) -> dict[int, list[Var]]:
    """Identity of a group → its variables that others (or the graph's outputs) read, in order.

    AssertionError if one is an accumulator of a composite of levels.
    """
    outputs = outputs_of(function)
    needed = {binding.value for binding in bindings_of(function) if binding.var in outputs}
    for item in items:
        needed |= read_by(item) - set(defined_by(item))
    found = {}
    for item in items:
        if isinstance(item, Group):
            found[id(item)] = variables = [v for v in item.defined if v in needed]
            for variable in variables if item.is_of_levels else ():
                if dtype_of(variable.ty) == "int32":
                    raise AssertionError(
                        f"the accumulator {variable.name} leaves composite {item.layer}"
                    )
    return found
