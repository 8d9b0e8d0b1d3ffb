"""Operators of files that are written, from what they compute: shapes NHWC, windows as ONNX's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tflite

from stages.importing.sliding_windows import Windows
from stages.importing.tflite.larq import WORD
from stages.importing.twins.tflite_writer import Operation, Tensor, constant, flexible

Array = np.ndarray[Any, Any]

F32, PACKED = "float32", "int32"
SAME, VALID = tflite.Padding.SAME, tflite.Padding.VALID
SHORT, LONG = "hw", ("height", "width")
"""How options call the axes: those of TensorFlow Lite mostly the one way, Larq's the other."""


def padding_of(extents: tuple[int, int], windows: Windows) -> int | None:
    """SAME or VALID, whichever gives as many windows; None if neither does.

    SAME puts a window one pixel off where a stride leaves ONNX's padding uneven.
    """
    if not any(windows.pads):
        return int(VALID)
    height, width = (-(-extents[axis] // windows.strides[axis]) for axis in (0, 1))
    return int(SAME) if windows.output_extents(extents) == (height, width) else None


def conv_2d(
    data: Tensor, weight: Array, bias: Array, windows: Windows, padding: int, result: Tensor
) -> Operation:
    """CONV_2D of float32; `weight` is OIHW, `bias` [O]."""
    tensors = [data, constant(weight.transpose(0, 2, 3, 1), F32), constant(bias, F32)]
    options = {
        "padding": padding,
        **_pair("stride_{}", SHORT, windows.strides),
        **_pair("dilation_{}_factor", SHORT, windows.dilations),
    }
    return Operation("CONV_2D", tensors, [result], "Conv2DOptions", options)


def pool_2d(op: str, data: Tensor, windows: Windows, padding: int, result: Tensor) -> Operation:
    """MAX_POOL_2D or AVERAGE_POOL_2D."""
    options = {"padding": padding, **_pair("filter_{}", LONG, windows.kernel)}
    options |= _pair("stride_{}", SHORT, windows.strides)
    return Operation(op, [data], [result], "Pool2DOptions", options)


def lce_quantize(data: Tensor, result: Tensor) -> Operation:
    """LceQuantize: the signs of float32 [..., C] as [..., C / 32] words."""
    return Operation("LceQuantize", [data], [result])


def lce_bmaxpool_2d(data: Tensor, windows: Windows, padding: int, result: Tensor) -> Operation:
    """LceBMaxPool2d of packed signs."""
    options = {**_pair("filter_{}", LONG, windows.kernel), "padding": padding}
    options |= _pair("stride_{}", LONG, windows.strides)
    return Operation("LceBMaxPool2d", [data], [result], custom_options=flexible(**options))


def lce_bconv_2d(
    data: Tensor,
    negative: Array,
    factors: Sequence[Array],
    windows: Windows,
    padding: int,
    result: Tensor,
) -> Operation:
    """LceBconv2d to float32: which weights OIHW are -1; `factors` multiply sums and add, [O] each.

    Padded with 0, as ONNX pads, for which Larq makes up behind its products of signs.
    """
    options = {
        "channels_in": negative.shape[1],
        **_pair("stride_{}", LONG, windows.strides),
        **_pair("dilation_{}_factor", LONG, windows.dilations),
        "padding": padding,
        "pad_values": 0,
        "fused_activation_function": tflite.ActivationFunctionType.NONE,
    }
    words = constant(packed(negative.transpose(0, 2, 3, 1)), PACKED)
    tensors = [data, words, *(constant(each, F32) for each in factors), None]
    return Operation("LceBconv2d", tensors, [result], custom_options=flexible(**options))


def words_of(channels: int) -> int:
    """Packed words that signs of so many channels take."""
    return -(-channels // WORD)


def packed(negative: Array) -> Array:
    """Signs along the last axis as int32 words, the first in bit 0; missing ones are 0."""
    missing = words_of(negative.shape[-1]) * WORD - negative.shape[-1]
    padded = np.pad(negative, [(0, 0)] * (negative.ndim - 1) + [(0, missing)])
    return np.packbits(padded, axis=-1, bitorder="little").view("<i4").astype(np.int32)


def _pair(name: str, axes: Sequence[str], values: tuple[int, int]) -> Mapping[str, int]:
    """An option of each axis."""
    return {name.format(axis): value for axis, value in zip(axes, values, strict=True)}
