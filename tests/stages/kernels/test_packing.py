"""Packed layouts: what is packed comes back, and every bit lies where the layout says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.kernels.operand_storage import Stored
from stages.kernels.packing import (
    pack_activations,
    pack_planes,
    pack_weights,
    raw_sums,
    round_up,
    unpack_planes,
    unpack_weights,
)
from stages.kernels.signature import BLOCK, KernelSignature, stored_by
from stages.kernels.terms import TermPlan, raw_planes
from stages.synthesizing.interaction import residual
from tests.stages.kernels.signatures import (
    MAC8,
    POPCOUNT,
    SIGNATURES,
    joined,
    levels,
    meaning,
    patterns,
    stored,
)
from tests.stages.synthesizing.plans import PLANS

Array = np.ndarray[Any, Any]
SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 3), st.integers(1, 3), st.integers(1, 70))
OUTER = st.lists(st.integers(1, 4), max_size=3)


def tells_apart(bits: int, planes: list[int]) -> bool:
    return len({tuple(p >> level & 1 for p in planes) for level in range(1 << bits)}) == 1 << bits


@st.composite
def recodings(draw: st.DrawFn) -> tuple[int, list[int]]:
    """Bits, and planes in any order that tell all levels apart: digits, complements, any table."""
    bits = draw(st.integers(1, 4))
    full = (1 << (1 << bits)) - 1
    digits = [plane ^ (full * draw(st.booleans())) for plane in raw_planes(bits)]
    others = draw(st.lists(st.integers(0, full), max_size=3))
    planes = draw(st.permutations([*digits, *others]))
    return bits, next(planes[:n] for n in range(len(planes) + 1) if tells_apart(bits, planes[:n]))


@given(recodings(), OUTER, st.integers(1, 70), SEEDS)
def test_planes_come_back(
    recoding: tuple[int, list[int]], outer: list[int], channels: int, seed: int
) -> None:
    bits, planes = recoding
    x = np.random.default_rng(seed).integers(0, 1 << bits, (*outer, channels)).astype(np.uint8)
    packed = pack_planes(x, planes)
    assert packed.dtype == np.uint32
    assert packed.shape == (len(planes), *outer, -(-channels // 32))
    unpacked = unpack_planes(packed, planes, bits)
    assert np.array_equal(unpacked[..., :channels], x)
    assert not unpacked[..., channels:].any()


@pytest.mark.parametrize("bits", range(1, 9))
def test_digits_come_back(bits: int) -> None:
    x = np.arange(1 << bits, dtype=np.uint8)
    unpacked = unpack_planes(pack_planes(x, raw_planes(bits)), raw_planes(bits), bits)
    assert np.array_equal(unpacked[: len(x)], x)


@pytest.mark.parametrize("planes", [(0b1010,), (0b1010, 0b0101), (0b1110, 0b1000)])
def test_planes_that_leave_levels_open_are_refused(planes: tuple[int, ...]) -> None:
    packed = np.zeros((len(planes), 1), np.uint32)
    with pytest.raises(ValueError, match="do not tell all levels of 2 bits apart"):
        unpack_planes(packed, planes, 2)


@given(st.integers(1, 3), st.data(), st.integers(1, 70), SEEDS)
def test_a_channel_is_a_bit(bits: int, data: st.DataObject, channels: int, seed: int) -> None:
    """And channels that fill up a word are at level 0, which a plane may hold as ones."""
    tables = st.integers(0, (1 << (1 << bits)) - 1)
    planes = data.draw(st.lists(tables, min_size=1, max_size=4))
    x = np.random.default_rng(seed).integers(0, 1 << bits, channels).astype(np.uint8)
    packed = pack_planes(x, planes)
    for plane, table in enumerate(planes):
        for channel in range(round_up(channels, 32)):
            bit = (int(packed[plane, channel // 32]) >> (channel % 32)) & 1
            level = int(x[channel]) if channel < channels else 0
            assert bit == table >> level & 1


@given(st.sampled_from(PLANS), st.data(), OUTER, st.integers(1, 70), SEEDS)
def test_activations_are_planes_and_sums_of_32_channels(
    plan: TermPlan, data: st.DataObject, outer: list[int], channels: int, seed: int
) -> None:
    kept = data.draw(joined(plan))
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 1 << plan.activation_bits, (*outer, channels)).astype(np.uint8)
    packed = pack_activations(kept, x)
    words = -(-channels // 32)
    assert packed.dtype == np.uint32
    assert packed.shape == (kept.words, *outer, words)
    planes, sums = packed[: len(kept.planes)], packed[len(kept.planes) :].view(np.int32)
    back = unpack_planes(planes, kept.planes, kept.bits)
    assert np.array_equal(back[..., :channels], x)
    assert not back[..., channels:].any()
    for found, values in zip(sums, kept.sums, strict=True):
        by_word = np.array(values)[back].reshape(*outer, words, 32).sum(-1)
        assert np.array_equal(found, by_word)


def test_what_is_joined_serves_both_readers() -> None:
    for plan in PLANS:
        for other in PLANS:
            if plan.activation_bits != other.activation_bits:
                continue
            own, more = stored_by(plan), stored_by(other)
            both = own.joined(more)
            assert both.planes[: len(own.planes)] == own.planes
            assert set(both.planes) == {*own.planes, *more.planes}
            assert set(both.sums) == {*own.sums, *more.sums}
            assert len(set(both.planes)) == len(both.planes)
            assert both.joined(more) == both


def test_levels_of_different_widths_are_not_joined() -> None:
    with pytest.raises(ValueError, match="1 and 2 bits cannot be stored together"):
        Stored(1, (0b10,)).joined(Stored(2, (0b1010, 0b1100)))


def row_words(signature: KernelSignature, shape: tuple[int, int, int, int]) -> int:
    """Bits fill words pixel by pixel, bytes row by row of a window."""
    _, _, kw, c = shape
    per_word = signature.channels_per_word
    return -(-kw * c // per_word) if signature.form == "bytes" else kw * -(-c // per_word)


@settings(max_examples=60)
@given(SIGNATURES, SHAPES, SEEDS)
def test_weights_come_back(
    signature: KernelSignature, shape: tuple[int, int, int, int], seed: int
) -> None:
    q = stored(np.random.default_rng(seed), signature, shape)
    packed = pack_weights(signature, q)
    o, kh, *_ = shape
    words = kh * row_words(signature, shape)
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
    """Input channels up to a word, or a row of them, output channels up to a block."""
    q = stored(np.random.default_rng(seed), signature, shape)
    if signature.form == "bytes":
        q = q.reshape(*q.shape[:2], 1, -1)
    o, kh, kw, c = q.shape
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
    """[block][plane][ky, kx, word][channel], bit c mod 32: the plane's table at the pattern."""
    plan = signature.plan
    assert plan is not None
    rng = np.random.default_rng(seed)
    q = stored(rng, signature, shape)
    packed, words = pack_weights(signature, q), -(-shape[3] // 32)
    for _ in range(20):
        o, ky, kx, c = (int(rng.integers(extent)) for extent in shape)
        word = (ky * shape[2] + kx) * words + c // 32
        pattern = int(patterns(plan, q[o, ky, kx, c]))
        for plane, table in enumerate(plan.weight_planes):
            lane = packed[o // signature.channels, plane, word, o % signature.channels]
            assert (int(lane) >> (c % 32)) & 1 == table >> pattern & 1


@settings(max_examples=30)
@given(MAC8, SHAPES, SEEDS)
def test_where_a_weight_byte_lies(
    signature: KernelSignature, shape: tuple[int, int, int, int], seed: int
) -> None:
    """[block][ky, word][step][channel][byte of the dot product]; words go on from kx to kx."""
    assert signature.products is not None
    rng = np.random.default_rng(seed)
    q = stored(rng, signature, shape)
    group, lanes, words = signature.products.group, signature.channels, row_words(signature, shape)
    flat = pack_weights(signature, q).reshape(-1).view(np.int8)
    for _ in range(20):
        o, ky, kx, c = (int(rng.integers(extent)) for extent in shape)
        word, place = divmod(kx * shape[3] + c, 4)
        step, byte = divmod(place, group)
        index = (o // lanes * shape[1] + ky) * words + word
        index = ((index * (4 // group) + step) * lanes + o % lanes) * group + byte
        assert flat[index] == q[o, ky, kx, c]


def of_weights(signature: KernelSignature, q: Array) -> Array:
    """What products have beside the raw sums, a function of the weights alone: int64 [O]."""
    plan = signature.plan
    if plan is None:
        return np.zeros(len(q), np.int64)
    found: Array = residual(plan)[patterns(plan, q)].sum(1)
    return found


@settings(max_examples=100)
@given(SIGNATURES, st.integers(1, 50), st.integers(1, 9), st.integers(1, 4), SEEDS)
def test_raw_sums_are_products(
    signature: KernelSignature, depth: int, outputs: int, pixels: int, seed: int
) -> None:
    """`scale * raw + v(w)` is the product of levels and weights, for every plan."""
    rng = np.random.default_rng(seed)
    a, q = levels(rng, signature, (pixels, depth)), stored(rng, signature, (outputs, depth))
    raw = raw_sums(signature, a, q)
    product = a.astype(np.int64) @ meaning(signature, q).T
    assert raw.dtype == np.int32
    assert np.array_equal(signature.scale * raw + of_weights(signature, q), product)


@given(SIGNATURES, st.integers(1, 70), SEEDS)
def test_padding_channels_adds_a_function_of_the_plan_alone(
    signature: KernelSignature, depth: int, seed: int
) -> None:
    """Nothing to products; to popcounts what two operands at level 0 count."""
    rng = np.random.default_rng(seed)
    a, q = levels(rng, signature, (3, depth)), stored(rng, signature, (5, depth))
    width = round_up(depth, signature.channels_per_word) - depth
    wide = (np.pad(x, [(0, 0), (0, width)]) for x in (a, q))
    more = width * int(signature.plan.table()[0, 0]) if signature.plan else 0
    assert np.array_equal(raw_sums(signature, *wide), raw_sums(signature, a, q) + more)
