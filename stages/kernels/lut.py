"""LUTs of activations: what four channels add to a sum, for every pattern of four weight bits.

One digit of the weights of four channels is the index of an entry, so one look-up takes the place
of four products (T-MAC, arXiv 2407.00088). Unipolar and signed weights are sums of digits 0 and 1,
bipolar ones of digits -1 and +1: there, an unset bit subtracts. What is subtracted from is the
largest level, so that no entry is negative; the constant that this adds is part of the bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.kernels.terms import products
from stages.layer_options import Encoding

Array = np.ndarray[Any, Any]
GROUP = 4
"""Input channels that a LUT combines."""
ENTRIES = 1 << GROUP
"""Entries of a LUT, a byte each: what TBL and VPSHUFB look up at once."""


@dataclass(frozen=True)
class Lut:
    """How a kernel looks products up, and which byte of its registers belongs to which channel.

    A register of `groups * channels` bytes holds sums of `channels` output channels, for `groups`
    groups of input channels side by side, 16 bytes of one beside 16 of the next. Flushing counters
    pulls `interleave` neighbouring bytes apart: they are channels `channels / interleave` apart.
    Entries of `words` words of a window are added up in bytes before they are widened.
    """

    activation_bits: int
    weight_bits: int
    weights: Encoding
    channels: int
    groups: int = 1
    interleave: int = 1
    words: int = 1

    @property
    def name(self) -> str:
        """The problem's name; how bytes are arranged follows from the instruction set."""
        several = f"_by{self.words}" if self.words > 1 else ""
        return f"a{self.activation_bits}w{self.weight_bits}_{self.weights}{several}"

    @property
    def lookups(self) -> int:
        """Look-ups of a register for a word."""
        return 32 // GROUP // self.groups

    @property
    def is_balanced(self) -> bool:
        """Whether an unset bit of a weight subtracts its channel, instead of leaving it out."""
        return self.weights == "bipolar"

    @property
    def coefficients(self) -> tuple[int, ...]:
        """What each digit of a stored weight counts, the lowest first."""
        top = self.weight_bits - 1
        sign = -1 if self.weights == "signed" else 1
        return (*(1 << digit for digit in range(top)), sign << top)

    @property
    def largest(self) -> int:
        """The largest that one channel adds to an entry."""
        return int(additions(self.activation_bits, self.is_balanced).max())

    def table(self) -> Array:
        """What a kernel adds per pair of levels: int64 [2^n, 2^m]."""
        added = additions(self.activation_bits, self.is_balanced)
        stored = np.arange(1 << self.weight_bits)
        total = np.zeros((1 << self.activation_bits, 1 << self.weight_bits), np.int64)
        for digit, coefficient in enumerate(self.coefficients):
            total += coefficient * added[stored >> digit & 1].T
        return total

    def residual(self) -> Array:
        """Product less what is added, int64 [2^m]; AssertionError if levels change it."""
        rest = products(self.activation_bits, self.weight_bits, self.weights) - self.table()
        assert not (rest != rest[:1]).any(), self.name
        result: Array = rest[0]
        return result


def additions(bits: int, balanced: bool) -> Array:
    """What a channel adds to an entry, by its bit there and its level: int64 [2, 2^bits]."""
    levels = np.arange(1 << bits, dtype=np.int64)
    return np.stack(
        [levels[-1] - levels, levels[-1] + levels] if balanced else [0 * levels, levels]
    )


def entry_bits(channel: int) -> list[int]:
    """The bit of a channel of the group in every entry."""
    return [entry >> channel & 1 for entry in range(ENTRIES)]


def pack_lut(levels: Array, bits: int, balanced: bool) -> Array:
    """Levels [..., C] as uint8 [..., 4 * Cp]: one LUT after the other, Cp a multiple of 32."""
    added = additions(bits, balanced)
    padding = [(0, 0)] * (levels.ndim - 1) + [(0, -levels.shape[-1] % 32)]
    grouped = np.pad(levels, padding).reshape(*levels.shape[:-1], -1, GROUP)
    entries = sum(
        added[np.array(entry_bits(channel)), grouped[..., channel, None]]
        for channel in range(GROUP)
    )
    return np.asarray(entries, np.uint8).reshape(*levels.shape[:-1], -1)


def unpack_lut(packed: Array, balanced: bool) -> Array:
    """Levels uint8 [..., C] of uint8 [..., 4 * C]: undoes `pack_lut`."""
    tables = packed.reshape(*packed.shape[:-1], -1, ENTRIES)
    alone = tables[..., [1 << channel for channel in range(GROUP)]] - tables[..., :1]
    return (alone // (2 if balanced else 1)).reshape(*packed.shape[:-1], -1)


def pack_indices(lut: Lut, patterns: Array, channels: int) -> Array:
    """Stored patterns [O, ..., C] as uint32 [O / channels, digits, words, channels].

    Four bytes a channel and 32 input channels: a byte is two indices, the low one of the first
    `groups` groups and the high one of the next.
    """
    outputs, words = patterns.shape[0], patterns[0].size // 32
    digits = patterns[None] >> np.arange(lut.weight_bits).reshape(-1, *[1] * patterns.ndim) & 1
    places = 1 << np.arange(GROUP)
    indices = (digits.reshape(*_split(lut, outputs, words, channels), GROUP) * places).sum(-1)
    low, high = np.moveaxis(indices, -2, 0)
    ordered = (low | high << 4).astype(np.uint8).transpose(_ORDER)
    packed = np.ascontiguousarray(ordered).reshape(-1).view(np.uint32)
    return packed.reshape(outputs // channels, lut.weight_bits, words, channels)


def unpack_indices(lut: Lut, packed: Array, shape: Sequence[int]) -> Array:
    """Stored patterns int32 of `shape` [O, ..., C]: undoes `pack_indices`."""
    blocks, _, words, channels = packed.shape
    *split, _, groups = _split(lut, blocks * channels, words, channels)
    sizes = (*split, groups)
    ordered = np.ascontiguousarray(packed).view(np.uint8).reshape([sizes[axis] for axis in _ORDER])
    bytes_ = ordered.transpose(np.argsort(_ORDER)).astype(np.int32)
    indices = np.stack([bytes_ & 15, bytes_ >> 4], -2)
    digits = (indices[..., None] >> np.arange(GROUP) & 1).reshape(lut.weight_bits, *shape)
    places = np.arange(lut.weight_bits).reshape(-1, *[1] * len(shape))
    result: Array = (digits << places).sum(0).astype(np.int32)
    return result


_ORDER = (1, 0, 6, 7, 2, 4, 8, 5, 3)
"""Axes of `_split`, without the half of a byte, as they lie in memory."""


def _split(lut: Lut, outputs: int, words: int, channels: int) -> tuple[int, ...]:
    """Axes of indices: where an output channel is, then where an input channel is.

    Digit, block, register, interleaved byte, 16 bytes of a register, byte or word of those; window
    word, unit of it, half of a byte, group beside others.
    """
    part = lut.channels // lut.interleave
    half = lut.channels // ENTRIES
    return (
        lut.weight_bits,
        outputs // channels,
        channels // lut.channels,
        lut.interleave,
        half,
        part // half,
        words,
        4 // lut.groups,
        2,
        lut.groups,
    )
