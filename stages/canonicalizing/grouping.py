"""Which bindings form one composite: a main operator and the epilogue that follows it.

Operators are taken in order. A main operator opens a group. Anything elementwise joins the last
group that one of its arguments comes from, so that groups stay in an executable order and no
accumulator leaves its group; whatever else a group's values are needed for becomes an output. Of
products that can change places the one with more to multiply is made the last: beside its products
an epilogue takes less time than beside those of a 1x1 convolution.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from stages.dialect.calls import dtype_of, shape_of
from stages.graph.bindings import bindings_of, outputs_of, variables_in
from stages.graph.composites import PLAIN, PRODUCTS
from stages.nodes import Call, Expr, Function, Var, VarBinding

MAIN = {
    "relax.qnn.conv2d",
    "relax.qnn.bitserial_conv2d",
    "relax.qnn.lookup_conv2d",
    "relax.qnn.dense",
    "relax.qnn.bitserial_dense",
    "relax.qnn.lookup_dense",
    "relax.qnn.max_pool2d",
    "relax.qnn.sum_pool2d",
}
"""Operators that open a group; so does anything that reads graph inputs alone."""


@dataclass(eq=False)
class Group:
    """A composite under construction: bindings in order; `kind` names its main operator."""

    kind: str
    layer: str
    bindings: list[VarBinding] = field(default_factory=list)

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


def operator_name(expr: Expr) -> str:
    """Full name of the operator a binding calls."""
    if not isinstance(expr, Call):
        raise AssertionError(f"a {type(expr).__name__} where an operator was expected")
    return str(expr.op.name)


def group(function: Function, elsewhere: Collection[Var] = ()) -> list[Group]:
    """The composites of a legalized `main`, in execution order, without what is elsewhere."""
    outputs = outputs_of(function)
    readers: dict[Var, list[Var]] = {}
    for binding in bindings_of(function):
        for variable in variables_in(binding.value):
            readers.setdefault(variable, []).append(binding.var)
    groups: list[Group] = []
    home: dict[Var, Group] = {}
    for binding in bindings_of(function):
        if binding.var in outputs or binding.var in elsewhere:
            continue
        name = operator_name(binding.value)
        sources = [home[v] for v in variables_in(binding.value) if v in home]
        if name in MAIN or not sources:
            kind = name.removeprefix("relax.").replace(".", "_") if name in MAIN else "elementwise"
            place = Group(kind, str(binding.var.name))
            groups.append(place)
        else:
            place = _last(groups, sources, home, readers, elsewhere)
            if any(v in elsewhere for v in variables_in(binding.value)):
                # It runs where that is ready; nothing else waits for what it has made before.
                groups.remove(place)
                groups.append(place)
        place.bindings.append(binding)
        home[binding.var] = place
    return groups


def _last(
    groups: list[Group],
    sources: Sequence[Group],
    home: Mapping[Var, Group],
    readers: Mapping[Var, Sequence[Var]],
    elsewhere: Collection[Var],
) -> Group:
    """The last of some groups, once the one that multiplies most is put there, if it can be."""
    last = max(sources, key=groups.index)
    heavy = max(sources, key=lambda one: one.macs)
    if heavy.macs <= last.macs:
        return last
    between = groups[groups.index(heavy) + 1 : groups.index(last) + 1]
    read = [home.get(v) for one in between for b in one.bindings for v in variables_in(b.value)]
    sums = [v for v in last.defined if dtype_of(v.ty) == "int32"]
    stays = all(home.get(reader) is last for v in sums for reader in readers.get(v, ()))
    stays &= not any(reader in elsewhere for v in heavy.defined for reader in readers.get(v, ()))
    if heavy in read or not stays:
        return last
    groups.remove(heavy)
    groups.insert(groups.index(last) + 1, heavy)
    return heavy


def in_order(items: Sequence[Group | VarBinding]) -> list[Group | VarBinding]:
    """Groups and bindings so that each stands behind what it reads, else in the order given."""
    made = {id(item): set(_defined(item)) for item in items}
    pending, result, missing = list(items), [], set().union(*made.values())
    while pending:
        ready = next(i for i in pending if not (_read(i) - made[id(i)]) & missing)
        pending.remove(ready)
        missing -= made[id(ready)]
        result.append(ready)
    return result


def _defined(item: Group | VarBinding) -> list[Var]:
    return item.defined if isinstance(item, Group) else [item.var]


def _read(item: Group | VarBinding) -> set[Var]:
    bindings = item.bindings if isinstance(item, Group) else [item]
    return {variable for binding in bindings for variable in variables_in(binding.value)}


def escaping(
    groups: list[Group], function: Function, items: Sequence[Group | VarBinding] = ()
) -> list[list[Var]]:
    """Per group, the variables that others (or the graph's outputs) read, in order.

    `items` may hold bindings that belong to no group.
    """
    home = {variable: number for number, g in enumerate(groups) for variable in g.defined}
    returned = {
        binding.value for binding in bindings_of(function) if binding.var in outputs_of(function)
    }
    needed = set(returned)
    for item in items:
        if not isinstance(item, Group):
            needed.update(variables_in(item.value))
    for number, g in enumerate(groups):
        for binding in g.bindings:
            needed |= {v for v in variables_in(binding.value) if home.get(v, number) != number}
    result = [[v for v in g.defined if v in needed] for g in groups]
    for g, variables in zip(groups, result, strict=True):
        for variable in variables if g.kind not in (PLAIN, PRODUCTS) else ():
            if dtype_of(variable.ty) == "int32":
                raise AssertionError(f"the accumulator {variable.name} leaves composite {g.layer}")
    return result
