"""What the operators of a source graph compute, in float32 NumPy, for the oracle and the zoo.

Written from the operator specifications alone, so that the oracle shares no arithmetic with the
stages it judges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stages.importing.sliding_windows import Windows

Array = np.ndarray[Any, Any]


def _half_up(x: Array) -> Array:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def _half_down(x: Array) -> Array:
    return np.sign(x) * np.ceil(np.abs(x) - 0.5)


def _away_from_zero(x: Array) -> Array:
    return np.sign(x) * np.ceil(np.abs(x))


ROUNDING_MODES: dict[str, Callable[[Array], Array]] = {
    "ROUND": np.rint,
    "HALF_EVEN": np.rint,
    "ROUND_HALF_EVEN": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": _away_from_zero,
    "DOWN": np.trunc,
    "ROUND_TO_ZERO": np.trunc,
    "HALF_UP": _half_up,
    "HALF_DOWN": _half_down,
}
"""QONNX's rounding modes by upper-case name; ROUND is half to even."""


def quant_limits(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    """Smallest and largest integer a QONNX Quant stores."""
    if signed:
        return -(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1
    return 0, 2**bits - 1 - narrow


def quant(
    x: Array, scale: Array, zero_point: Array, bits: int, signed: bool, narrow: bool, rounding: str
) -> Array:
    """QONNX Quant: float32 in, float32 on the grid `scale * (q - zero_point)` out.

    One signed bit stands for -1 and +1, as QONNX's own executor has it.
    """
    stored = x / scale + zero_point
    if bits == 1 and signed:
        stored = np.where(stored >= 0, np.float32(1), np.float32(-1))
    else:
        low, high = quant_limits(bits, signed, narrow)
        stored = np.minimum(np.maximum(stored, np.float32(low)), np.float32(high))
        stored = ROUNDING_MODES[rounding.upper()](stored)
    return np.asarray((stored - zero_point) * scale, np.float32)


def bipolar_quant(x: Array, scale: Array) -> Array:
    """QONNX BipolarQuant: `+scale` where x >= 0, zero included, else `-scale`."""
    return np.asarray(np.where(x >= 0, np.float32(1), np.float32(-1)) * scale, np.float32)


def multi_threshold(
    x: Array, thresholds: Array, out_scale: float, out_bias: float, channel_axis: int
) -> Array:
    """FINN MultiThreshold: how many of its channel's thresholds x reaches, scaled and biased.

    `thresholds` has shape [channels or 1, steps].
    """
    by_channel = np.moveaxis(x, channel_axis, -1)[..., np.newaxis]
    counts = np.count_nonzero(by_channel >= thresholds, axis=-1).astype(np.float32)
    return np.moveaxis(np.float32(out_scale) * counts + np.float32(out_bias), -1, channel_axis)


def batch_norm(
    x: Array, gamma: Array, beta: Array, mean: Array, variance: Array, epsilon: float
) -> Array:
    """ONNX BatchNormalization at inference, channels along axis 1, in the specification's order."""
    shape = (-1,) + (1,) * (x.ndim - 2)
    deviation = np.sqrt(variance + np.float32(epsilon)).reshape(shape)
    centred = x - mean.reshape(shape)
    return np.asarray(gamma.reshape(shape) * centred / deviation + beta.reshape(shape), np.float32)


def conv2d(x: Array, weight: Array, windows: Windows, groups: int) -> Array:
    """Two-dimensional convolution, NCHW by OIHW: one matrix product a sample and group, whose sums
    are float64."""
    height, width = windows.output_extents(x.shape[2:])
    outputs, channels = weight.shape[0] // groups, x.shape[1] // groups
    result = np.empty((x.shape[0], weight.shape[0], height, width), np.float32)
    kernel = weight.reshape(groups, outputs, -1).astype(np.float64)
    for sample in range(x.shape[0]):
        patches = np.stack(
            _shifted(x[sample : sample + 1], windows, np.float32(0)), axis=2
        )  # [1, channels, kernel positions, height, width]
        columns = patches.reshape(groups, channels * len(patches[0, 0]), height * width)
        result[sample] = (kernel @ columns).reshape(-1, height, width)
    return result


def matmul(left: Array, right: Array) -> Array:
    """Matrix product as NumPy has it, whose sums are float64."""
    product = np.matmul(left.astype(np.float64), right.astype(np.float64))
    return np.asarray(product, np.float32)


def max_pool2d(x: Array, windows: Windows) -> Array:
    """Largest value of each window, padding excluded."""
    return np.maximum.reduce(_shifted(x, windows, np.float32(-np.inf)))


def average_pool2d(x: Array, windows: Windows, count_include_pad: bool) -> Array:
    """Mean of each window: the sum in row-major window order, divided by the count."""
    total = _sum(_shifted(x, windows, np.float32(0)))
    if count_include_pad:
        return total / np.float32(windows.kernel[0] * windows.kernel[1])
    ones = np.ones((1, 1, *x.shape[2:]), np.float32)
    return total / _sum(_shifted(ones, windows, np.float32(0)))


def _shifted(x: Array, windows: Windows, pad_value: np.float32) -> list[Array]:
    """One strided view of the padded input for each position inside the window."""
    top, left, bottom, right = windows.pads
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=pad_value)
    height, width = windows.output_extents(x.shape[2:])
    views = []
    for row in range(windows.kernel[0]):
        for column in range(windows.kernel[1]):
            y, x0 = row * windows.dilations[0], column * windows.dilations[1]
            views.append(
                padded[
                    :,
                    :,
                    y : y + (height - 1) * windows.strides[0] + 1 : windows.strides[0],
                    x0 : x0 + (width - 1) * windows.strides[1] + 1 : windows.strides[1],
                ]
            )
    return views


def _sum(arrays: list[Array]) -> Array:
    total = arrays[0].copy()
    for array in arrays[1:]:
        total += array
    return total


def truncation_scale(scale: Array, target: Array) -> Array:
    """By what QONNX Trunc divides integers of one scale for another: the nearest power of two."""
    ratio = np.asarray(np.log2(target / scale), np.float32)
    return np.asarray(2 ** np.round(ratio), np.float32)


def trunc(
    x: Array, scale: Array, zero_point: Array, step: Array, target: Array, rounding: str,
    limits: tuple[int, int] | None,
) -> Array:  # fmt: skip
    """QONNX Trunc: integers of one scale, divided by `step`, clipped and rounded, in another."""
    y = np.round(x / scale + zero_point) / step
    if limits is not None:
        y = np.minimum(np.maximum(y, np.float32(limits[0])), np.float32(limits[1]))
    y = ROUNDING_MODES[rounding.upper()](y)
    shift = zero_point if limits is None else zero_point / step
    return np.asarray((y - shift) * target, np.float32)


NEAREST: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda where: np.ceil(where - np.float32(0.5)),
    "round_prefer_ceil": lambda where: np.floor(where + np.float32(0.5)),
}
"""ONNX's rules for the nearest position."""
PLACES: dict[str, Callable[[Array, np.float32, int], Array]] = {
    "asymmetric": lambda at, scale, _: at / scale,
    "half_pixel": lambda at, scale, _: (at + np.float32(0.5)) / scale - np.float32(0.5),
    "align_corners": lambda at, _, extent: (
        at * np.float32(extent - 1) / np.float32(max(at.size - 1, 1))
    ),
}
"""Where ONNX puts the pixels of a resized image in the one there was, in float32."""


def resize_nearest(
    x: Array, sizes: Sequence[int], scales: Sequence[float], place: str, rule: str
) -> Array:
    """ONNX Resize by the nearest, axis by axis."""
    for axis, (extent, size, scale) in enumerate(zip(x.shape, sizes, scales, strict=True)):
        if size != extent or scale != 1:
            at = np.arange(size, dtype=np.float32)
            where = NEAREST[rule](PLACES[place](at, np.float32(scale), extent))
            x = np.take(x, np.clip(where, 0, extent - 1).astype(np.int64), axis)
    return x
