"""The packed model under construction: where each variable of `main` lies in it, as the user sees
it or in layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from stages.bitpacking.call_graph import Graph
from stages.bitpacking.computed_matrices import Matrix
from stages.bitpacking.edge_layouts import Layout, layout_of
from stages.bitpacking.edges import Edges
from stages.bitpacking.layout_conversions import Conversions, to_bits
from stages.bitpacking.plans import LinearPlan, Plan
from stages.dialect.calls import attributes, dtype_of, shape_of
from stages.graph.builder import FunctionBuilder
from stages.graph.composites import TILES
from stages.graph.passes import Pass
from stages.kernels.packed_winograd import tiles_for, to_tiles
from stages.kernels.packing import round_up
from stages.nodes import Call, Function, TupleGetItem, Var


class PackedModelBuilder(Pass):
    """Writes the packed model: composites note their results here, and read what others noted.

    What is asked for in a layout that no composite writes is laid out once, for all who ask.
    """

    def __init__(self, graph: Graph, edges: Edges) -> None:
        super().__init__(graph.model)
        self.graph, self.edges = graph, edges
        self.functions = relax.BlockBuilder()
        self.conversions = Conversions(graph, edges.plans)
        self._stored: dict[tuple[Any, Layout], Any] = {}
        self._tiles: dict[tuple[Any, ...], Any] = {}
        """(Stored bytes, where the first window begins, the transform) → their tiles."""

    def call(self, function: Function, arguments: Sequence[Any], name: str) -> Any:
        """A call of a composite in the new `main`; equal composites are one function."""
        callee = self.functions.add_func(function, str(function.attrs["composite"]))
        return self.builder.emit_typed(Call(callee, arguments, ret_ty=function.ret_ty), name)

    def note_results(self, results: Sequence[tuple[Var, Layout | None]], value: Var) -> None:
        """Note what a composite gives: variables of `main`, in a layout or as users see them."""
        for index, (variable, layout) in enumerate(results):
            part = value
            if len(results) > 1:
                name = f"{variable.name}.{layout.form if layout else 'user'}"
                part = self.builder.emit(TupleGetItem(value, index), name)
            if layout is None:
                self.mapping[variable] = part
            else:
                self._stored[variable, layout] = part

    def stored_or_read(self, variable: Var) -> tuple[Any, Layout | None]:
        """A variable as operators behind sums read it: stored in a layout, which comes with it, or
        as the user sees it, with None."""
        requests = self.edges.of(variable)
        if requests.is_stored_as_user or requests.inside is None:
            return self.read(variable), None
        return self._stored[variable, requests.inside], requests.inside

    def stored(self, variable: Var, layout: Layout, layer: str) -> Any:
        """A variable in a layout, as its composite writes it, or else laid out here."""
        key = variable, layout
        if key not in self._stored:
            self._stored[key] = self._laid_out(variable, layout, layer)
        return self._stored[key]

    def _laid_out(self, variable: Var, layout: Layout, layer: str) -> Any:
        name = f"{layer}.{layout.form}"
        if layout.form not in ("bytes", "floats"):
            inner = layout_of(variable, "bytes")
            data = self.stored(variable, inner, layer)
            return self.call(to_bits(data, inner, layout), [data], name)
        if self.conversions.is_stored_so(variable, layout):
            view = relax.op.reshape(self.read(variable), layout.shape)
            return self.builder.emit(view, f"{layer}.bytes")
        function, arguments = self.conversions.to_bytes(variable, layout)
        return self.call(function, [self.read(each) for each in arguments], f"{layer}.bytes")

    def data(self, plan: Plan) -> Any:
        """What the kernel of a layer reads: its data, or transformed tiles of them, which are made
        once for all layers that read them."""
        if plan.layout is None:
            return self.read(plan.layer.data)
        layer = plan.layer.name
        stored = self.stored(plan.layer.data, plan.layout, layer)
        if not isinstance(plan, LinearPlan) or not plan.kernel.is_transformed:
            return stored
        window = plan.window
        key = (stored, *plan.origin, window.transform)
        if key not in self._tiles:
            builder = FunctionBuilder()
            data = builder.param("p0", shape_of(stored.ty), dtype_of(stored.ty))
            tiles = to_tiles(
                data,
                origin=plan.origin,
                output=list(window.output),
                strides=list(window.strides),
                tile=window.tile,
            )
            function = builder.finish([builder.emit(tiles, "tiles")], {"composite": TILES})
            self._tiles[key] = self.call(function, [stored], tiles_for(layer))
        return self._tiles[key]

    def weights(self, plan: Plan) -> Any:
        """The weights of a layer, packed when the package is built or, if computed, by it."""
        name = f"{plan.layer.name}.weights"
        if not isinstance(plan, LinearPlan) or not plan.is_computed:
            return self.builder.tensor(name, plan.packed_weights)
        found, signature = self._matrix(plan), plan.signature
        depth = round_up(plan.layout.padded_channels, signature.channels_per_word)
        return self.call(found.packed(signature, depth), [self.read(found.source)], name)

    def offsets(self, plan: LinearPlan) -> Any:
        """What sums of levels less an offset lack, where weights are computed: [N, 1, 1, O]."""
        call, offset, layer = plan.layer.call, plan.signature.offset, plan.layer.name
        found = self._matrix(plan)
        base = attributes(call)["weight_zero_point"].whole
        constant = -offset * base * shape_of(call.args[1].ty)[-1]
        operands = [
            self.builder.tensor(f"{layer}.{name}", np.asarray(value, np.int32))
            for name, value in (("offset", offset), ("constant", constant))
        ]
        return self.call(found.offsets(), [self.read(found.source), *operands], f"{layer}.offsets")

    def _matrix(self, plan: LinearPlan) -> Matrix:
        """The computed weights of a layer."""
        source = plan.layer.actual[plan.layer.call.args[1]]
        return self.conversions.matrices.get(source, Matrix(source))
