"""Of what kind a layer is, and how much it multiplies: of our modules and of TensorFlow Lite's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stages.dialect import names
from stages.dialect.calls import attributes, is_op
from stages.graph.bindings import bindings_of, calls_of
from stages.kernels import operator_names
from stages.kernels.operation_counts import macs_of
from stages.kernels.packed_conv2d import is_convolution

FIRST, DEPTHWISE, DENSE = "first convolution", "depthwise", "dense"
ATTENTION, OTHER, RUNTIME = "attention", "add, pool and others", "runtime"
_TRANSFORM = ".tiles"
"""What stands behind a convolution's name in that of the call that transforms its input."""
_BETWEEN_ACTIVATIONS = (names.MATMUL, names.SOFTMAX)


@dataclass(frozen=True)
class LayerOfKind:
    """A layer by its name, as errors and recipes call it."""

    name: str
    kind: str
    macs: int = 0


def of_convolution(window: Sequence[int], pixels: int) -> str:
    """Return the kind of a convolution that is neither first nor depthwise."""
    if tuple(window) == (1, 1) and pixels == 1:
        return DENSE
    return f"{window[0]}x{window[1]}"


def of_model(model: Any) -> list[LayerOfKind]:
    """Return the layers of a bit-packed model in order, each a call of the package."""
    found, is_first = [], True
    for binding, function in calls_of(model):
        products = list(_products(function))
        kind = products[0][0] if products else _others(function)
        macs = sum(n for _, n in products)
        if macs and is_first:
            kind, is_first = FIRST if kind not in (DENSE, ATTENTION) else kind, False
        found.append(LayerOfKind(str(binding.var.name), kind, macs))
    kinds = {layer.name: layer.kind for layer in found}
    return [
        LayerOfKind(layer.name, kinds.get(of(layer.name), layer.kind), layer.macs)
        for layer in found
    ]


def of(call: str) -> str:
    """Return the layer that a call belongs to: a Winograd transform to the convolution's."""
    return call.removesuffix(_TRANSFORM)


def _products(function: Any) -> Iterator[tuple[str, int]]:
    """Yield kind and multiply-accumulates of each product in a kernel."""
    for inner in bindings_of(function):
        call = inner.value
        macs = macs_of(call)
        if not macs:
            continue
        attrs = attributes(call) if is_convolution(call) else {}
        if (
            is_op(call, operator_names.QNN_PACKED_DEPTHWISE)
            or attrs.get("groups", 1) == attrs.get("channels", (0,))[0]
        ):
            yield DEPTHWISE, macs
        elif attrs:
            height, width = attrs["output"]
            yield of_convolution((attrs["rows"], attrs["window"][1]), height * width), macs
        else:
            yield ATTENTION if is_op(call, _BETWEEN_ACTIVATIONS[0]) else DENSE, macs


def _others(function: Any) -> str:
    calls = [inner.value for inner in bindings_of(function)]
    is_of_attention = any(is_op(call, name) for call in calls for name in _BETWEEN_ACTIVATIONS)
    return ATTENTION if is_of_attention else OTHER
