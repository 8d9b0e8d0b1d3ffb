"""What follows sums in as few bits as it needs: thresholds of 16, and roundings that fit 31."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stages.bitpacking.edges import LINEAR
from stages.bitpacking.rounding import ends_of
from stages.qnn.algebra import numerators
from stages.qnn.composites import MOVED
from stages.qnn.infer import limits
from stages.qnn.registry import attributes, dtype_of, is_op

Array = np.ndarray[Any, Any]
WORD = np.iinfo(np.int16)
UNKNOWN = 1 << 31


def shortened(thresholds: Array, most: int) -> Array:
    """Thresholds int32 as int16, if integers of at most `most` in size compare alike with them.

    Larger integers do too, saturated to int16, if all thresholds are above the smallest one.
    """
    if thresholds.dtype != np.int32:
        return thresholds
    if most < WORD.max:
        thresholds = np.clip(thresholds, -WORD.max, WORD.max)
    is_short = bool(np.all((thresholds > WORD.min) & (thresholds <= WORD.max)))
    return thresholds.astype(np.int16) if is_short else thresholds


def reach(variable: Any, calls: Mapping[Any, Any], tensor: Callable[[Any], Array]) -> int:
    """No value of a variable is larger in size; `calls` gives its operator, `tensor` weights."""
    if variable in calls:
        call = calls[variable]
        name = str(call.op.name)
        if name in MOVED:
            return reach(call.args[0], calls, tensor)
        if name.removeprefix("relax.qnn.") in LINEAR:
            return _of_sums(call, tensor(call.args[1]))
        if is_op(call, "relax.qnn.add"):
            attrs = attributes(call)
            points = abs(attrs["lhs_zero_point"]) + abs(attrs["rhs_zero_point"])
            return points + sum(reach(argument, calls, tensor) for argument in call.args)
    dtype = dtype_of(variable.ty)
    return _largest(dtype) if "int" in dtype else UNKNOWN


def _largest(dtype: str) -> int:
    """The size of the largest integer of a type."""
    low, high = limits(dtype)
    return max(-low, high)


def _of_sums(call: Any, q: Array) -> int:
    """Of the sums of a product with weights `q` [O, ...]."""
    largest = max(map(abs, ends_of(call)))
    point = attributes(call)["weight_zero_point_x2"]
    weights = np.abs(numerators(q, point).astype(np.int64))
    return largest * int(weights.reshape(q.shape[0], -1).sum(axis=1).max())
