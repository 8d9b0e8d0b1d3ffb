"""The walk over `main`: every composite anew, around packed tensors, in the order they were."""

from __future__ import annotations

from tvm import relax

from hw.profile import Hardware
from stages.bitpacking.choosing import choose
from stages.bitpacking.composing import Composite
from stages.bitpacking.edges import solve
from stages.bitpacking.graph import Caller, Graph
from stages.bitpacking.places import Places
from stages.bitpacking.sums import converts_slowly
from stages.kinds import Model, Table
from stages.options import LegalizeOptions
from stages.qnn.builder import outputs_of


def pack(
    model: Model, options: LegalizeOptions, offers: Table, choices: Table, hardware: Hardware
) -> Model:
    """The model with a kernel for every linear layer and a layout for every edge."""
    graph = Graph(model)
    edges = solve(graph, choose(graph, options, offers, choices), hardware)
    places, is_slow = Places(graph, edges), converts_slowly(hardware)
    for binding in graph.bindings:
        variable, expr = binding.var, binding.value
        if variable in places.mapping or variable in places.conversions.unread:
            continue
        if isinstance(expr, relax.Var):
            places.mapping[variable] = places.read(expr)
        elif variable in graph.callers:
            _composite(places, graph.callers[variable], is_slow)
        elif not isinstance(expr, relax.TupleGetItem) or expr.tuple_value in places.mapping:
            places.copy(binding)
    results = [places.mapping[output] for output in outputs_of(graph.main)]
    return places.builder.model_after(model, results, dict(places.functions.get().functions))


def _composite(places: Places, caller: Caller, is_slow: bool) -> None:
    """Call a composite anew, or as it was if neither it nor what it writes is packed."""
    edges, variable = places.edges, caller.variable
    if caller.in_blocks or variable in edges.plans or edges.of(variable).layouts:
        composite = Composite(places, caller, is_slow)
        function = composite.build()
        value = places.call(function, composite.arguments, caller.name)
        places.written(composite.written, value)
    else:
        arguments = [places.read(argument) for argument in caller.actual.values()]
        places.mapping[variable] = places.call(caller.function, arguments, caller.name)
