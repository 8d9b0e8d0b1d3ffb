"""Fused activations and padding: what several kinds of layers share.

Sources: CalculateActivationRangeQuantized in tensorflow/lite/kernels/kernel_util.cc and
ComputePaddingHeightWidth in tensorflow/lite/kernels/padding.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite
from tvm import relax

from stages.dialect.padding import NO_SIDES, Sides
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics.tflite import round_half_away

_BOUNDS: dict[int, tuple[float | None, float | None]] = {
    tflite.ActivationFunctionType.NONE: (None, None),
    tflite.ActivationFunctionType.RELU: (0.0, None),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
}


def activation_bounds(operator: Operator) -> tuple[float | None, float | None]:
    """The real bounds of an operator's fused activation; None where there is none."""
    function = int(operator.option("fused_activation_function", 0))
    if function not in _BOUNDS:
        raise UnsupportedError(
            f"has the fused activation {function}; none, RELU, RELU6, RELU_N1_TO_1 are accepted"
        )
    return _BOUNDS[function]


def stored_range(builder: TfliteBuilder, operator: Operator) -> tuple[int, int]:
    """The stored integers between which the fused activation keeps the output."""
    out = builder.quantization(operator.outputs[0])
    (low, high), zero_point = out.limits, out.zero_point.whole
    below, above = activation_bounds(operator)
    if below is not None:
        low = max(low, zero_point + steps(below, out.scale))
    if above is not None:
        high = min(high, zero_point + steps(above, out.scale))
    if low > high:
        raise UnsupportedError(f"has an activation that keeps nothing between {low} and {high}")
    return low, high


def steps(bound: float, scale: np.float32) -> int:
    """A real bound in steps of a scale, halves away from zero."""
    return round_half_away(float(np.float32(bound) / scale))


def require_no_activation(operator: Operator) -> None:
    """UnsupportedError where an operator has a fused activation."""
    if activation_bounds(operator) != (None, None):
        raise UnsupportedError("has a fused activation on values that are not quantized")


def strides_of(operator: Operator) -> tuple[int, int]:
    """Steps of windows along height and width."""
    strides = int(operator.option("stride_h")), int(operator.option("stride_w"))
    if min(strides) < 1:
        raise UnsupportedError(f"has the strides {list(strides)}")
    return strides


def padding_of(
    operator: Operator, size: tuple[int, int], window: tuple[int, int], strides: tuple[int, int]
) -> Sides:
    """The padding of windows that span `window` pixels of `size`."""
    if operator.option("padding", 0) == tflite.Padding.VALID:
        return NO_SIDES
    total = [
        max((-(-extent // stride) - 1) * stride + span - extent, 0)
        for extent, span, stride in zip(size, window, strides, strict=True)
    ]
    top, left = (amount // 2 for amount in total)
    return Sides(top, left, total[0] - top, total[1] - left)


def activated(builder: TfliteBuilder, operator: Operator, value: Any) -> Any:
    """A result after the operator's fused activation."""
    low, high = activation_bounds(operator)
    if low is None and high is None:
        return value
    name = f"{operator.layer}.activation"
    if high is None:
        return builder.emit(relax.op.nn.relu(value), name)
    return builder.emit(relax.op.clip(value, low, high), name)
