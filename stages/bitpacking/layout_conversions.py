"""Composites that lay a tensor out in front of a layer, where what gives the tensor does not.

Transposes are taken along. So is what computes an image of few channels element by element
(quantizing, as a rule): an image of one to four channels becomes one word a pixel, or pixels close
together where rows of a window have fewer words so (`Geometry.as_unpadded`), in one pass from what
the user hands in.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from stages.bitpacking.call_graph import ELEMENTWISE, Caller, Graph
from stages.bitpacking.computed_matrices import matrices, transpose_of
from stages.bitpacking.edge_layouts import Layout, load, store
from stages.bitpacking.plans import LinearPlan, Plans
from stages.dialect import elementwise
from stages.dialect.calls import dtype_of, shape_of
from stages.graph.bindings import bindings_of, outputs_of, remap
from stages.graph.builder import FunctionBuilder
from stages.graph.composites import IMAGES, TE
from stages.nodes import Function, Var


class Conversions:
    """Which tensors are laid out in front of layers, and what is computed on the way."""

    def __init__(self, graph: Graph, plans: Plans) -> None:
        self.graph, self.callers, readings = graph, graph.callers, graph.readings
        linear = [plan for plan in plans.values() if isinstance(plan, LinearPlan)]
        layers = [plan for plan in linear if not plan.layer.is_of_levels]
        once = [plan for plan in layers if plan.layer.is_data_read_once]
        data = {plan.layer.data for plan in once}
        transposes = {v: transpose_of(c.function) for v, c in self.callers.items() if v in data}
        self.transposed = {v: axes for v, axes in transposes.items() if axes and readings[v] == 1}
        """Transposes that only one layer reads, as its data → their order."""
        narrow = [plan for plan in once if plan.layout.is_narrow]
        made = [p.layer.data for p in narrow if not self.is_stored_so(p.layer.data, p.layout)]
        origins = {self._origin(variable)[0] for variable in made}
        self.fused = {
            v
            for v in origins
            if readings[v] == 1 and v in self.callers and _is_elementwise(self.callers[v])
        }
        """What gives an image of few channels, and is computed where that is laid out."""
        self.matrices = matrices(graph, layers)
        packed = (variable for matrix in self.matrices.values() for variable in matrix.passed)
        self.unread = {*self.transposed, *self.fused, *packed}
        """What nothing reads any more, since it is computed on the way."""

    def is_stored_so(self, source: Var, layout: Layout) -> bool:
        """Whether a tensor that the package computes lies in memory as a layout says."""
        # What is the user's may end where it ends: kernels read some bytes further.
        if layout.is_rebased or source in self.transposed:
            return False
        is_whole = dtype_of(source.ty) == layout.dtype and layout.padded_channels == layout.channels
        return (
            not self.graph.is_given(source)
            and is_whole
            and layout.is_image
            and not any(layout.halo.sides)
        )

    def to_bytes(self, source: Var, layout: Layout) -> tuple[Any, list[Any]]:
        """The composite that lays a tensor out, and the variables of `main` that it reads."""
        origin, order = self._origin(source)
        is_image = layout.is_narrow and len(shape_of(origin.ty)) == 4
        fused = self.callers[origin] if is_image and origin in self.fused else None
        arguments = list(fused.actual.values()) if fused else [origin]
        builder = FunctionBuilder()
        inside = [
            builder.param(f"p{i}", shape_of(a.ty), dtype_of(a.ty)) for i, a in enumerate(arguments)
        ]
        value = _computed(fused.function, inside, builder) if fused else inside[0]
        if order:
            value = builder.emit(relax.op.permute_dims(value, order), "transposed")
        if len(value.ty.shape) == 2:
            shape = (1, 1, *shape_of(value.ty))
            value = builder.emit(relax.op.reshape(value, shape), "pixels")
        written = store(builder, value, layout)
        kind = IMAGES if is_image else TE
        return builder.finish([written], {"composite": kind}), arguments

    def _origin(self, source: Var) -> tuple[Any, list[int]]:
        """What a layer's data is the transpose of, and which; itself where it is none."""
        if source not in self.transposed:
            return source, []
        (origin,) = self.callers[source].actual.values()
        return origin, self.transposed[source]


def to_bits(stored: Var, inner: Layout, layout: Layout) -> Any:
    """The composite that makes planes or LUTs of bytes."""
    builder = FunctionBuilder()
    value = builder.param("p0", shape_of(stored.ty), dtype_of(stored.ty))
    written = store(builder, load(builder, value, inner), layout)
    return builder.finish([written], {"composite": ELEMENTWISE})


def _is_elementwise(caller: Caller) -> bool:
    """Whether a composite computes one image of bytes from others of its shape and scalars."""
    if caller.kind != TE:
        return False
    function, outputs = caller.function, outputs_of(caller.function)
    if len(outputs) != 1 or dtype_of(outputs[0].ty) not in ("uint8", "int8"):
        return False
    shape = shape_of(outputs[0].ty)
    calls = [b for b in bindings_of(function) if b.var not in outputs]
    same = all(shape_of(b.var.ty) == shape for b in calls)
    operands = all(shape_of(p.ty) in (shape, ()) for p in function.params)
    names = {str(b.value.op.name) for b in calls}
    return len(shape) == 4 and same and operands and names <= elementwise.ELEMENTWISE


def _computed(function: Function, operands: list[Any], builder: FunctionBuilder) -> Any:
    """What a composite of one result computes, in another one."""
    values = dict(zip(function.params, operands, strict=True))
    (output,) = outputs_of(function)
    for binding in bindings_of(function):
        if binding.var.same_as(output):
            return values[binding.value]
        values[binding.var] = builder.emit(remap(binding.value, values), "v")
    raise AssertionError("a composite returns what it bound")
