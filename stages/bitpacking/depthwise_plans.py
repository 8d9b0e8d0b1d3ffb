"""Depthwise convolutions that a kernel with taps side by side can compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hw.isa import Isa, isa_of
from hw.profile import Hardware
from stages.bitpacking.call_graph import Caller, Graph
from stages.bitpacking.edge_layouts import Layout, layout_of
from stages.bitpacking.linear_layers import Layer, layer_around, linear_name
from stages.bitpacking.sums import most_of
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of
from stages.dialect.dtypes import limits
from stages.dialect.padding import Padding
from stages.graph.bindings import bindings_of, outputs_of
from stages.graph.composites import TE, is_depthwise
from stages.graph.sum_bounds import bounds_of_sums
from stages.kernels import operator_names
from stages.kernels.byte_shift import SHIFT
from stages.kernels.packed_depthwise import (
    MAX_TAPS,
    PAIR_LIMIT,
    pack_depthwise,
    packed_depthwise,
    takes_pairs,
)
from stages.kernels.signature import BLOCK
from stages.kinds import Array
from stages.nodes import Call, Function, Var, VarBinding


@dataclass(frozen=True)
class DepthwisePlan:
    """A depthwise convolution, its packed weights, and how its data lie."""

    layer: Layer
    """With numerators as weights, int32 [C, KH, KW, 1]."""
    packed_weights: Array
    """The layer's weights as `pack_depthwise` lays them out."""
    correction: Array
    """What the sums lack, int32 [C]: for what is added to activations, or is their zero point."""
    offset: int = 0
    """What the kernel adds to activations."""
    layout: Layout | None = None
    """How its data lie; None for as the user sees them."""

    def most(self, constant: Array) -> Array:
        """The largest size of the sums of a channel plus a constant, int64 [C]."""
        ends = limits(dtype_of(self.layer.call.args[0].ty))
        return most_of(bounds_of_sums(self.layer.weights, ends), constant)

    def corrected(self) -> tuple[Array, dict[str, Any]]:
        """The bias, int32 [Cp], and what else the kernel is told."""
        attrs = attributes(self.layer.call)
        place: dict[str, Any] = {"strides": attrs["strides"], "offset": self.offset}
        if self.layout is not None:
            place["origin"] = self.layout.halo.origin(Padding.of(attrs).sides)
            place["output"] = list(shape_of(self.layer.call.ty)[1:3])
        bias = np.pad(self.correction, (0, -len(self.correction) % BLOCK))
        return bias, {**place, "dilation": attrs.get("dilation", [1, 1])}

    def convolve(self, data: Var, weights: Var, bias: Var, **attrs: Any) -> Any:
        """The call of the packed depthwise operator, on packed operands."""
        window = list(self.layer.weights.shape[1:3])
        return packed_depthwise(data, weights, bias, window=window, **attrs)


def depthwise_of(graph: Graph, hardware: Hardware) -> dict[Var, DepthwisePlan]:
    """Variable of `main` → the depthwise convolution that gives it, for those kernels can have."""
    isa = isa_of(hardware)
    found = {
        variable: (_on_levels if caller.is_of_levels else _on_bytes)(graph, caller, isa)
        for variable, caller in graph.callers.items()
    }
    return {variable: plan for variable, plan in found.items() if plan is not None}


def _on_levels(graph: Graph, caller: Caller, isa: Isa) -> DepthwisePlan | None:
    """The convolution of levels that a composite has, with a halo of what their zero is."""
    inners = bindings_of(caller.function)
    inner = next((b for b in inners if linear_name(b.value) and is_depthwise(b.value)), None)
    if inner is None:
        return None
    attrs, (_, weight) = attributes(inner.value), inner.value.args
    q = graph.model.params[str(caller.actual[weight].name)].astype(np.int32)
    layer, zero_point = layer_around(graph, caller, inner, q), attrs["data_zero_point"]
    taps = _taps(isa, q)
    assert taps is not None, "every instruction set multiplies bytes"
    halo = Padding.of(attrs).halo(zero_point)
    layout = layout_of(layer.data, "bytes", halo=halo, channel_unit=layer.channel_unit)
    return DepthwisePlan(layer, taps, -zero_point.whole * _sums(q), layout=layout)


def _on_bytes(graph: Graph, caller: Caller, isa: Isa) -> DepthwisePlan | None:
    """The convolution that a TE composite begins with; None where no kernel can have it."""
    inner = bindings_of(caller.function)[0]
    is_alone = caller.kind == TE and _is_depthwise(inner.value)
    if not is_alone or not _is_by_position(caller.function, inner):
        return None
    source, stored = (caller.actual.get(argument) for argument in inner.value.args)
    # Kernels read some bytes behind an image, and the user's may end where it ends.
    if stored is None or source is None or source in list(graph.main.params):
        return None
    if (q := graph.tensor(stored)) is None:
        return None
    q = (
        q.transpose(3, 0, 1, 2).astype(np.int32)
        - attributes(inner.value)["weight_zero_point"].whole
    )
    dtype = dtype_of(inner.value.args[0].ty)
    is_paired = takes_pairs(isa) and np.abs(q).max(initial=0) <= PAIR_LIMIT
    taps = _packed(q, 1, "int8") if is_paired else _taps(isa, q)
    if taps is None:
        return None
    if is_paired:
        offset = -SHIFT if dtype == "uint8" else 0
    else:
        offset = SHIFT if taps.dtype == np.int8 and dtype == "int8" else 0
    return DepthwisePlan(layer_around(graph, caller, inner, q), taps, -offset * _sums(q), offset)


def _sums(q: Array) -> Array:
    """Those of the weights of each channel, int32 [C]."""
    return q.sum(axis=(1, 2, 3)).astype(np.int32)


def _packed(q: Array, group: int, dtype: str) -> Array:
    """Weights [C, KH, KW, 1] with so many taps side by side."""
    return pack_depthwise(q[..., 0].transpose(1, 2, 0), group, dtype)


def _taps(isa: Isa, q: Array) -> Array | None:
    """Weights as the instruction set multiplies them; None if it cannot."""
    dot = isa.dot_for(int(q.min(initial=0)), int(q.max(initial=0)))
    if dot is None:
        return None
    _, _, weights = dot.operands
    return _packed(q, weights.lanes // dot.result.lanes, f"int{weights.bits}")


def _is_depthwise(call: Call) -> bool:
    """Whether a call is a convolution of every channel with weights of its own."""
    if not is_op(call, operator_names.QNN_DIRECT_CONV2D):
        return False
    attrs, data, weight = attributes(call), call.args[0], shape_of(call.args[1].ty)
    channels = shape_of(data.ty)[3]
    is_simple = attrs["dtype"] == "int32" and not attrs["data_zero_point"]
    is_byte = dtype_of(data.ty) in ("int8", "uint8") and weight[0] * weight[1] <= MAX_TAPS
    return is_simple and is_byte and attrs["groups"] == channels == weight[3] and weight[2] == 1


def _is_by_position(function: Function, inner: VarBinding) -> bool:
    """Whether what follows a convolution computes position by position."""
    outputs = outputs_of(function)
    return all(
        shape_of(binding.var.ty) == shape_of(inner.var.ty)
        for binding in bindings_of(function)
        if binding.var not in outputs
    )
