"""Which bindings form one composite: a main operator and the epilogue that follows it.

Bindings are taken in order, in any network. Each opens a composite, or joins one that computes an
operand of it. What reads an accumulator joins it; a value that may be stored ends its composite
where it has several readers or is an output. What a composite may hold depends on what it is of:

- One of levels (`level_values.py`) never stores an accumulator: whatever reads one joins, whatever
  its shape. It may have several results, so that it goes on from a value that it also stores, and
  writes levels of two widths in one pass. Of products that can change places the one with more to
  multiply is made the last: beside its products an epilogue takes less time than beside those of a
  1x1 convolution.
- Any other has one result. It takes what computes position by position, so a convolution has its
  bias, rounding and activation along; a reduction joins one that does nothing else. A widening is
  done where its result is read, so that no wider tensor is stored.

What only names the same memory anew (a reshape) is no composite at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stages.canonicalizing.group import Group, Item, in_order, read_by
from stages.canonicalizing.level_values import level_values
from stages.dialect.calls import dtype_of, is_op, shape_of
from stages.dialect.elementwise import ELEMENTWISE, WHOLE
from stages.dialect.float_linear import WIDENINGS
from stages.dialect.names import LEVEL_LINEAR, QNN_MAX_POOL2D, QNN_RESUM, QNN_SUM_POOL2D
from stages.dialect.reductions_te import REDUCTIONS
from stages.graph.bindings import bindings_of, needed_bindings, outputs_of, variables_in
from stages.graph.collecting import is_collect
from stages.graph.composites import LINEAR, TE, is_batched, is_product, is_reshape
from stages.nodes import Call, Expr, Function, Var, VarBinding
from stages.numerics.onnx_pointwise_conv import near_ties

MAIN = frozenset((*LEVEL_LINEAR, QNN_MAX_POOL2D, QNN_SUM_POOL2D))
"""Operators that open a composite of levels; so does what reads nothing that one computes."""
MAX_MEMBERS = 24
"""Longest chain of operators in a composite of others."""


def group_bindings(main: Function) -> list[Item]:
    """The composites of a legalized `main` and, between them, the bindings that are none, in
    execution order."""
    return _Grouping(main).run()


def operator_name(expr: Expr) -> str:
    """Full name of the operator that a binding calls; nothing if it calls none."""
    return str(getattr(expr.op, "name", "")) if isinstance(expr, Call) else ""


class _Grouping:
    """The items there are so far, and where each variable is computed."""

    def __init__(self, main: Function) -> None:
        outputs = outputs_of(main)
        self.bindings = [b for b in needed_bindings(main) if b.var not in outputs]
        self.returned = {b.value for b in bindings_of(main) if b.var in outputs}
        self.params = set(main.params)
        self.levels = level_values(main)
        self.readers: dict[Var, list[Var]] = {}
        """Variable → what is computed of it, once a reading."""
        for binding in needed_bindings(main):
            for variable in variables_in(binding.value):
                self.readers.setdefault(variable, []).append(binding.var)
        self.items: list[Item] = []
        self.home: dict[Var, Group] = {}
        self.widened: dict[Var, VarBinding] = {}
        """Widenings that composites of others do where they read the result."""

    def run(self) -> list[Item]:
        """All bindings in composites, or between them."""
        for binding in self.bindings:
            if binding.var in self.levels:
                self._place(binding, self._of_levels(binding))
            elif self._is_widened_by_readers(binding):
                self.widened[binding.var] = binding
            elif self._is_view(binding):
                for one in self._widenings(binding):
                    self._place(one, self._opened(TE, one))
                self.items.append(binding)
            else:
                self._place(binding, self._of_others(binding))
        # Those of levels first: another runs when none of levels can run without it.
        return in_order(sorted(self.items, key=lambda one: not _is_of_levels(one)))

    def _opened(self, kind: str, binding: VarBinding) -> Group:
        """A new composite, named after its first operator."""
        self.items.append(group := Group(kind, str(binding.var.name)))
        return group

    def _place(self, binding: VarBinding, group: Group) -> None:
        """Make a binding the last of a composite."""
        widened = [] if group.is_of_levels else self._widenings(binding)
        group.bindings += [*widened, binding]
        self.home[binding.var] = group

    def _last(self, group: Group) -> Group:
        """A composite that runs where the last operand of a new member is ready, which may be
        later than its first operator."""
        self.items.remove(group)
        self.items.append(group)
        return group

    # -- composites of levels ------------------------------------------------------------------

    def _of_levels(self, binding: VarBinding) -> Group:
        """The composite of levels that a binding joins, or a new one."""
        name, operands = operator_name(binding.value), variables_in(binding.value)
        hosts = [self.home[v] for v in operands if v in self.levels and v in self.home]
        if name in MAIN or not hosts:
            kind = name.removeprefix("relax.").replace(".", "_") if name in MAIN else "elementwise"
            return self._opened(kind, binding)
        place = self._heaviest_last(hosts)
        is_waiting = any(v not in self.levels and v not in self.params for v in operands)
        return self._last(place) if is_waiting else place

    def _heaviest_last(self, hosts: Sequence[Group]) -> Group:
        """The last of some composites, once the one that multiplies most is put there, if it can
        be."""
        last = max(hosts, key=self.items.index)
        heavy = max(hosts, key=lambda one: one.macs)
        if heavy.macs <= last.macs:
            return last
        first, end = self.items.index(heavy) + 1, self.items.index(last) + 1
        between = [i for i in self.items[first:end] if isinstance(i, Group) and i.is_of_levels]
        read = {self.home.get(v) for group in between for v in read_by(group)}
        sums = [v for v in last.defined if dtype_of(v.ty) == "int32"]
        stays = all(self.home.get(r) is last for v in sums for r in self.readers.get(v, ()))
        waiting = (r for v in heavy.defined for r in self.readers.get(v, ()))
        if heavy in read or not stays or any(r not in self.levels for r in waiting):
            return last
        self.items.remove(heavy)
        self.items.insert(self.items.index(last) + 1, heavy)
        return heavy

    # -- composites of others ------------------------------------------------------------------

    def _of_others(self, binding: VarBinding) -> Group:
        """The composite of others that a binding joins, or a new one."""
        if (host := self._host(binding)) is not None:
            return self._last(host)
        call = binding.value
        is_kernels = is_product(call) and (call.args[1] in self.params or is_batched(call))
        return self._opened(LINEAR if is_kernels else TE, binding)

    def _host(self, binding: VarBinding) -> Group | None:
        """The composite of others that a binding may join: that of an operand nobody else reads."""
        call, name = binding.value, operator_name(binding.value)
        if name in REDUCTIONS:
            group = self._ending_at(call.args[0])
            return group if group is not None and _is_by_position(group) else None
        if name not in ELEMENTWISE:
            return None
        for argument in call.args:
            group = self._ending_at(argument)
            if group is None or (group.kind == TE and WHOLE.get(name)):
                continue  # what a table is read at must be a stored value
            if any(is_op(group.bindings[0].value, name) for name in (QNN_RESUM, near_ties.name)):
                continue
            is_last = group.bindings[-1].var.same_as(argument)
            same_shape = shape_of(argument.ty) == shape_of(binding.var.ty)
            if is_last and same_shape and len(group.bindings) < MAX_MEMBERS:
                return group
        return None

    def _ending_at(self, operand: Any) -> Group | None:
        """The composite of others that gives an operand to one reader alone."""
        group = self.home.get(operand)
        is_free = group is not None and not group.is_of_levels and operand not in self.returned
        return group if is_free and len(self.readers[operand]) == 1 else None

    def _is_view(self, binding: VarBinding) -> bool:
        """Whether a binding names memory anew, or says that a batch is collected."""
        is_inside = is_reshape(binding.value) and binding.var not in self.returned
        return is_inside or is_collect(binding.value)

    def _is_widened_by_readers(self, binding: VarBinding) -> bool:
        """Whether a binding widens a tensor that composites of others read, and nothing else."""
        if not any(is_op(binding.value, name) for name in WIDENINGS):
            return False
        return binding.var not in self.returned and self.levels.isdisjoint(
            self.readers[binding.var]
        )

    def _widenings(self, binding: VarBinding) -> list[VarBinding]:
        """The widenings that a binding reads, each once."""
        read = dict.fromkeys(variables_in(binding.value))
        return [self.widened[v] for v in read if v in self.widened]


def _is_of_levels(item: Item) -> bool:
    return isinstance(item, Group) and item.is_of_levels


def _is_by_position(group: Group) -> bool:
    """Whether a composite computes position by position, and has room for one more."""
    names = {operator_name(binding.value) for binding in group.bindings}
    return names <= ELEMENTWISE and len(group.bindings) < MAX_MEMBERS
