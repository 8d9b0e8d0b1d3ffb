"""Tuning: the loop order of every composite, as measured or from the cost model (deterministic).

A kernel's work items are pairs (block of 32 output channels, output row). Whichever operand is
larger than the first-level cache should stay put while the other streams past it.
"""

from __future__ import annotations

from math import prod
from typing import Any

from hw.profile import Hardware
from stages.kinds import Model, Table
from stages.qnn.builder import bindings_of
from stages.qnn.measured import order_of, shape_name
from stages.qnn.packed import parse_signature
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of, storage_dtype

__all__ = ["ORDERS", "run"]

ORDERS = ("rows_inner", "blocks_inner")
"""What the inner loop over a kernel's work items goes through."""


def run(*, model: Model, hardware: Hardware, choices: Table) -> Table:
    """Composite name → schedule."""
    return {
        str(variable.name_hint): _schedule(function, hardware, choices)
        for variable, function in model.module.functions.items()
        if "composite" in (function.attrs or {})
    }


def _schedule(function: Any, hardware: Hardware, choices: Table) -> Table:
    for binding in bindings_of(function):
        if is_op(binding.value, "relax.qnn.packed_conv2d"):
            data, weights, _ = binding.value.args
            chosen = order_of(*_known_by(binding.value), choices)
            return {"order": chosen or _order(binding.value, data.ty, weights.ty, hardware)}
        if is_op(binding.value, "relax.qnn.packed_depthwise"):
            # A few rows of the picture fit the cache, and its lines hold several blocks.
            return {"order": "blocks_inner"}
    return {"order": ORDERS[0]}


def _known_by(call: Any) -> tuple[str, str]:
    """The kernel and the shape of a convolution, as measurements call them."""
    attrs, (pictures, height, width, _) = attributes(call), shape_of(call.ty)
    output = (pictures * height, width)
    shape = shape_name(attrs["window"], attrs["strides"], attrs["channels"], output)
    return parse_signature(attrs["signature"]).alone.name, shape


def _order(call: Any, data: Any, weights: Any, hardware: Hardware) -> str:
    """`rows_inner` keeps a block's weights in cache; `blocks_inner` keeps rows of activations."""
    attrs = attributes(call)
    blocks = -(-attrs["channels"][1] // 32)
    weight_bytes, data_bytes = _bytes(weights), _bytes(data)
    for extent, stride in zip(attrs["window"], attrs["strides"], strict=True):
        data_bytes = data_bytes * min(extent, stride) // stride  # what lies between is not read
    rows = attrs["output"][0]
    rows_inner = weight_bytes + blocks * data_bytes
    blocks_inner = rows * weight_bytes + data_bytes
    cache = hardware.l1d_kib * 1024 // 2
    if weight_bytes <= cache and blocks > 1:
        return "blocks_inner"
    return "rows_inner" if rows_inner <= blocks_inner else "blocks_inner"


def _bytes(kind: Any) -> int:
    return prod(shape_of(kind)) * storage_dtype(dtype_of(kind)).itemsize
