"""Elementwise operators that every framework's integer networks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stages.dialect.calls import BYTES
from stages.dialect.elementwise import by_attribute, elementwise
from stages.dialect.numbers import Numbers, Value
from stages.dialect.zero_point import ZeroPoint
from stages.kinds import Array

MOST_MISSED = 6
"""Integers a channel that a line may miss: each takes a comparison and an addition."""


def fits(most: int | Array, multiplier: Array, moved: Array) -> bool:
    """Whether integers of a magnitude up to `most`, times a multiplier, plus an offset, stay below
    2^31 in magnitude, however that is rounded on the way; each is a number or [C]."""
    sums = most * np.abs(multiplier.astype(np.float64)) + np.abs(moved.astype(np.float64))
    return bool(np.all(sums <= 2.0**30))


@elementwise("rescale", ["data", "scale"], by_attribute, accepts={"scale": ["float32"]})
def rescale(
    m: Numbers, data: Value, scale: Value, *,
    zero_point: ZeroPoint, low: int, high: int, dtype: str, fits: bool = False,
    fits_word: bool = False, is_moved: bool = False,
) -> Value:  # fmt: skip
    """Requantize in float32: `clip(round_half_even(float32(data) * scale) + zero_point)`.

    ONNX Runtime's MLAS does so for QLinearConv and its like: the zero point comes after rounding.
    What `fits` is known to have products of at most 2^30 in magnitude, and what `fits_word` of at
    most `numbers.WORD`. Data that `is_moved` is at most `numbers.SMALL` in magnitude, plus
    `MAGIC_BITS`.
    """
    real = m.float_of_moved(data) if is_moved else m.cast(data, "float32")
    return m.saturated(m.product(real, scale), zero_point.whole, low, high, fits_word=fits_word)


def _line(missed: int) -> Callable[..., Any]:
    """The operator `line<missed>`, which has so many operands behind the offset."""

    @elementwise(
        f"line{missed}", ["data", "scale", "offset", *(f"missed{i}" for i in range(missed))],
        by_attribute, accepts={"data": ["int32"], "scale": ["float32"], "offset": ["float32"]},
    )  # fmt: skip
    def line(
        m: Numbers, data: Value, scale: Value, offset: Value, *misses: Value,
        low_misses: int, is_odd: bool, zero_point: ZeroPoint,
        low: int, high: int, dtype: str, fits: bool,
    ) -> Value:  # fmt: skip
        """`clip(round_half_even(fma(float32(data), scale, offset)) + zero_point)`, but for misses.

        Where data is in one of the first `low_misses` of them, what is rounded is one too low and
        1 is added; where it is in one of the others, 1 is taken away. The offset has the sign of
        data if the line `is_odd`. `fits` as in `rescale`.
        """
        real = m.cast(data, "float32")
        addend = m.copysign(offset, real) if is_odd else offset
        found = m.saturated(m.multiply_add(real, scale, addend), zero_point.whole, low, high)
        for number, miss in enumerate(misses):
            one = m.cast(m.equal(data, miss), m.dtype(found))
            found = found + one if number < low_misses else found - one
        return found

    return line


AFFINE_RESCALES: Sequence[Callable[..., Any]] = [_line(missed) for missed in range(MOST_MISSED + 1)]
"""The operators `line0`, `line1` and so on, by how many integers they miss."""


@elementwise(
    "rescaled_sum", ["lhs", "rhs", "lhs_scale", "rhs_scale"], by_attribute,
    accepts={"lhs_scale": ["float32"], "rhs_scale": ["float32"]}, widened=["lhs", "rhs"],
)  # fmt: skip
def rescaled_sum(
    m: Numbers, lhs: Value, rhs: Value, lhs_scale: Value, rhs_scale: Value, *,
    fused: bool, low: int, high: int, dtype: str,
) -> Value:  # fmt: skip
    """`clip(round_half_even(lhs * lhs_scale + rhs * rhs_scale))` in float32.

    oneDNN's sum rounds both products; the sum that it appends to a convolution is `fused`: only
    the left product is rounded (vfmadd).
    """
    left = m.product(m.cast(lhs, "float32"), lhs_scale)
    if fused:
        total = m.multiply_add(m.cast(rhs, "float32"), rhs_scale, left)
    else:
        total = left + m.product(m.cast(rhs, "float32"), rhs_scale)
    return m.saturated(total, 0, low, high)


@elementwise(
    "table", ["data", "values"], lambda dtypes, _: dtypes[1], accepts={"data": BYTES},
    whole=["values"],
)  # fmt: skip
def table(m: Numbers, data: Value, values: Value) -> Value:
    """`values[q - smallest]`: any function of one byte, as the 256 values [256] it takes."""
    is_signed = m.dtype(data) == "int8"
    return m.look_up(values, m.cast(data, "int32") + (128 if is_signed else 0))
