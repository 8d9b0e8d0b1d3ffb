"""Packed layouts, derived from a kernel signature: the only place where bits are arranged.

Activations become uint32 [P, Hp, Wp, CW] (plane, padded height and width, word) and weights
uint32 [OB, P, KH * KW * CW, channels] (block of output channels, plane, window word, channel);
channel `c` sits in bit (popcount) or byte (mac8) `c mod per_word` of word `c div per_word`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.qnn.signature import BLOCK, KernelSignature

Array = np.ndarray[Any, Any]


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`."""
    return -(-value // multiple) * multiple


def pack_planes(levels: Array, planes: int) -> Array:
    """Bit planes of unsigned levels [..., C] as uint32 [planes, ..., ceil(C / 32)]."""
    channels = levels.shape[-1]
    padding = [(0, 0)] * (levels.ndim - 1) + [(0, round_up(channels, 32) - channels)]
    padded = np.pad(levels.astype(np.uint32), padding)
    grouped = padded.reshape(*levels.shape[:-1], -1, 32)
    weights = np.uint32(1) << np.arange(32, dtype=np.uint32)
    return np.stack(
        [(((grouped >> j) & 1) * weights).sum(-1, dtype=np.uint32) for j in range(planes)]
    )


def unpack_planes(packed: Array, channels: int) -> Array:
    """Levels uint8 [..., channels] of uint32 planes [planes, ..., words]: undoes `pack_planes`."""
    bits = (packed[..., None] >> np.arange(32, dtype=np.uint32)) & 1
    flat = bits.reshape(*packed.shape[:-1], -1)[..., :channels]
    scale = (1 << np.arange(packed.shape[0], dtype=np.uint32)).reshape(-1, *[1] * (flat.ndim - 1))
    return (flat * scale).sum(0).astype(np.uint8)


def pack_weights(signature: KernelSignature, q: Array) -> Array:
    """Weights q [O, KH, KW, C] in the layout that the signature's kernel reads.

    Popcount weights are the bits of `q` (two's complement for signed ones); mac8 weights are int8.
    Padded channels, input and output, are 0.
    """
    o, kh, kw, c = q.shape
    outputs = round_up(o, BLOCK)
    padded = np.pad(
        q.astype(np.int32),
        [(0, outputs - o), (0, 0), (0, 0), (0, round_up(c, signature.channels_per_word) - c)],
    )
    if signature.family == "popcount":
        planes = pack_planes(
            (padded & ((1 << signature.weight_planes) - 1)), signature.weight_planes
        )
        by_block = planes.reshape(
            signature.weight_planes, outputs // signature.channels, signature.channels, -1
        )
        return np.ascontiguousarray(by_block.transpose(1, 0, 3, 2))
    group = signature.dot_group
    bytes_ = padded.astype(np.int8).reshape(
        outputs // signature.channels, signature.channels, -1, 4 // group, group
    )
    ordered = np.ascontiguousarray(bytes_.transpose(0, 2, 3, 1, 4))
    words = kh * kw * (padded.shape[3] // 4)
    return ordered.reshape(-1).view(np.uint32).reshape(-1, 1, words, signature.channels)


def unpack_weights(
    signature: KernelSignature, packed: Array, shape: tuple[int, int, int, int]
) -> Array:
    """Weights q int32 of `shape` [O, KH, KW, C]: undoes `pack_weights`."""
    o, kh, kw, c = shape
    words = round_up(c, signature.channels_per_word) // signature.channels_per_word
    if signature.family == "popcount":
        planes = packed.transpose(1, 0, 3, 2).reshape(signature.weight_planes, -1, kh, kw, words)
        q = unpack_planes(planes, words * 32).astype(np.int32)
        if signature.weights == "signed":
            sign = 1 << (signature.weight_planes - 1)
            q = (q ^ sign) - sign
        return q[:o, ..., :c]
    group = signature.dot_group
    bytes_ = np.ascontiguousarray(packed).view(np.int8)
    by_lane = bytes_.reshape(
        packed.shape[0], kh * kw * words, 4 // group, signature.channels, group
    )
    wide = by_lane.transpose(0, 3, 1, 2, 4).reshape(-1, kh, kw, words * 4)
    return wide[:o, ..., :c].astype(np.int32)


def raw_sums(signature: KernelSignature, data: Array, weights: Array) -> Array:
    """What a kernel's body computes over one window: int32 [..., O].

    `data` holds unsigned levels [..., K] and `weights` stored integers [O, K]. This is the meaning
    of the term plan itself, bit pair by bit pair.
    """
    if signature.family == "mac8":
        return (data.astype(np.float64) @ weights.astype(np.float64).T).astype(np.int32)
    total = np.zeros((*data.shape[:-1], weights.shape[0]), np.float64)
    for term in signature.terms:
        a = ((data.astype(np.int32) >> term.activation_plane) & 1).astype(np.float64)
        w = ((weights.astype(np.int32) >> term.weight_plane) & 1).astype(np.float64)
        both = a @ w.T
        if term.op == "xor":
            both = a.sum(-1)[..., None] + w.sum(-1) - 2 * both
        total += term.coefficient * both
    return total.astype(np.int32)
