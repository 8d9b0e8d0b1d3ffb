"""How large sums can be, and what is computed more cheaply for knowing it.

Thresholds are compared in 16 bits where these hold all sums, and roundings need not saturate where
they fit 31.

On cores where conversions are slow, sums become bytes by additions alone. A float32 between 2^23
and 2^24 has an integer in its last bits. So a small integer is the float that its bits and those of
`MAGIC` make, less `MAGIC`; what is at most `SMALL` in size is rounded to the nearest integer, half
to even, where `MAGIC` is added. Both are proved to apply: by the weights of a layer, and by what
its activations can be at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hw.arm_cores import arm_core
from hw.profile import Hardware
from stages.bitpacking.linear_layers import linear_name
from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of, is_op
from stages.dialect.dtypes import is_integer, limits
from stages.dialect.numbers import MAGIC_BITS, SMALL, WORD
from stages.graph.bindings import bindings_of, variables_in
from stages.graph.sum_bounds import SumBounds, bounds_of_layer
from stages.kinds import Array
from stages.nodes import Function, Var
from stages.numerics import rule_names

Marks = Mapping[Var, Mapping[str, bool]]
"""Variable of a composite → attributes that the operator gets which gives it."""
SHORT = np.iinfo(np.int16)
UNKNOWN = 1 << 31
NONE = np.zeros(0, np.int32)
"""A constant for no channel."""


def converts_slowly(hardware: Hardware) -> bool:
    """Whether a core converts between integers and floats slower than it adds floats twice."""
    core = arm_core(hardware.core)
    return hardware.architecture == "aarch64" and core is not None and core.converts_slowly


def most_of(bounds: SumBounds, constant: Array = NONE) -> Array:
    """The largest size of sums between bounds, plus a constant [O] or none: int64 [O]."""
    added = constant.astype(np.int64) if len(constant) else 0
    return np.asarray(np.maximum(*(np.abs(bound + added) for bound in bounds)))


def marks_of(
    function: Function, sums: Var, most: Array, tensor: Callable[[Any], Array | None]
) -> tuple[Marks, int]:
    """How what reads the sums of a composite is computed, and what to add to these beforehand.

    `most` is the largest size of each channel's, `tensor` gives the values of a parameter.
    """
    readers = [b for b in bindings_of(function) if sums in variables_in(b.value)]
    if len(readers) != 1 or not is_op(readers[0].value, rule_names.QNN_RESCALE):
        return {}, 0
    scale = tensor(readers[0].value.args[1])
    if scale is None:
        return {}, 0
    is_moved = bool(most.max() <= SMALL)
    fits_word = bool((most * np.abs(scale.ravel().astype(np.float64))).max() <= WORD)
    marks = {"is_moved": is_moved, "fits_word": fits_word}
    chosen = {name: True for name, is_so in marks.items() if is_so}
    return {readers[0].var: chosen}, is_moved * MAGIC_BITS


def shortened(thresholds: Array, most: int) -> Array:
    """Thresholds int32 as int16, if integers of at most `most` in size compare alike with them.

    Larger integers do too, saturated to int16, if all thresholds are above the smallest one.
    """
    if thresholds.dtype != np.int32:
        return thresholds
    if most < SHORT.max:
        thresholds = np.clip(thresholds, -SHORT.max, SHORT.max)
    is_short = bool(np.all((thresholds > SHORT.min) & (thresholds <= SHORT.max)))
    return thresholds.astype(np.int16) if is_short else thresholds


def reach(variable: Var, calls: Mapping[Var, Any], tensor: Callable[[Any], Array]) -> int:
    """No value of a variable is larger in size; `calls` gives its operator, `tensor` weights."""
    if variable in calls:
        call = calls[variable]
        name = str(call.op.name)
        if name in names.REARRANGEMENTS:
            return reach(call.args[0], calls, tensor)
        if linear_name(call):
            return int(most_of(bounds_of_layer(call, tensor(call.args[1]))).max())
        if is_op(call, names.QNN_ADD):
            attrs = attributes(call)
            moved = sum(abs(attrs[f"{side}_zero_point"].whole) for side in ("lhs", "rhs"))
            return moved + sum(reach(argument, calls, tensor) for argument in call.args)
    dtype = dtype_of(variable.ty)
    low, high = limits(dtype) if is_integer(dtype) else (0, UNKNOWN)
    return max(-low, high)
