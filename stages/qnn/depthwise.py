"""Depthwise convolutions as micro-kernels read them: taps side by side, channels in lanes.

A multiply-accumulate instruction adds `group` products to a 32-bit lane. Of a depthwise convolution
these are taps of one channel, one below the other: neighbouring pixels then share what is read.
Weights become [OB, KW * steps, 32, group], where a column of the window has `steps` of `group` rows
each, of 32 channels; what fills up the last step, and the last block of channels, is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stages.qnn import infer
from stages.qnn.integer import convolve
from stages.qnn.packing import round_up
from stages.qnn.registry import register, shape_of, tensor_type
from stages.qnn.signature import BLOCK

Array = np.ndarray[Any, Any]


def pack_depthwise(levels: Array, group: int, dtype: str) -> Array:
    """Weights [KH, KW, C], zero point taken off, in steps of `group` rows."""
    kh, _, channels = levels.shape
    padded = np.pad(levels, [(0, -kh % group), (0, 0), (0, -channels % BLOCK)])
    blocks = round_up(channels, BLOCK) // BLOCK
    steps = padded.transpose(1, 0, 2).reshape(-1, group, blocks, BLOCK)
    return np.ascontiguousarray(steps.transpose(2, 0, 3, 1).astype(dtype))


def unpack_depthwise(packed: Array, window: Sequence[int], channels: int) -> Array:
    """Weights int32 [KH, KW, C]: undoes `pack_depthwise`."""
    kh, kw = window
    columns = packed.transpose(1, 3, 0, 2).reshape(kw, -1, packed.shape[0] * BLOCK)
    return columns.transpose(1, 0, 2)[:kh, :, :channels].astype(np.int32)


def _type(types: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    channels = shape_of(types[0])[3]
    weight = tensor_type((channels, *attrs["window"], 1), str(types[1].dtype))
    whole = {**attrs, "padding": [0, 0, 0, 0], "groups": channels}
    *size, _ = shape_of(infer.conv2d([types[0], weight], whole))
    return tensor_type((*size, round_up(channels, BLOCK)), "int32")


@register("packed_depthwise", ["data", "weights", "bias"], _type)
def packed_depthwise(
    data: Array,
    weights: Array,
    bias: Array,
    *,
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    offset: int,
) -> Array:
    """Sums of `(data + offset) * weight` a channel, and its bias: int32 [N, OH, OW, Cp].

    `data` is [N, Hp, Wp, C], `bias` int32 [Cp].
    `offset` is 128 where the instruction multiplies unsigned bytes and the data is signed.
    """
    channels = data.shape[3]
    filters = unpack_depthwise(weights, window, channels).transpose(2, 0, 1)[..., None]
    levels = data.astype(np.int32) + offset
    sums = convolve(levels, filters, strides, channels, dilation, "int32")
    total: Array = np.pad(sums, [(0, 0)] * 3 + [(0, -channels % BLOCK)]) + bias
    return total
