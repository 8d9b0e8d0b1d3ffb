"""Depthwise convolutions of integer models that a kernel with taps side by side can compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hw.isa import Isa, isa_of
from hw.profile import Hardware
from stages.bitpacking.rounding import most_of
from stages.kinds import Model
from stages.qnn.builder import bindings_of, calls_of, outputs_of
from stages.qnn.composites import PLAIN
from stages.qnn.depthwise import MAX_TAPS, PAIR_LIMIT, pack_depthwise, takes_pairs
from stages.qnn.infer import limits
from stages.qnn.rebase import SHIFT
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Depthwise:
    """One call of a plain composite around a depthwise convolution."""

    function: Any
    actual: dict[Any, Any]
    """The composite's parameter → what `main` hands in."""
    inner: Any
    """The binding of the convolution."""
    weights: Array
    """As `pack_depthwise` lays them out."""
    offset: int
    """What the kernel adds to activations."""
    correction: Array
    """What that adds to the sums, negated: int32 [C]."""
    levels: Array
    """The weights less their zero point, int32 [KH, KW, C]."""

    def most(self, constant: Array) -> Array:
        """The largest size of the sums of a channel plus a constant, int64 [C]."""
        ends = limits(dtype_of(self.inner.value.args[0].ty))
        return most_of(np.moveaxis(self.levels, -1, 0), ends, constant)


def depthwise_of(model: Model, hardware: Hardware) -> dict[Any, Depthwise]:
    """Variable of `main` → the depthwise convolution that gives it, for those kernels can have."""
    found = {}
    for binding, function in calls_of(model):
        first = bindings_of(function)[0]
        if str(function.attrs["composite"]) != PLAIN or not _is_depthwise(first.value):
            continue
        actual = dict(zip(function.params, binding.value.args, strict=True))
        made = _made(model, function, actual, first, hardware)
        if made is not None:
            found[binding.var] = made
    return found


def _is_depthwise(call: Any) -> bool:
    """Whether a call is a convolution of every channel with weights of its own."""
    if not is_op(call, "relax.qnn.direct_conv2d"):
        return False
    attrs, data, weight = attributes(call), call.args[0], shape_of(call.args[1].ty)
    channels = shape_of(data.ty)[3]
    is_simple = attrs["dtype"] == "int32" and attrs["data_zero_point"] == 0
    is_byte = dtype_of(data.ty) in ("int8", "uint8") and weight[0] * weight[1] <= MAX_TAPS
    return is_simple and is_byte and attrs["groups"] == channels == weight[3] and weight[2] == 1


def _made(
    model: Model, function: Any, actual: dict[Any, Any], inner: Any, hardware: Hardware
) -> Depthwise | None:
    """The convolution packed for the processor; None where its kernel cannot have it."""
    data, weight = inner.value.args
    source, stored = actual.get(data), actual.get(weight)
    inputs = list(model.module["main"].params)
    # Kernels read some bytes behind a picture, and the user's may end where it ends.
    if stored is None or str(stored.name) not in model.params or source is None or source in inputs:
        return None
    if not _is_simple(function, inner):
        return None
    levels = model.params[str(stored.name)][:, :, 0].astype(np.int32)
    levels = levels - attributes(inner.value)["weight_zero_point"]
    isa, dtype = isa_of(hardware), dtype_of(data.ty)
    packed, offset = pack_depthwise(levels, 1, "int8"), -SHIFT if dtype == "uint8" else 0
    if not takes_pairs(isa) or np.abs(levels).max(initial=0) > PAIR_LIMIT:
        taps = taps_for(isa, levels)
        if taps is None:
            return None
        packed, offset = taps, SHIFT if taps.dtype == np.int8 and dtype == "int8" else 0
    correction = (-offset * levels.sum(axis=(0, 1))).astype(np.int32)
    return Depthwise(function, actual, inner, packed, offset, correction, levels)


def taps_for(isa: Isa, levels: Array) -> Array | None:
    """Weights [KH, KW, C], zero point taken off, as the instruction set multiplies them; None if
    it cannot."""
    dot = isa.dot_for(int(levels.min(initial=0)), int(levels.max(initial=0)))
    if dot is None:
        return None
    _, _, weights = dot.operands
    return pack_depthwise(levels, weights.lanes // dot.result.lanes, f"int{weights.bits}")


def _is_simple(function: Any, inner: Any) -> bool:
    """Whether what follows a convolution computes position by position."""
    outputs = outputs_of(function)
    return all(
        shape_of(binding.var.ty) == shape_of(inner.var.ty)
        for binding in bindings_of(function)
        if binding.var not in outputs
    )
