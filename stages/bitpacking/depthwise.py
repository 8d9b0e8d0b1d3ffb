"""Depthwise convolutions that a kernel with taps side by side can compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hw.isa import Isa, isa_of
from hw.profile import Hardware
from stages.bitpacking.layers import Caller, linear_name
from stages.bitpacking.layouts import Layout, layout_of
from stages.bitpacking.sums import most_of
from stages.bitpacking.window import fill_of
from stages.kinds import Model
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.composites import PLAIN, has_own
from stages.qnn.depthwise import MAX_TAPS, PAIR_LIMIT, pack_depthwise, packed_depthwise, takes_pairs
from stages.qnn.infer import limits
from stages.qnn.rebase import SHIFT
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Depthwise:
    """A composite around a depthwise convolution, and how its data lie."""

    layer: Caller
    inner: Any
    """The binding of the convolution."""
    levels: Array
    """The weights less their zero point, int32 [KH, KW, C]."""
    weights: Array
    """As `pack_depthwise` lays them out."""
    correction: Array
    """What the sums lack, int32 [C]: for what is added to activations, or is their zero point."""
    offset: int = 0
    """What the kernel adds to activations."""
    layout: Layout | None = None
    """How its data lie; None for as the user sees them."""

    @property
    def data(self) -> Any:
        """The variable of `main` that it reads."""
        return self.layer.actual[self.inner.value.args[0]]

    def most(self, constant: Array) -> Array:
        """The largest size of the sums of a channel plus a constant, int64 [C]."""
        ends = limits(dtype_of(self.inner.value.args[0].ty))
        return most_of(np.moveaxis(self.levels, -1, 0), ends, constant)

    def convolve(self, data: Any, weights: Any, bias: Any) -> Any:
        """The call of its kernel."""
        attrs = attributes(self.inner.value)
        place: dict[str, Any] = {"dilation": attrs.get("dilation", [1, 1]), "offset": self.offset}
        if self.layout is not None:
            place["origin"] = [self.layout.halo[i] - attrs["padding"][i] for i in (0, 1)]
            place["output"] = list(shape_of(self.inner.var.ty)[1:3])
        window = list(self.levels.shape[:2])
        return packed_depthwise(
            data, weights, bias, window=window, strides=attrs["strides"], **place
        )


def depthwise_of(
    model: Model, callers: Mapping[Any, Caller], hardware: Hardware
) -> dict[Any, Depthwise]:
    """Variable of `main` → the depthwise convolution that gives it, for those kernels can have."""
    found, isa = {}, isa_of(hardware)
    for variable, caller in callers.items():
        if caller.in_blocks:
            made = _on_levels(model, caller, isa)
        elif str(caller.function.attrs["composite"]) == PLAIN:
            made = _on_bytes(model, caller, isa)
        else:
            made = None
        if made is not None:
            found[variable] = made
    return found


def _on_levels(model: Model, caller: Caller, isa: Isa) -> Depthwise | None:
    """The convolution of levels that a composite has, with a halo of what their zero is."""
    found = (b for b in bindings_of(caller.function) if linear_name(b.value) and has_own(b.value))
    if (inner := next(found, None)) is None:
        return None
    attrs, (data, weight) = attributes(inner.value), inner.value.args
    levels = model.params[str(caller.actual[weight].name)][..., 0].transpose(1, 2, 0)
    levels, point = levels.astype(np.int32), attrs["data_zero_point_x2"]
    taps = taps_for(isa, levels)
    assert taps is not None, "every instruction set multiplies bytes"
    correction = (-(point // 2) * levels.sum(axis=(0, 1))).astype(np.int32)
    halo = tuple(attrs["padding"])
    layout = layout_of(caller.actual[data], "bytes", halo=halo, fill=fill_of(point))
    return Depthwise(caller, inner, levels, taps, correction, layout=layout)


def _on_bytes(model: Model, caller: Caller, isa: Isa) -> Depthwise | None:
    """The convolution that a plain composite begins with; None where no kernel can have it."""
    inner = bindings_of(caller.function)[0]
    if not _is_depthwise(inner.value) or not _is_by_position(caller.function, inner):
        return None
    source, stored = (caller.actual.get(argument) for argument in inner.value.args)
    # Kernels read some bytes behind a picture, and the user's may end where it ends.
    if stored is None or str(stored.name) not in model.params or source is None:
        return None
    if source in list(model.module["main"].params):
        return None
    levels = model.params[str(stored.name)][:, :, 0].astype(np.int32)
    levels = levels - attributes(inner.value)["weight_zero_point"]
    dtype = dtype_of(inner.value.args[0].ty)
    packed, offset = pack_depthwise(levels, 1, "int8"), -SHIFT if dtype == "uint8" else 0
    if not takes_pairs(isa) or np.abs(levels).max(initial=0) > PAIR_LIMIT:
        taps = taps_for(isa, levels)
        if taps is None:
            return None
        packed, offset = taps, SHIFT if taps.dtype == np.int8 and dtype == "int8" else 0
    correction = (-offset * levels.sum(axis=(0, 1))).astype(np.int32)
    return Depthwise(caller, inner, levels, packed, correction, offset)


def _is_depthwise(call: Any) -> bool:
    """Whether a call is a convolution of every channel with weights of its own."""
    if not is_op(call, "relax.qnn.direct_conv2d"):
        return False
    attrs, data, weight = attributes(call), call.args[0], shape_of(call.args[1].ty)
    channels = shape_of(data.ty)[3]
    is_simple = attrs["dtype"] == "int32" and attrs["data_zero_point"] == 0
    is_byte = dtype_of(data.ty) in ("int8", "uint8") and weight[0] * weight[1] <= MAX_TAPS
    return is_simple and is_byte and attrs["groups"] == channels == weight[3] and weight[2] == 1


def taps_for(isa: Isa, levels: Array) -> Array | None:
    """Weights [KH, KW, C], zero point taken off, as the instruction set multiplies them; None if
    it cannot."""
    dot = isa.dot_for(int(levels.min(initial=0)), int(levels.max(initial=0)))
    if dot is None:
        return None
    _, _, weights = dot.operands
    return pack_depthwise(levels, weights.lanes // dot.result.lanes, f"int{weights.bits}")


def _is_by_position(function: Any, inner: Any) -> bool:
    """Whether what follows a convolution computes position by position."""
    outputs = outputs_of(function)
    return all(
        shape_of(binding.var.ty) == shape_of(inner.var.ty)
        for binding in bindings_of(function)
        if binding.var not in outputs
    )
