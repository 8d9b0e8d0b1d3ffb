"""Packing composites: every call in `main` becomes one of a composite on packed tensors."""

from __future__ import annotations

from collections.abc import Sequence

from hw.profile import Hardware
from stages.bitpacking.call_graph import Caller, Graph
from stages.bitpacking.composite_packer import CompositePacker
from stages.bitpacking.edges import solve
from stages.bitpacking.kernel_choice import choose
from stages.bitpacking.packed_model_builder import PackedModelBuilder
from stages.bitpacking.sums import converts_slowly
from stages.kinds import Model, Table
from stages.nodes import Expr, TupleGetItem, Var, VarBinding
from stages.options import LegalizeOptions


class PackComposites(PackedModelBuilder):
    """Calls composites anew, whose kernels and layouts are chosen before the first is written."""

    def __init__(
        self,
        source: Model,
        options: LegalizeOptions,
        candidates: Table,
        choices: Table,
        hardware: Hardware,
    ) -> None:
        graph = Graph(source)
        edges = solve(graph, choose(graph, options, candidates, choices), hardware)
        super().__init__(graph, edges)
        self.converts_slowly = converts_slowly(hardware)

    def bindings(self) -> Sequence[VarBinding]:
        """The bindings that are not computed on the way to a layout."""
        return [b for b in self.graph.bindings if b.var not in self.conversions.unread]

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """The call of a packed composite, which gives all results of the old one."""
        variable, expr = binding.var, binding.value
        if variable in self.graph.callers:
            self._call(self.graph.callers[variable])
            is_stored = variable not in self.mapping
        else:
            is_stored = isinstance(expr, TupleGetItem) and expr.tuple_value not in self.mapping
        if is_stored:  # in layouts alone, or result by result
            self.leave_out(variable)
        return None

    def finish(self, results: Sequence[Var]) -> Model:
        """The new model, with the composites that it calls."""
        functions = dict(self.functions.get().functions)
        return self.builder.model_after(self.source, results, functions)

    def _call(self, caller: Caller) -> None:
        """Call a composite anew, or as it was if neither it nor what it writes is packed."""
        variable, edges = caller.variable, self.edges
        if caller.is_of_levels or variable in edges.plans or edges.of(variable).layouts:
            packer = CompositePacker(self, caller, self.converts_slowly)
            function = packer.build()
            value = self.call(function, packer.arguments, caller.name)
            self.note_results(packer.written, value)
        else:
            arguments = [self.read(argument) for argument in caller.actual.values()]
            self.mapping[variable] = self.call(caller.function, arguments, caller.name)
