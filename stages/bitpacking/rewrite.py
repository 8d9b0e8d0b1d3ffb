"""Rewrite every composite from logical tensors to packed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from hw.isa import isa_of
from hw.profile import Hardware
from stages.bitpacking.choosing import choose
from stages.bitpacking.composing import AnyForm, Composite
from stages.bitpacking.edges import Edges, solve
from stages.bitpacking.pools import pool_planes
from stages.bitpacking.tiles import transforming
from stages.bitpacking.window import Window
from stages.kinds import Model, Table
from stages.options import LegalizeOptions
from stages.qnn.builder import (
    ModelBuilder,
    bindings_of,
    composite_of,
    outputs_of,
    remap,
    variables_in,
)
from stages.qnn.composites import TILES, is_apart
from stages.qnn.registry import dtype_of, shape_of
from stages.qnn.transformed import tiles_for

Array = np.ndarray[Any, Any]


class Packer:
    """The walk over `main`: one new composite per call, with its own tensors."""

    def __init__(
        self,
        model: Model,
        options: LegalizeOptions,
        offers: Table,
        choices: Table,
        hardware: Hardware,
    ) -> None:
        self.source, self.options, self.isa = model, options, isa_of(hardware)
        self.main = model.module["main"]
        self.chosen = choose(model.module, model.params, options, offers, choices)
        self.edges: Edges = solve(model.module, self.chosen)
        self.pools_of_planes = pool_planes(model.module, self.edges)
        self.builder = ModelBuilder()
        self.functions = relax.BlockBuilder()
        self.stored: dict[tuple[Any, AnyForm], Any] = {}
        self.tensors: dict[Any, Array] = {}
        self.tiles: dict[tuple[Any, ...], Any] = {}
        """(Stored bytes, where the first window begins) → their transformed tiles."""

    def run(self) -> Model:
        """The packed model."""
        inputs = int(self.main.attrs["num_input"])
        for parameter in self.main.params[:inputs]:
            self.stored[parameter, "float"] = self.builder.input(
                parameter.name, shape_of(parameter.ty), dtype_of(parameter.ty)
            )
        for parameter in self.main.params[inputs:]:
            self.tensors[parameter] = self.source.params[parameter.name]
        bindings = bindings_of(self.main)
        parts: dict[Any, dict[int, Any]] = {}
        for binding in bindings:
            if isinstance(binding.value, relax.TupleGetItem):
                parts.setdefault(binding.value.tuple_value, {})[binding.value.index] = binding.var
        returned = {b.var: b.value for b in bindings if b.var in outputs_of(self.main)}
        for binding in bindings:
            function = composite_of(self.source.module, binding.value)
            if function is not None and not is_apart(function):
                fields = parts.get(binding.var, {0: binding.var})
                self._call(binding, [fields[index] for index in sorted(fields)])
            elif isinstance(binding.value, Call):
                self._keep(binding, function)
        results = [self.stored[returned[output], "float"] for output in outputs_of(self.main)]
        functions = dict(self.functions.get().functions)
        return self.builder.model_after(self.source, results, functions)

    def _call(self, binding: Any, results: list[Any]) -> None:
        composite = Composite(self, binding, results)
        function = composite.build()
        kind = str(function.attrs["composite"])
        callee = self.functions.add_func(function, kind)
        call = Call(callee, composite.arguments, ret_ty=function.ret_ty)
        value = self.builder.emit_typed(call, binding.var.name)
        if len(composite.written) == 1:
            self.stored[composite.written[0]] = value
            return
        for index, (variable, form) in enumerate(composite.written):
            self.stored[variable, form] = self.builder.emit(
                relax.TupleGetItem(value, index), f"{variable.name}.{form}"
            )

    def _keep(self, binding: Any, function: Any) -> None:
        """A composite of what stays float, or floats named anew, as it was."""
        if function is None:
            value = remap(binding.value, {v: self._float(v) for v in variables_in(binding.value)})
            result = self.builder.emit(value, binding.var.name)
        else:
            callee = self.functions.add_func(function, str(function.attrs["composite"]))
            arguments = [self._float(argument) for argument in binding.value.args]
            call = Call(callee, arguments, ret_ty=function.ret_ty)
            result = self.builder.emit_typed(call, binding.var.name)
        self.stored[binding.var, "float"] = result

    def _float(self, variable: Any) -> Any:
        """What a variable of `main` is, a float or the tensor of a layer."""
        if (variable, "float") not in self.stored:
            value, dtype = self.tensors[variable], dtype_of(variable.ty)
            tensor = self.builder.tensor(str(variable.name), value, dtype)
            self.stored[variable, "float"] = tensor
        return self.stored[variable, "float"]

    def transformed(self, stored: Any, origin: Sequence[int], window: Window, layer: str) -> Any:
        """Transformed tiles of stored bytes, made once for all products that read them."""
        key = (stored, *origin, window.transform)
        if key not in self.tiles:
            function = transforming(stored, origin, window)
            callee = self.functions.add_func(function, TILES)
            call = Call(callee, [stored], ret_ty=function.ret_ty)
            self.tiles[key] = self.builder.emit_typed(call, tiles_for(layer))
        return self.tiles[key]
