"""Which bindings form one composite where operators join by their single readers.

So they do in pre-quantized models, and in what stays float in others.

A composite ends where its value has several readers or is a graph output. What computes position
by position joins the composite its operand comes from, so a convolution takes its bias, rounding
and activation along; a reduction joins one that does nothing else. What only names the same memory
anew (a reshape) is no composite at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from tvm.ir import Call

from stages.canonicalizing.grouping import Group
from stages.dialect.calls import is_op, shape_of
from stages.dialect.elementwise import ELEMENTWISE, WHOLE
from stages.dialect.float_linear import WIDENINGS
from stages.dialect.names import QNN_RESUM
from stages.dialect.reductions_te import REDUCTIONS
from stages.graph.bindings import bindings_of, needed_bindings, outputs_of, variables_in
from stages.graph.collecting import is_collect
from stages.graph.composites import PLAIN, PRODUCTS, is_batched, is_product, is_reshape
from stages.nodes import Function, Var, VarBinding
from stages.numerics.onnx_pointwise_conv import near_ties

MAX_MEMBERS = 24
"""Longest chain of operators in one composite."""


def group_single_readers(
    function: Function, among: Collection[Var] | None = None
) -> list[Group | VarBinding]:
    """Composites and, between them, the bindings of reshapes, in execution order.

    `among` are the variables to compute; all, if there are none.
    """
    outputs = outputs_of(function)
    returned = {b.value for b in bindings_of(function) if b.var in outputs}
    readers, params = _readers(function), set(function.params)
    elsewhere = _read_elsewhere(function, among)
    items: list[Group | VarBinding] = []
    home: dict[Var, Group] = {}
    widened: dict[Var, VarBinding] = {}
    for binding in needed_bindings(function):
        if binding.var in outputs or (among is not None and binding.var not in among):
            continue
        is_widening = any(is_op(binding.value, name) for name in WIDENINGS)
        if is_widening and binding.var not in returned and binding.var not in elsewhere:
            # Done where its result is read, so that no wider tensor is stored; it has one reader.
            widened[binding.var] = binding
            continue
        is_view = is_reshape(binding.value) and binding.var not in returned
        if is_view or is_collect(binding.value):
            items += [Group(PLAIN, str(w.var.name), [w]) for w in _read(widened, binding)]
            items.append(binding)
            continue
        joined = _host(binding, home, readers, returned)
        if joined is None:
            is_kernels = is_product(binding.value) and (
                binding.value.args[1] in params or is_batched(binding.value)
            )
            joined = Group(PRODUCTS if is_kernels else PLAIN, str(binding.var.name))
            items.append(joined)
        else:
            # It runs where its last operand is ready, which may be later than its host was.
            items.remove(joined)
            items.append(joined)
        joined.bindings += [*_read(widened, binding), binding]
        home[binding.var] = joined
    return items


def _read(widened: dict[Var, VarBinding], binding: VarBinding) -> list[VarBinding]:
    """The widenings that a binding reads."""
    return [widened[v] for v in variables_in(binding.value) if v in widened]


def _host(
    binding: VarBinding, home: dict[Var, Group], readers: Counter[Var], returned: set[Var]
) -> Group | None:
    """The composite that a binding may join: that of an operand nobody else reads."""
    call = binding.value
    name = str(call.op.name) if isinstance(call, Call) else ""
    if name in REDUCTIONS:
        group = home.get(call.args[0])
        is_read_once = readers[call.args[0]] == 1 and call.args[0] not in returned
        return group if group is not None and is_read_once and _is_by_position(group) else None
    if name not in ELEMENTWISE:
        return None
    for argument in call.args:
        group = home.get(argument)
        if group is None or readers[argument] > 1 or argument in returned:
            continue
        if group.kind == PLAIN and WHOLE.get(name):
            continue  # what a table is read at must be a stored value
        if any(is_op(group.bindings[0].value, name) for name in (QNN_RESUM, near_ties.name)):
            continue
        is_last = group.bindings[-1].var.same_as(argument)
        same_shape = shape_of(argument.ty) == shape_of(binding.var.ty)
        if is_last and same_shape and len(group.bindings) < MAX_MEMBERS:
            return group
    return None


def _is_by_position(group: Group) -> bool:
    """Whether a composite computes position by position, and has room for one more."""
    names = {str(binding.value.op.name) for binding in group.bindings}
    return names <= ELEMENTWISE and len(group.bindings) < MAX_MEMBERS


def _read_elsewhere(function: Function, among: Collection[Var] | None) -> set[Var]:
    """The variables that composites of other kinds read, which cannot widen them."""
    if among is None:
        return set()
    others = (b for b in needed_bindings(function) if b.var not in among)
    return {v for binding in others for v in variables_in(binding.value)}


def _readers(function: Function) -> Counter[Var]:
    """How often each variable is read."""
    return Counter(v for b in needed_bindings(function) for v in variables_in(b.value))
