"""Scales and zero points of a tensor, read from an untrusted file and checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite

from stages.dialect.dtypes import limits
from stages.importing.limits import LARGEST_WEIGHT
from stages.importing.tflite.flatbuffer import Budget, damaged
from stages.importing.tflite.tflite_graph import AxisQuantization

_TYPES = ("int4", "int8", "uint8", "int16", "int32", "int64")
"""Types that quantized tensors are stored in; zero points are among their integers."""


def axis_quantization_of(
    raw: Any, name: str, dtype: str, shape: tuple[int, ...], budget: Budget
) -> AxisQuantization | None:
    """How a tensor is quantized; None where no scale is stated, or the type is not an integer.

    Raises StageError for a scale that is not positive or too large, a zero point outside the
    type, and vectors that do not fit the tensor.
    """
    if raw is None or dtype not in _TYPES or raw.ScaleLength() == 0:
        return None
    if raw.DetailsType() not in (
        tflite.QuantizationDetails.NONE,
        tflite.QuantizationDetails.CustomQuantization,
    ):
        return None
    scale = budget.numbers(raw.ScaleAsNumpy(), "scales")
    zero_point = budget.numbers(raw.ZeroPointAsNumpy(), "zero points")
    fits = (scale > 0) & (scale <= LARGEST_WEIGHT)
    if not fits.all():
        raise damaged(
            f"tensor '{name}' has the scale {scale[~fits][0]}; it must be positive and at most "
            f"{LARGEST_WEIGHT:g}"
        )
    if zero_point.size != scale.size:
        raise damaged(f"tensor '{name}' has {scale.size} scales but {zero_point.size} zero points")
    low, high = limits(dtype)
    if ((zero_point < low) | (zero_point > high)).any():
        worst = zero_point[(zero_point < low) | (zero_point > high)][0]
        raise damaged(f"tensor '{name}' of {dtype} has the zero point {worst}")
    axis = _axis(raw.QuantizedDimension(), scale.size, name, shape)
    return AxisQuantization(scale, zero_point.astype(np.int64), axis)


def _axis(stated: int, scales: int, name: str, shape: tuple[int, ...]) -> int:
    """The axis the scales run along; biases often state that of their weights."""
    axis = 0 if len(shape) == 1 and scales > 1 else stated
    if shape and not 0 <= axis < len(shape):
        raise damaged(f"tensor '{name}' of rank {len(shape)} is quantized along axis {stated}")
    if scales == 1:
        return 0
    if not 0 <= axis < len(shape) or shape[axis] != scales:
        raise damaged(
            f"tensor '{name}' of shape {list(shape)} has {scales} scales along axis {stated}"
        )
    return axis
