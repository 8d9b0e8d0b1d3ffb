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

from hw.isa import Isa, Operation
from stages.dialect import infer
from stages.dialect.calls import shape_of, tensor_type
from stages.dialect.convolve import convolve
from stages.dialect.registry import register
from stages.kernels.packing import round_up
from stages.kernels.signature import BLOCK
from stages.nodes import TensorType

Array = np.ndarray[Any, Any]
MAX_TAPS = 49
"""Windows up to 7x7: all taps are instructions in a row."""
PAIR_LIMIT = 127
"""The largest weight of which two, times -128, fit 16 bits."""


def takes_pairs(isa: Isa) -> bool:
    """Whether products of signed bytes are added by two in 16 bits, before they are widened."""
    return Operation.MULTIPLY_8 in isa and Operation.MAC_16 in isa


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


def _type(types: Sequence[TensorType], attrs: Mapping[str, Any]) -> Any:
    *images, height, width, channels = shape_of(types[0])
    top, left = attrs.get("origin", [0, 0])
    data = tensor_type((*(images or [1]), height - top, width - left, channels), "uint8")
    weight = tensor_type((channels, *attrs["window"], 1), str(types[1].dtype))
    whole = {"strides": attrs["strides"], "dilation": attrs["dilation"], "groups": channels}
    n, *size, _ = shape_of(infer.conv2d([data, weight], whole))
    return tensor_type((n, *attrs.get("output", size), round_up(channels, BLOCK)), "int32")


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
    origin: Sequence[int] = (0, 0),
    output: Sequence[int] | None = None,
) -> Array:
    """Sums of `(data + offset) * weight` a channel, and its bias: int32 [N, OH, OW, Cp].

    `data` is [N, Hp, Wp, C], or one image without N, `bias` int32 [Cp]. The first window begins
    at `origin`, and there are as many as `output` says, or as there are.
    `offset` is 128 where the instruction multiplies unsigned bytes and the data is signed, -128
    where it is the other way round.
    """
    channels = data.shape[-1]
    taps = unpack_depthwise(weights, window, channels).transpose(2, 0, 1)[..., None]
    images = data.reshape(-1, *data.shape[-3:])[:, origin[0] :, origin[1] :]
    levels = images.astype(np.int32) + offset
    sums = convolve(levels, taps, strides, channels, dilation, "int32")
    if output is not None:
        sums = sums[:, : output[0], : output[1]]
    total: Array = np.pad(sums, [(0, 0)] * 3 + [(0, -channels % BLOCK)]) + bias
    return total
