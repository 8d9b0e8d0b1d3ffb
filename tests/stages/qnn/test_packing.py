"""Packed layouts: what is packed comes back, and every bit lies where the layout says."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.qnn.packing import (
    pack_planes,
    pack_weights,
    raw_sums,
    round_up,
    unpack_planes,
    unpack_weights,
)
from stages.qnn.signature import BLOCK, KernelSignature
from tests.stages.qnn.signatures import MAC8, POPCOUNT, SIGNATURES, levels, meaning, stored

SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 3), st.integers(1, 3), st.integers(1, 70))


@given(st.integers(1, 8), st.lists(st.integers(1, 4), max_size=3), st.integers(1, 70), SEEDS)
def test_planes_come_back(planes: int, outer: list[int], channels: int, seed: int) -> None:
    shape = (*outer, channels)
    x = np.random.default_rng(seed).integers(0, 1 << planes, shape).astype(np.uint8)
    packed = pack_planes(x, planes)
    assert packed.dtype == np.uint32
    assert packed.shape == (planes, *outer, -(-channels // 32))
    assert np.array_equal(unpack_planes(packed, channels), x)


@given(st.integers(1, 3), st.integers(1, 70), SEEDS)
def test_a_channel_is_a_bit(planes: int, channels: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 1 << planes, channels).astype(np.uint8)
    packed = pack_planes(x, planes)
    for plane in range(planes):
        for channel in range(round_up(channels, 32)):
            bit = (int(packed[plane, channel // 32]) >> (channel % 32)) & 1
            expected = (int(x[channel]) >> plane) & 1 if channel < channels else 0
            assert bit == expected


@settings(max_examples=60)
@given(SIGNATURES, SHAPES, SEEDS)
def test_weights_come_back(
    signature: KernelSignature, shape: tuple[int, int, int, int], seed: int
) -> None:
    q = stored(np.random.default_rng(seed), signature, shape)
    packed = pack_weights(signature, q)
    o, kh, kw, c = shape
    words = kh * kw * -(-c // signature.channels_per_word)
    blocks = round_up(o, BLOCK) // signature.channels
    assert packed.dtype == np.uint32
    assert packed.shape == (blocks, signature.weight_planes, words, signature.channels)
    assert packed.flags.c_contiguous
    assert np.array_equal(unpack_weights(signature, packed, shape), q)


@settings(max_examples=30)
@given(SIGNATURES, SHAPES, SEEDS)
def test_padded_channels_are_zero(
    signature: KernelSignature, shape: tuple[int, int, int, int], seed: int
) -> None:
    """Input channels up to a word, output channels up to a block."""
    q = stored(np.random.default_rng(seed), signature, shape)
    o, kh, kw, c = shape
    whole = (round_up(o, BLOCK), kh, kw, round_up(c, signature.channels_per_word))
    unpacked = unpack_weights(signature, pack_weights(signature, q), whole)
    assert not unpacked[o:].any()
    assert not unpacked[..., c:].any()
    assert np.array_equal(unpacked[:o, ..., :c], q)


@settings(max_examples=30)
@given(POPCOUNT, SHAPES, SEEDS)
def test_where_a_weight_bit_lies(
    signature: KernelSignature, shape: tuple[int, int, int, int], seed: int
) -> None:
    """[block][plane][ky, kx, word][channel], bit c mod 32."""
    rng = np.random.default_rng(seed)
    q = stored(rng, signature, shape)
    packed, words = pack_weights(signature, q), -(-shape[3] // 32)
    for _ in range(20):
        o, ky, kx, c = (int(rng.integers(extent)) for extent in shape)
        word = (ky * shape[2] + kx) * words + c // 32
        for plane in range(signature.weight_planes):
            lane = packed[o // signature.channels, plane, word, o % signature.channels]
            assert (int(lane) >> (c % 32)) & 1 == (int(q[o, ky, kx, c]) >> plane) & 1


@settings(max_examples=30)
@given(MAC8, SHAPES, SEEDS)
def test_where_a_weight_byte_lies(
    signature: KernelSignature, shape: tuple[int, int, int, int], seed: int
) -> None:
    """[block][ky, kx, word][step][channel][byte of the dot product]."""
    rng = np.random.default_rng(seed)
    q = stored(rng, signature, shape)
    group, lanes, words = signature.dot_group, signature.channels, -(-shape[3] // 4)
    flat = pack_weights(signature, q).reshape(-1).view(np.int8)
    for _ in range(20):
        o, ky, kx, c = (int(rng.integers(extent)) for extent in shape)
        word = (ky * shape[2] + kx) * words + c // 4
        step, byte = divmod(c % 4, group)
        index = o // lanes * (shape[1] * shape[2] * words) + word
        index = ((index * (4 // group) + step) * lanes + o % lanes) * group + byte
        assert flat[index] == q[o, ky, kx, c]


@settings(max_examples=60)
@given(SIGNATURES, st.integers(1, 50), st.integers(1, 9), st.integers(1, 4), SEEDS)
def test_raw_sums_are_products(
    signature: KernelSignature, depth: int, outputs: int, pixels: int, seed: int
) -> None:
    """`correction.scale * raw + v(w)` is the product of levels and weights, for every encoding."""
    rng = np.random.default_rng(seed)
    a, q = levels(rng, signature, (pixels, depth)), stored(rng, signature, (outputs, depth))
    raw = raw_sums(signature, a, q)
    product = a.astype(np.int64) @ meaning(signature, q).T
    of_weights = np.zeros(outputs, np.int64)
    if signature.family == "popcount" and signature.weights == "bipolar":
        of_weights = ((1 << signature.activation_planes) - 1) * q.astype(np.int64).sum(1)
    assert raw.dtype == np.int32
    assert np.array_equal(signature.correction.scale * raw + of_weights, product)


@given(SIGNATURES, st.integers(1, 70), SEEDS)
def test_padding_channels_adds_nothing(signature: KernelSignature, depth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, q = levels(rng, signature, (3, depth)), stored(rng, signature, (5, depth))
    width = round_up(depth, signature.channels_per_word) - depth
    wide = (np.pad(x, [(0, 0), (0, width)]) for x in (a, q))
    assert np.array_equal(raw_sums(signature, *wide), raw_sums(signature, a, q))
