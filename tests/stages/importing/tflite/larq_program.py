"""Larq's binary convolution in NumPy: xor and popcount over words of 32 packed channels."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def packed(negative: Array) -> Array:
    """Bits (1 for -1) along the last axis as int32 words; missing channels are 0."""
    *outer, channels = negative.shape
    words = -(-channels // 32)
    padded = np.zeros((*outer, words * 32), np.uint8)
    padded[..., :channels] = negative
    return np.packbits(padded, axis=-1, bitorder="little").view("<i4").astype(np.int32)


def popcount(words: Array) -> Array:
    raw = np.ascontiguousarray(words.astype(np.int32)).view(np.uint8)
    return np.unpackbits(raw, axis=-1).sum(-1, dtype=np.int64)


def same_padding(size: int, window: int, stride: int) -> tuple[int, int]:
    out = -(-size // stride)
    return max((out - 1) * stride + window - size, 0) // 2, out


def accumulators(
    words: Array, weight: Array, stride: int, is_same: bool, dilation: int, zeros: bool, depth: int
) -> Array:
    """How many bits differ; padded with +1, or with what counts as half of the channels."""
    n, h, w, _ = words.shape
    units, kh, kw, group_words = weight.shape
    span = (kh - 1) * dilation + 1, (kw - 1) * dilation + 1
    (top, oh), (left, ow) = (
        same_padding(size, s, stride) if is_same else (0, (size - s) // stride + 1)
        for size, s in zip((h, w), span, strict=True)
    )
    groups = words.shape[3] // group_words
    result = np.zeros((n, oh, ow, units), np.int64)
    for index in np.ndindex(n, oh, ow, units, kh, kw):
        b, y, x, o, fy, fx = index
        row, column = y * stride - top + fy * dilation, x * stride - left + fx * dilation
        first = o // (units // groups) * group_words
        if 0 <= row < h and 0 <= column < w:
            data = words[b, row, column, first : first + group_words]
        elif zeros:
            result[b, y, x, o] += depth // 2
            continue
        else:
            data = np.zeros(group_words, np.int32)
        result[b, y, x, o] += popcount(data ^ weight[o, fy, fx])
    return result
