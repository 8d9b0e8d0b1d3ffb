"""Outlining composites: `main` calls a private function for every group of operators."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from stages.canonicalizing.group import Group, escaping
from stages.canonicalizing.grouping import group_bindings
from stages.dialect.calls import dtype_of, shape_of
from stages.graph.bindings import bindings_of, outputs_of, remap, variables_in
from stages.graph.builder import FunctionBuilder, ModelBuilder
from stages.kinds import Model
from stages.nodes import Call, Function, TupleGetItem, Var


class OutlineComposites:
    """Makes a function of each group of operators; it runs as a pass, group by group.

    It is no `Pass`, which goes binding by binding: groups run in an order of their own.
    """

    def __init__(self, source: Model) -> None:
        self.source = source
        self.rewrites = 0
        self.redefined: set[str] = set()
        self.main: Function = source.module["main"]
        self.builder = ModelBuilder()
        self.functions = relax.BlockBuilder()
        self.mapping = _declared(self.builder, source)

    def run(self) -> Model:
        """The model of calls."""
        items = group_bindings(self.main)
        outputs = escaping(items, self.main)
        self.rewrites = sum(len(each.bindings) for each in items if isinstance(each, Group))
        for each in items:
            if isinstance(each, Group):
                self._outline(each, outputs[id(each)])
            else:
                value = remap(each.value, self.mapping)
                self.mapping[each.var] = self.builder.emit(value, str(each.var.name))
        names = outputs_of(self.main)
        returned = {b.var: b.value for b in bindings_of(self.main) if b.var in names}
        results = [self.mapping[returned[output]] for output in names]
        functions = dict(self.functions.get().functions)
        return self.builder.model_after(self.source, results, functions)

    def _outline(self, each: Group, results: Sequence[Var]) -> None:
        """Call the function of a group, and take single ones out of its results."""
        arguments = _arguments(each)
        function = _composite(each, arguments, results)
        # Adding a function equal to an earlier one gives the earlier one's name.
        callee = self.functions.add_func(function, each.kind)
        call = Call(callee, [self.mapping[a] for a in arguments], ret_ty=function.ret_ty)
        value = self.builder.emit_typed(call, each.layer)
        if len(results) == 1:
            self.mapping[results[0]] = value
            return
        for index, result in enumerate(results):
            self.mapping[result] = self.builder.emit(TupleGetItem(value, index), result.name)


def _declared(builder: ModelBuilder, model: Model) -> dict[Var, Var]:
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


def _arguments(each: Group) -> list[Var]:
    """What a group reads from outside, in order of first use."""
    defined, seen = set(each.defined), dict[Var, None]()
    for binding in each.bindings:
        for variable in variables_in(binding.value):
            if variable not in defined:
                seen[variable] = None
    return list(seen)


def _composite(each: Group, arguments: Sequence[Var], results: Sequence[Var]) -> Function:
    """The private function of a group; names inside say nothing about the layer."""
    builder = FunctionBuilder()
    mapping = {
        variable: builder.param(f"p{number}", shape_of(variable.ty), dtype_of(variable.ty))
        for number, variable in enumerate(arguments)
    }
    for number, binding in enumerate(each.bindings):
        mapping[binding.var] = builder.emit(remap(binding.value, mapping), f"v{number}")
    return builder.finish([mapping[result] for result in results], {"composite": each.kind})
