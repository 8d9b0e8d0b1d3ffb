"""The linear layers of `main`: convolutions and matrix products whose sums a micro-kernel takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.bitpacking.call_graph import ELEMENTWISE, Caller, Graph
from stages.bitpacking.edge_layouts import nhwc
from stages.dialect import names
from stages.dialect.calls import dtype_of, shape_of
from stages.graph.bindings import bindings_of
from stages.graph.composites import TE, calls_in, is_batched, is_depthwise, is_product
from stages.kernels.operand_storage import BYTE_LIMIT, WORD_BYTES
from stages.kernels.signature import BLOCK
from stages.kinds import Array
from stages.layer_options import Algorithm, Packing
from stages.nodes import Call, Var, VarBinding
from stages.options import LegalizeOptions

LINEAR = tuple(name.removeprefix(names.PREFIX) for name in names.LEVEL_LINEAR)
"""Linear layers of integers, by their names in composites."""
FUSED = {names.PERMUTE_DIMS, names.QNN_QUANTIZE}
"""Operators that a pass over an input image may consist of."""


@dataclass(frozen=True)
class Layer(Caller):
    """A call of a composite that has a linear operator."""

    inner: Any
    """The binding of that operator, in the composite."""
    weights: Array
    """Levels [O, KH, KW, C / groups]; where weights are computed, any that may be."""
    channel_unit: int = BLOCK
    """Channels of its data are padded to a multiple of this many, as bytes."""
    lies_freely: bool = False
    """Whether rows of its data can be packed, or pixels lie close together: nothing else reads
    them so, and a pass of their own makes them."""
    algorithm: Algorithm | None = None
    """How the recipe says that it multiplies."""
    packing: Packing | None = None
    """How the recipe says that its bits are packed."""

    @property
    def call(self) -> Any:
        """The linear operator."""
        return self.inner.value

    @property
    def data(self) -> Any:
        """The variable of `main` whose values are multiplied."""
        return self.actual[self.call.args[0]]

    @property
    def is_data_read_once(self) -> bool:
        """Whether nothing else in the composite reads its data."""
        return self.reads(self.data) == 1


def layers_of(graph: Graph, options: LegalizeOptions) -> dict[Var, Layer]:
    """Variable of `main` → the linear layer that gives it, if a kernel is chosen for it."""
    found = {}
    for variable, caller in graph.callers.items():
        inner = None if caller.kind == TE else _linear_in(caller)
        if inner is None or not _has_kernel(inner.value):
            continue
        algorithm, packing = options.algorithm_of(caller.name), options.packing_of(caller.name)
        weights = _weights(graph, inner.value, caller.actual[inner.value.args[1]])
        found[variable] = layer_around(graph, caller, inner, weights, algorithm, packing)
    return found


def layer_around(
    graph: Graph,
    caller: Caller,
    inner: VarBinding,
    weights: Array,
    algorithm: Algorithm | None = None,
    packing: Packing | None = None,
) -> Layer:
    """A layer around the binding of a linear operator of a composite."""
    data = caller.actual[inner.value.args[0]]
    is_narrow = not caller.is_of_levels or _is_narrow_input(graph, data)
    return Layer(
        caller.variable,
        caller.function,
        caller.actual,
        inner,
        weights,
        channel_unit=WORD_BYTES if is_narrow else BLOCK,
        lies_freely=not caller.is_of_levels or (is_narrow and _is_fused(graph, data)),
        algorithm=algorithm,
        packing=packing,
    )


def linear_name(call: Call) -> str:
    """The name of a convolution or matrix product in the dialect, else nothing."""
    name = str(getattr(getattr(call, "op", None), "name", "")).removeprefix("relax.qnn.")
    return name if name in LINEAR else ""


def _linear_in(caller: Caller) -> Any:
    """The binding of a composite's linear operator; None if it has none."""
    bindings = bindings_of(caller.function)
    return next((b for b in bindings if linear_name(b.value) or is_product(b.value)), None)


def _has_kernel(call: Call) -> bool:
    """Whether a kernel is chosen for a linear operator: unless it is depthwise."""
    return is_product(call) or not is_depthwise(call)


def _weights(graph: Graph, call: Call, variable: Var) -> Array:
    if is_batched(call):
        _, outputs, depth = shape_of(variable.ty)
        any_byte = np.arange(-BYTE_LIMIT, BYTE_LIMIT, dtype=np.int8)
        return np.resize(any_byte, (outputs, 1, 1, depth))
    q = graph.model.params[str(variable.name)]
    return q.reshape(q.shape[0], 1, 1, -1) if q.ndim == 2 else q


def _is_narrow_input(graph: Graph, data: Var) -> bool:
    """Whether levels of a float input have less than a block of channels, and layers alone read
    them: as bytes they are padded to words."""
    producer = graph.producers.get(data)
    if producer is None or producer.kind != ELEMENTWISE or nhwc(data.ty)[2] >= BLOCK:
        return False
    inners = [(reader, _linear_in(reader)) for reader in graph.readers(data)]
    return all(
        inner is not None
        and reader.actual[inner.value.args[0]].same_as(data)
        and reader.reads(data) == 1
        for reader, inner in inners
    )


def _is_fused(graph: Graph, data: Var) -> bool:
    """Whether a pass that does nothing else makes an image of few channels, for one layer."""
    producer = graph.producers[data]
    source = producer.function.params[0].ty
    is_image = dtype_of(source) == "float32" and len(shape_of(source)) == 4
    names = {str(call.op.name) for call in calls_in(producer.function)}
    is_alone = graph.readings[data] == 1 and producer.variable.same_as(data)
    return is_alone and is_image and names <= FUSED
