"""Packed layouts, derived from a kernel signature: the only place where bits are arranged.

Activations become uint32 [P, Hp, Wp, CW] (plane or sum, padded height and width, word) and weights
uint32 [OB, P, KH * KW * CW, channels] (block of output channels, plane, window word, channel);
channel `c` sits in bit (popcount) or byte (mac8) `c mod per_word` of word `c div per_word`; where
bytes are stored in fewer bits (`WeightCode`), words are as many times fewer. Which planes and sums
there are is what the signature's term plan says: truth tables over levels. LUTs and the indices
into them have the same sizes; see `stages.kernels.lut` for what is in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hw.isa.gfni import REGISTER
from stages.dialect.calls import storage_dtype
from stages.dialect.float_linear import float64_of
from stages.kernels.coupling import left_out
from stages.kernels.lut import pack_indices, unpack_indices, unpack_lut
from stages.kernels.operand_storage import BYTE_BITS, WORD_BITS, Stored, WeightCode
from stages.kernels.signature import BLOCK, KernelSignature
from stages.kernels.terms import plane_bits
from stages.kernels.weight_words import by_channels, in_words
from stages.kernels.winograd_transforms import Transform, pack_transformed
from stages.layer_options import Encoding

Array = np.ndarray[Any, Any]
_WORD = {"float32": np.float32, "uint16": np.uint32, "float16": np.uint32}
"""Type of weights that are floats, or bits of bfloat16 → that of a word of them."""


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`."""
    return -(-value // multiple) * multiple


def pack_planes(levels: Array, planes: Sequence[int]) -> Array:
    """Bit planes, each a table over levels, of levels [..., C] as uint32 [P, ..., ceil(C / 32)].

    Channels that fill up the last word are at level 0.
    """
    grouped = _in_words(levels)
    count = max(*(table.bit_length() for table in planes), int(levels.max(initial=0)) + 1)
    tables = [plane_bits(table, count).astype(np.bool_) for table in planes]
    packed = [np.packbits(table[grouped], axis=-1, bitorder="little") for table in tables]
    return np.stack([by_byte.view("<u4")[..., 0].astype(np.uint32) for by_byte in packed])


def pack_activations(stored: Stored, levels: Array) -> Array:
    """Levels [..., C] as they are stored, uint32 [words, ..., CW]: planes, then sums; or planes
    inside a pixel, [1, ..., words * CW]."""
    planes = pack_planes(levels, stored.planes)
    grouped = _in_words(levels)
    sums = [
        np.array(values, np.int64)[grouped].sum(-1).astype(np.int32).view(np.uint32)[None]
        for values in stored.sums
    ]
    outermost = np.concatenate([planes, *sums])
    if not stored.inner:
        return outermost
    parted = outermost.reshape(*outermost.shape[:-1], -1, stored.inner)
    inside = np.ascontiguousarray(np.moveaxis(parted, 0, -2))
    return inside.reshape(1, *outermost.shape[1:-1], -1)


def _outermost(stored: Stored, data: Array) -> Array:
    """Planes as the outermost axis, uint32 [words, ..., CW]."""
    if not stored.inner:
        return data
    inside = data.reshape(*data.shape[1:-1], -1, stored.words, stored.inner)
    return np.moveaxis(inside, -2, 0).reshape(stored.words, *data.shape[1:-1], -1)


def _in_words(levels: Array) -> Array:
    channels = levels.shape[-1]
    padding = [(0, 0)] * (levels.ndim - 1) + [(0, round_up(channels, WORD_BITS) - channels)]
    return np.pad(levels, padding).reshape(*levels.shape[:-1], -1, WORD_BITS)


def unpack_planes(packed: Array, planes: Sequence[int], bits: int) -> Array:
    """Levels uint8 [..., C] of uint32 planes [P, ..., words]: undoes `pack_planes`."""
    tables = np.stack([plane_bits(table, 1 << bits) for table in planes])
    codes = (tables << np.arange(len(planes))[:, None]).sum(0)
    if len(set(codes.tolist())) < len(codes):
        raise ValueError(f"planes {list(planes)} do not tell all levels of {bits} bits apart")
    level_of = np.zeros(1 << len(planes), np.uint8)
    level_of[codes] = np.arange(1 << bits)
    found = (packed[..., None] >> np.arange(WORD_BITS, dtype=np.uint32)) & 1
    place = np.arange(len(planes), dtype=np.uint32).reshape(-1, *[1] * (packed.ndim))
    code = (found << place).sum(0)
    return level_of[code].reshape(*packed.shape[1:-1], -1)


def unpack_activations(signature: KernelSignature, data: Array) -> Array:
    """Levels [..., C] of what a kernel reads, whichever its family."""
    if signature.is_rebased:
        return data ^ np.uint8(signature.offset)
    if (stored := signature.stored) is not None:
        planes = _outermost(stored, data)[: len(stored.planes)]
        return unpack_planes(planes, stored.planes, stored.bits)
    return data if signature.lut is None else unpack_lut(data, signature.lut.is_balanced)


def pack_weights(signature: KernelSignature, q: Array, transform: Transform | None = None) -> Array:
    """Weights q [O, KH, KW, C] in the layout that the signature's kernel reads.

    Popcount weights are planes of the stored patterns (two's complement for signed ones), those
    that are looked up indices of them; mac8 weights are int8, or int16 where pixels are widened,
    and rows of a window are whole words. Those of mac16 are transformed (`winograd_transforms.py`).
    Padded channels, input and output, are 0. Floats stay floats: float32 instead of uint32. Of
    bfloat16, bits in uint16, and of float16 two neighbours are a word.
    """
    if signature.is_transformed:
        assert transform is not None, "nothing says how weights are transformed"
        return pack_transformed(signature, q, transform)
    o, kh, kw, c = q.shape
    if signature.form == "bytes":
        # A row of a window is one pixel, of as many channels as it has bytes. Where channels fill
        # no words, pixels lie close together, and weights of what is behind the last one are 0.
        q, kw, c = q.reshape(o, kh, 1, kw * c), 1, kw * c
    outputs = round_up(o, BLOCK)
    padded = np.pad(
        q if signature.is_float else q.astype(np.int32),
        [(0, outputs - o), (0, 0), (0, 0), (0, round_up(c, signature.row_unit) - c)],
    )
    blocks = outputs // signature.channels
    if (lut := signature.lut) is not None:
        return pack_indices(lut, padded & ((1 << lut.weight_bits) - 1), signature.channels)
    if signature.plan is not None:
        patterns = padded & ((1 << signature.plan.weight_bits) - 1)
        planes = pack_planes(patterns, signature.plan.weight_planes)
        by_block = planes.reshape(len(planes), blocks, signature.channels, -1)
        return in_words(signature, by_block.transpose(1, 0, 2, 3))
    assert signature.products is not None
    elements = padded if signature.is_float else padded.astype(signature.products.element)
    parts = elements.reshape(blocks, signature.channels, -1, signature.products.group)
    ordered = np.ascontiguousarray(parts.transpose(0, 2, 1, 3))
    if (code := signature.code) is not None:
        stored = _coded(code, ordered.reshape(-1, REGISTER.bytes))
        return stored.view(np.uint32).reshape(
            blocks, 1, -1, signature.channels // signature.expansion
        )
    word = _WORD.get(elements.dtype.name, np.uint32)
    return ordered.reshape(-1).view(word).reshape(blocks, 1, -1, signature.channels)


def unpack_weights(
    signature: KernelSignature, packed: Array, shape: tuple[int, int, int, int]
) -> Array:
    """Weights q int32, or floats, of `shape` [O, KH, KW, C]: undoes `pack_weights`."""
    o, kh, kw, c = shape
    if signature.is_float:
        depth = round_up(c, signature.channels_per_word)
        return _unpack_products(signature, packed, (kh, kw, depth))[:o, ..., :c]
    if signature.form == "bytes":
        row = round_up(kw * c, signature.row_unit)
        rows = _unpack_products(signature, packed, (kh, row)).astype(np.int32)
        return rows[:o, :, : kw * c].reshape(shape)
    words = round_up(c, signature.channels_per_word) // signature.channels_per_word
    if (plan := signature.plan) is not None:
        by_channel = by_channels(signature, packed).transpose(1, 0, 2, 3)
        planes = by_channel.reshape(len(plan.weight_planes), -1, kh, kw, words)
        q = unpack_planes(planes, plan.weight_planes, plan.weight_bits).astype(np.int32)
        return _stored(q, plan.weight_bits, plan.weights)[:o, ..., :c]
    lut = signature.lut
    assert lut is not None
    widened = (packed.shape[0] * signature.channels, kh, kw, words * WORD_BITS)
    q = unpack_indices(lut, packed, widened)
    return _stored(q, lut.weight_bits, lut.weights)[:o, ..., :c]


def _unpack_products(signature: KernelSignature, packed: Array, window: tuple[int, ...]) -> Array:
    """Weights [OCp, *window] of kernels of products, in the type that they are multiplied in."""
    assert signature.products is not None
    elements = np.ascontiguousarray(packed).view(storage_dtype(signature.products.element))
    if (code := signature.code) is not None:
        elements = _decoded(code, elements.reshape(-1, REGISTER.bytes // signature.expansion))
    by_lane = elements.reshape(len(packed), -1, signature.channels, signature.products.group)
    return by_lane.transpose(0, 2, 1, 3).reshape(-1, *window)


def _coded(code: WeightCode, weights: Array) -> Array:
    """Weights [N, 64] as `hw.isa.gfni` has them in registers, uint8 [N, 8 * bits].

    The first ones are the lowest bits of all bytes, the next ones those above, and so on.
    """
    numbers = code.numbers(weights).reshape(len(weights), -1, BYTE_BITS * code.bits)
    places = code.bits * np.arange(numbers.shape[1])[:, None]
    return (numbers << places).sum(1).astype(np.uint8)


def _decoded(code: WeightCode, stored: Array) -> Array:
    """Weights int32 [N, 64] of what `_coded` makes of them."""
    places = code.bits * np.arange(BYTE_BITS // code.bits)[:, None]
    numbers = stored.view(np.uint8)[:, None] >> places & ((1 << code.bits) - 1)
    return code.weights(numbers.reshape(len(stored), -1))


def _stored(patterns: Array, bits: int, weights: Encoding) -> Array:
    """Stored integers of their patterns."""
    sign = 1 << (bits - 1) if weights == "signed" else 0
    return (patterns ^ sign) - sign


def pack_rows(values: Array, count: int) -> Array:
    """[N, H, W, C] as [N, H / count, W, count * C]: rows behind one another, as channels of one."""
    n, height, width, channels = values.shape
    rows = values.reshape(n, height // count, count, width, channels)
    return rows.transpose(0, 1, 3, 2, 4).reshape(n, height // count, width, count * channels)


def raw_sums(signature: KernelSignature, data: Array, weights: Array) -> Array:
    """What a kernel computes over one window, activation sums included: int32 [..., O].

    `data` holds unsigned levels [..., K] and `weights` stored integers [O, K]. This is the meaning
    of the term plan or the LUTs themselves, level pair by level pair, less what coupled words
    leave out. Sums of floats are float32 of sums in float64: kernels round after every product.
    """
    if signature.products is not None:
        if signature.is_float:
            with np.errstate(over="ignore", invalid="ignore"):
                return (float64_of(data) @ float64_of(weights).T).astype(np.float32)
        levels = data.astype(np.float64) - signature.offset
        return (levels @ weights.astype(np.float64).T).astype(np.int32)
    table = signature.table()
    # Floats of 32 bits, which are quicker, hold sums of up to 24 bits exactly.
    is_small = int(np.abs(table).max()) * data.shape[-1] < 1 << 24
    exact = np.float32 if is_small else np.float64
    table = table.astype(exact)
    patterns = weights.astype(np.int32) & (table.shape[1] - 1)
    total = np.zeros((*data.shape[:-1], weights.shape[0]), exact)
    for pattern in range(table.shape[1]):
        total += table[:, pattern][data] @ (patterns == pattern).astype(exact).T
    sums = total.astype(np.int32)
    if signature.coupled:
        sums -= left_out(signature, weights)
    return sums
