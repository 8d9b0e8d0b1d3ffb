"""Canonicalizing: the graph becomes calls of composites, one main operator with its epilogue each.

Afterwards `main` only calls private functions marked `composite` and takes their outputs apart.
A composite is one kernel, one unit of tuning and of caching: its tensors are parameters, and two
layers of equal form call the same function.
"""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir import Call

from stages.canonicalizing.copy_shared_outputs import owned
from stages.canonicalizing.grouping import Group, escaping, group, in_order
from stages.canonicalizing.islands import islands
from stages.canonicalizing.single_readers import group_plain
from stages.dialect.calls import dtype_of, shape_of
from stages.graph.bindings import bindings_of, outputs_of, remap, variables_in
from stages.graph.builder import FunctionBuilder, ModelBuilder
from stages.graph.collecting import is_collect
from stages.graph.composites import is_plain, is_reshape
from stages.kinds import Model

__all__ = ["check", "run"]


def run(*, model: Model) -> Model:
    """Outline every main operator with its epilogue; equal composites are one function."""
    model, copies = owned(model)
    main = model.module["main"]
    items = group_plain(main) if is_plain(model) else _around_islands(main, copies)
    groups = [item for item in items if isinstance(item, Group)]
    outputs = dict(zip(map(id, groups), escaping(groups, main, items), strict=True))
    builder = ModelBuilder()
    mapping = _declare(builder, model)
    functions = relax.BlockBuilder()
    for each in items:
        if not isinstance(each, Group):
            mapping[each.var] = builder.emit(remap(each.value, mapping), str(each.var.name))
            continue
        arguments, results = _arguments(each), outputs[id(each)]
        function = _composite(each, arguments, results)
        # Adding a function equal to an earlier one gives the earlier one's name.
        callee = functions.add_func(function, each.kind)
        call = Call(callee, [mapping[a] for a in arguments], ret_ty=function.ret_ty)
        value = builder.emit_typed(call, each.layer)
        if len(results) == 1:
            mapping[results[0]] = value
            continue
        for index, result in enumerate(results):
            mapping[result] = builder.emit(relax.TupleGetItem(value, index), result.name)
    returned = {b.var: b.value for b in bindings_of(main) if b.var in outputs_of(main)}
    results = [mapping[returned[output]] for output in outputs_of(main)]
    result = builder.model_after(model, results, dict(functions.get().functions))
    check(result)
    return result


def _around_islands(main: Any, copies: set[Any]) -> list[Group | Any]:
    """The composites of a network with quantizers, and those of what stays float in it."""
    apart = islands(main) | copies
    items: list[Group | Any] = [*group(main, apart)]
    return in_order([*items, *group_plain(main, apart)]) if apart else items


def check(model: Model) -> None:
    """Raise AssertionError unless `main` holds calls of composites, and what only names memory."""
    main = model.module["main"]
    for binding in bindings_of(main):
        value = binding.value
        if isinstance(value, (relax.TupleGetItem, relax.Var)):
            continue
        if is_reshape(value) or is_collect(value):
            continue
        assert isinstance(value, Call) and isinstance(value.op, relax.GlobalVar), binding.var.name
        assert "composite" in model.module[value.op].attrs, value.op.name_hint


def _declare(builder: ModelBuilder, model: Model) -> dict[Any, Any]:
    """Graph inputs and tensors, as they were."""
    main, mapping = model.module["main"], {}
    inputs = int(main.attrs["num_input"])
    for number, parameter in enumerate(main.params):
        shape, dtype = shape_of(parameter.ty), dtype_of(parameter.ty)
        if number < inputs:
            mapping[parameter] = builder.input(parameter.name, shape, dtype)
        else:
            tensor = model.params[parameter.name]
            mapping[parameter] = builder.tensor(parameter.name, tensor, dtype)
    return mapping


def _arguments(each: Group) -> list[Any]:
    """What a group reads from outside, in order of first use."""
    defined, seen = set(each.defined), dict[Any, None]()
    for binding in each.bindings:
        for variable in variables_in(binding.value):
            if variable not in defined:
                seen[variable] = None
    return list(seen)


def _composite(each: Group, arguments: list[Any], results: list[Any]) -> Any:
    """The private function of a group; names inside say nothing about the layer."""
    builder = FunctionBuilder()
    mapping = {
        variable: builder.param(f"p{number}", shape_of(variable.ty), dtype_of(variable.ty))
        for number, variable in enumerate(arguments)
    }
    for number, binding in enumerate(each.bindings):
        mapping[binding.var] = builder.emit(remap(binding.value, mapping), f"v{number}")
    return builder.finish([mapping[result] for result in results], {"composite": each.kind})
