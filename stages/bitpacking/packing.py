"""The walk over `main`: every composite anew, around packed tensors, in the order they were."""

from __future__ import annotations

from typing import Any

from tvm import relax

from hw.profile import Hardware
from stages.bitpacking.choosing import choose
from stages.bitpacking.composing import Composite
from stages.bitpacking.edges import solve
from stages.bitpacking.layers import Caller
from stages.bitpacking.places import Places
from stages.bitpacking.sums import converts_slowly
from stages.kinds import Model, Table
from stages.options import LegalizeOptions
from stages.qnn.builder import bindings_of, outputs_of


def pack(
    model: Model, options: LegalizeOptions, offers: Table, choices: Table, hardware: Hardware
) -> Model:
    """The model with a kernel for every linear layer and a layout for every edge."""
    chosen = choose(model, options, offers, choices)
    places = Places(model, solve(model, chosen, hardware))
    return _Walk(places, converts_slowly(hardware)).run()


class _Walk:
    """One pass over the bindings of `main`."""

    def __init__(self, places: Places, converts_slowly: bool) -> None:
        self.places, self.converts_slowly = places, converts_slowly
        self.bindings = bindings_of(places.main)
        self.parts: dict[Any, dict[int, Any]] = {}
        """What `main` takes out of a composite's results, by position."""
        for binding in self.bindings:
            if isinstance(value := binding.value, relax.TupleGetItem):
                self.parts.setdefault(value.tuple_value, {})[value.index] = binding.var

    def run(self) -> Model:
        """The packed model."""
        places, callers = self.places, self.places.edges.callers
        skipped = set(places.conversions.unread)
        for binding in self.bindings:
            variable, expr = binding.var, binding.value
            if variable in skipped or variable in places.mapping:
                continue
            if isinstance(expr, relax.Var):
                places.mapping[variable] = places.read(expr)
            elif variable in callers:
                skipped |= self._composite(callers[variable])
            else:
                places.copy(binding)
        results = [places.mapping[output] for output in outputs_of(places.main)]
        functions = dict(places.functions.get().functions)
        return places.builder.model_after(places.source, results, functions)

    def _composite(self, caller: Caller) -> set[Any]:
        """Call a composite, as it was or anew; return what `main` need not take out of it."""
        places, variable = self.places, caller.variable
        wanted = places.edges.requests.get(variable)
        is_anew = (
            caller.in_blocks or variable in places.edges.plans or bool(wanted and wanted.layouts)
        )
        if not is_anew:
            arguments = [places.read(argument) for argument in caller.actual.values()]
            places.mapping[variable] = places.call(caller.function, arguments, caller.name)
            return set()
        fields = self.parts.get(variable, {0: variable})
        results = [fields[index] for index in sorted(fields)]
        composite = Composite(places, caller, results, self.converts_slowly)
        function = composite.build()
        places.written(composite.written, places.call(function, composite.arguments, caller.name))
        return set(results)
