"""Sums that become bytes by additions alone, on cores where conversions are slow.

A float32 between 2^23 and 2^24 has an integer in its last bits. So a small integer is the float
that its bits and those of `MAGIC` make, less `MAGIC`; what is at most `SMALL` in size is rounded
to the nearest integer, half to even, where `MAGIC` is added. Both are proved to apply: by the
weights of a layer, and by what its activations can be at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hw.arm_cores import arm_core
from hw.profile import Hardware
from stages.qnn.algebra import factor, offset
from stages.qnn.builder import bindings_of, variables_in
from stages.qnn.infer import limits
from stages.qnn.numbers import MAGIC_BITS, SMALL, WORD
from stages.qnn.registry import attributes, dtype_of, is_op

Array = np.ndarray[Any, Any]
Marks = Mapping[Any, Mapping[str, bool]]
"""Variable of a composite → attributes that the operator gets which gives it."""


def converts_slowly(hardware: Hardware) -> bool:
    """Whether a processor gains by it."""
    core = arm_core(hardware.core)
    return hardware.architecture == "aarch64" and core is not None and core.converts_slowly


def ends_of(call: Any) -> tuple[int, ...]:
    """Numerators that none of a product's activations lies outside of, padding among them."""
    attrs, dtype = attributes(call), dtype_of(call.args[0].ty)
    point = attrs["data_zero_point_x2"]
    ends = (factor(point) * end - offset(point) for end in limits(dtype))
    return (*ends, attrs.get("pad_value", 0))


def most_of(weights: Array, ends: tuple[int, ...], constant: Array) -> Array:
    """The largest size of sums, int64 [O]: of weights [O, K] times any of the numbers between the
    `ends`, plus a constant [O], or none."""
    wide = weights.reshape(len(weights), -1).astype(np.int64)
    above, below = wide.clip(min=0).sum(1), wide.clip(max=0).sum(1)
    added = constant.astype(np.int64) if len(constant) else 0
    high = above * max(ends) + below * min(ends) + added
    low = above * min(ends) + below * max(ends) + added
    return np.asarray(np.maximum(np.abs(high), np.abs(low)))


def marks_of(
    function: Any, sums: Any, most: Array, tensor: Callable[[Any], Array | None]
) -> tuple[Marks, int]:
    """How what reads the sums of a composite is computed, and what to add to these beforehand.

    `most` is the largest size of each channel's, `tensor` gives the values of a parameter.
    """
    readers = [b for b in bindings_of(function) if sums in variables_in(b.value)]
    if len(readers) != 1 or not is_op(readers[0].value, "relax.qnn.rescale"):
        return {}, 0
    scale = tensor(readers[0].value.args[1])
    if scale is None:
        return {}, 0
    is_moved = bool(most.max() <= SMALL)
    fits_word = bool((most * np.abs(scale.ravel().astype(np.float64))).max() <= WORD)
    marks = {"is_moved": is_moved, "fits_word": fits_word}
    chosen = {name: True for name, is_so in marks.items() if is_so}
    return {readers[0].var: chosen}, is_moved * MAGIC_BITS
