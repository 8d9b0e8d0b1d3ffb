"""Tuning: the loop order of every composite, from the cost model alone (no trials, deterministic).

A kernel's work items are pairs (block of 32 output channels, output row). Whichever operand is
larger than the first-level cache should stay put while the other streams past it.
"""

from __future__ import annotations

from math import prod
from typing import Any

from hw.profile import Hardware
from stages.kinds import Model, Table
from stages.options import ScheduleOptions
from stages.qnn.builder import bindings_of
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of

__all__ = ["run"]

BYTES = {"uint32": 4, "int32": 4, "uint8": 1, "float32": 4}


def run(*, model: Model, options: ScheduleOptions, hardware: Hardware) -> Table:
    """Composite name → schedule. `options.trials` is 0: nothing is measured."""
    del options
    return {
        str(variable.name_hint): _schedule(function, hardware)
        for variable, function in model.module.functions.items()
        if "composite" in (function.attrs or {})
    }


def _schedule(function: Any, hardware: Hardware) -> Table:
    for binding in bindings_of(function):
        if is_op(binding.value, "relax.qnn.packed_conv2d"):
            data, weights, _ = binding.value.args
            return {"order": _order(binding.value, data.ty, weights.ty, hardware)}
    return {"order": "rows_inner"}


def _order(call: Any, data: Any, weights: Any, hardware: Hardware) -> str:
    """`rows_inner` keeps a block's weights in cache; `blocks_inner` keeps rows of activations."""
    attrs = attributes(call)
    blocks = -(-attrs["channels"][1] // 32)
    weight_bytes = prod(shape_of(weights)) * BYTES[dtype_of(weights)]
    data_bytes = prod(shape_of(data)) * BYTES[dtype_of(data)]
    rows = attrs["output"][0]
    rows_inner = weight_bytes + blocks * data_bytes
    blocks_inner = rows * weight_bytes + data_bytes
    cache = hardware.l1d_kib * 1024 // 2
    if weight_bytes <= cache and blocks > 1:
        return "blocks_inner"
    return "rows_inner" if rows_inner <= blocks_inner else "blocks_inner"
