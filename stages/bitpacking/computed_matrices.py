"""Weights that a package computes: what packs them, transposed on the way where that is all that
comes before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from stages.bitpacking.call_graph import Graph
from stages.bitpacking.plans import LinearPlan
from stages.dialect import names
from stages.dialect.calls import dtype_of, is_op, shape_of
from stages.graph.axes import order_of
from stages.graph.bindings import bindings_of
from stages.graph.builder import FunctionBuilder
from stages.graph.composites import MATRICES, TE
from stages.kernels.computed_weights import pack_matrices
from stages.kernels.signature import KernelSignature
from stages.kernels.signature_text import signature_text
from stages.nodes import Function, Var


@dataclass(frozen=True)
class Matrix:
    """Weights [N, O, K] as they are computed."""

    source: Any
    """The variable of `main` that has them: themselves, or what they are a transpose of."""
    order: Sequence[int] = ()
    """Axes of the source in the order in which the weights have them; none without a transpose."""
    shape: tuple[int, ...] = ()
    """Shape of the weights; none without a transpose."""
    passed: tuple[Any, ...] = ()
    """The variables of `main` that nothing else reads then."""

    def packed(self, signature: KernelSignature, depth: int) -> Any:
        """The composite that packs them for a kernel, with zeros up to so many terms."""
        builder = FunctionBuilder()
        value = self._value(builder)
        call = pack_matrices(value, signature=signature_text(signature), depth=depth)
        return builder.finish([builder.emit(call, "packed")], {"composite": MATRICES})

    def offsets(self) -> Any:
        """The composite of what sums of levels less an offset lack, int32 [N, 1, 1, O]: those of
        the weights times the offset, its second parameter, and its third one."""
        builder = FunctionBuilder()
        wide = builder.emit(relax.op.astype(self._value(builder), "int32"), "wide")
        sums = builder.emit(relax.op.sum(wide, [-1]), "sums")
        count, outputs = shape_of(sums.ty)
        view = builder.emit(relax.op.reshape(sums, (count, 1, 1, outputs)), "view")
        offset, constant = (builder.param(name, (), "int32") for name in ("p1", "p2"))
        product = builder.emit(relax.op.multiply(view, offset), "product")
        total = builder.emit(relax.op.add(product, constant), "offsets")
        return builder.finish([total], {"composite": TE})

    def _value(self, builder: FunctionBuilder) -> Any:
        """The weights, of the one parameter of a composite."""
        kind = self.source.ty
        value = builder.param("p0", shape_of(kind), dtype_of(kind))
        if self.order:
            value = builder.emit(relax.op.permute_dims(value, list(self.order)), "transposed")
            if shape_of(value.ty) != self.shape:
                value = builder.emit(relax.op.reshape(value, self.shape), "matrices")
        return value


def matrices(graph: Graph, plans: Sequence[LinearPlan]) -> dict[Var, Matrix]:
    """Computed weights of layers → what they are a transpose of, for those that are one which
    nothing else reads."""
    found = {}
    for plan in plans:
        if not plan.is_computed:
            continue
        weights = plan.layer.actual[plan.layer.call.args[1]]
        passed = graph.viewed(weights)
        transpose = graph.callers.get(passed[-1])
        order = transpose_of(transpose.function) if transpose else []
        if transpose is None or not order or any(graph.readings[each] > 1 for each in passed):
            continue
        shape = shape_of(weights.ty)
        if shape_of(passed[-1].ty)[-2:] == shape[-2:]:
            (source,) = transpose.actual.values()
            found[weights] = Matrix(source, order, shape, tuple(passed))
    return found


def transpose_of(function: Function) -> list[int]:
    """The axes of the transpose that a composite is; none if it is anything else."""
    first, *others = bindings_of(function)
    is_transpose = is_op(first.value, names.PERMUTE_DIMS) and len(others) == 1
    return list(order_of(first.value)) if is_transpose else []
