"""Convolutions of 3x3 pixels with fewer products, exactly: Winograd's in integers.

Of 6x6 pixels, F(4x4, 3x3) computes 4x4 sums from 36 products a channel instead of 144 (A. Lavin and
S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016, section 4). As published its
matrices hold fractions. Here rows of G are multiplied by 4, -6, -6, 24, 24 and 1, columns of A by
24 over that, and what then divides a row of A is taken out of it. So every number is an integer,
and a sum comes out as some power of two times 9 too large.

A small image has few such tiles, and waits for their weights, of which there are four times as
many as before. There F(2x2, 3x3) may take less time: 16 products for 36, and 1.8 times the weights.

Where windows move by two, the first and last pixel of each are convolved with pixels of even
number, two weights at a time, and the middle one is multiplied by itself: F(2, 2) and two products,
without fractions, compute 2x2 sums of 5x5 pixels from 25 products instead of 36.

Pixels and weights of 8 bits become integers of 16 bits. Sums wrap around at 32 bits, which does no
harm: a sum times 9 and a power of two, modulo 2^32, is the sum itself once it is multiplied by the
inverse of 9 and shifted, if it fits the bits that are left (`Transform.fits`).

Floats are transformed alike, but that their weights are divided by 9, rounded once; powers of two
cost them nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from stages.kernels.signature import BLOCK, KernelSignature

Array = np.ndarray[Any, Any]


class Value(Protocol):
    """Whatever has additions and products with powers of two: an array, a vector of a kernel."""

    def __add__(self, other: Self, /) -> Self: ...
    def __sub__(self, other: Self, /) -> Self: ...
    def __mul__(self, factor: int, /) -> Self: ...


V = TypeVar("V", bound=Value)
Column = Callable[[Sequence[Any]], list[Any]]
"""A transform of some values, by additions and powers of two, of whatever has these."""
WINDOW = 3
"""Pixels of a window along each axis."""
WINOGRAD_TILES_A_RUN = 16
"""Tiles that are multiplied by the weights of one product before those of the next one: with AVX2
on a Zen 4, 8 took 1.06 of the time of a ResNet-18 and 32 the same."""
TOP = 255
"""The largest pixel."""
APART = 32
"""Elements between the tiles of one product and the next: of a power of two of bytes all would be
in the same few sets of a cache."""


@dataclass(frozen=True)
class Transform:
    """One of Winograd's algorithms along both axes: a tile of pixels gives one of sums."""

    stride: int
    """Pixels that windows move by."""
    outputs: int
    """Sums of a tile along each axis."""
    weights: tuple[tuple[int, int, int], ...]
    """Rows of G, one a pixel of a tile, each as small as integers allow."""
    data_column: Column
    """B^T d: of the pixels of a column what is multiplied, as many."""
    sums_column: Column
    """A^T m: of the products of a column its sums, some times too large."""
    shifts: tuple[int, ...]
    """How many times too large each is, a power of two."""
    odd: int = 1
    """How many times too large they are beside that, along both axes."""

    @property
    def pixels(self) -> int:
        """Pixels of a tile along each axis."""
        return len(self.weights)

    @property
    def inverse(self) -> int:
        """The inverse of `odd` modulo 2^32."""
        return pow(self.odd, -1, 1 << 32)

    @property
    def products(self) -> int:
        """Products of a tile, a channel."""
        return self.pixels**2

    @property
    def saved(self) -> float:
        """Products of a convolution that each of these stands for."""
        return (self.outputs * WINDOW) ** 2 / self.products

    @property
    def sum_bits(self) -> int:
        """Bits of a sum that a multiple of it, modulo 2^32, leaves known."""
        return 32 - 2 * max(self.shifts)

    def shift_of(self, number: int) -> int:
        """The power of two that the sum of this number in its tile is too large by."""
        row, column = divmod(number, self.outputs)
        return self.shifts[row] + self.shifts[column]

    def tiles_of(self, extent: int) -> int:
        """Tiles along an axis of so many sums; the last one may have some that nobody wants."""
        return -(-extent // self.outputs)

    def tiles_in(self, output: Sequence[int]) -> int:
        """Tiles of an image of so many sums, down and across."""
        return prod(map(self.tiles_of, output))

    def reach(self, extent: int) -> int:
        """Pixels along an axis that the tiles of so many sums are of."""
        return (self.tiles_of(extent) * self.outputs - 1) * self.stride + WINDOW

    def of_data(self, square: Sequence[V]) -> list[V]:
        """What is multiplied of the pixels of a tile, row by row."""
        return both_ways(self.data_column, square, self.pixels)

    def of_products(self, square: Sequence[V]) -> list[V]:
        """The sums of a tile from its products, row by row, some times too large."""
        return both_ways(self.sums_column, square, self.outputs)

    def of_weights(self, q: Array) -> Array:
        """Weights int8 or float32 [O, 3, 3, C] as int16 or float32 [products, O, C]."""
        is_float = q.dtype.kind == "f"
        wide = q.astype(np.float64) if is_float else q.astype(np.int32)
        square = np.einsum("iy,oyxc,jx->ijoc", self.weights, wide, self.weights)
        flat = square.reshape(self.products, *square.shape[2:])
        return (flat / self.odd).astype(np.float32) if is_float else flat.astype(np.int16)

    def fits(self, q: Array) -> bool:
        """Whether weights int8 [O, 3, 3, C] times any pixels give sums of `sum_bits`, signed."""
        by_output = q.reshape(len(q), -1).astype(np.int64)
        most = max(int(np.where(by_output > 0, by_output, 0).sum(1).max(initial=0)), 0)
        least = min(int(np.where(by_output < 0, by_output, 0).sum(1).min(initial=0)), 0)
        limit = 1 << (self.sum_bits - 1)
        return most * TOP < limit and least * TOP >= -limit

    def tiles_of_images(self, levels: Array) -> Array:
        """Padded images [N, Hp, Wp, C], as high and wide as tiles reach, as what is multiplied:
        int16, or float32 of floats, [products, N * tiles, C], of all tiles row by row."""
        size, step = self.pixels, self.outputs * self.stride
        view = np.lib.stride_tricks.sliding_window_view(levels, (size, size), (1, 2))
        tiles = view[:, ::step, ::step].transpose(4, 5, 0, 1, 2, 3)
        kind = np.float32 if levels.dtype.kind == "f" else np.int16
        flat = tiles.reshape(self.products, -1, levels.shape[-1]).astype(kind)
        pixels: list[Any] = list(flat)  # an array a pixel of a tile
        return np.stack(self.of_data(pixels))

    def sums_of(self, tiles: Array, weights: Array, output: Sequence[int]) -> Array:
        """Sums int32 [N, OH, OW, O] of tiles int16 [products, T, C] and weights int16 [products, O,
        C]; or float32 of float32, added up in float64 and rounded once."""
        wide = np.float64 if tiles.dtype.kind == "f" else np.int64
        products = np.einsum("itc,ioc->ito", tiles.astype(wide), weights.astype(wide))
        height, width = output
        down, across = self.tiles_of(height), self.tiles_of(width)
        multiples = enumerate(self.of_products(list(products)))
        square = np.stack([self._once(multiple, number) for number, multiple in multiples])
        by_tile = square.reshape(self.outputs, self.outputs, -1, down, across, square.shape[-1])
        whole = by_tile.transpose(2, 3, 0, 4, 1, 5).reshape(
            -1, down * self.outputs, across * self.outputs, square.shape[-1]
        )
        return whole[:, :height, :width]

    def _once(self, multiple: Array, number: int) -> Array:
        """Sums, of how many times too large they are, modulo 2^32."""
        shift = self.shift_of(number)
        if multiple.dtype.kind == "f":
            return np.ldexp(multiple, -shift).astype(np.float32)
        return (multiple * self.inverse).astype(np.uint32).view(np.int32) >> shift


def both_ways(column: Callable[[Sequence[V]], list[V]], square: Sequence[V], size: int) -> list[V]:
    """A transform of the columns of a square, row by row, then of the rows of what that gives,
    `size` values each."""
    side = round(len(square) ** 0.5)
    columns = [column(square[x::side]) for x in range(side)]
    rows = [[columns[x][y] for x in range(side)] for y in range(size)]
    return [value for row in rows for value in column(row)]


def _data_by_one(d: Sequence[V]) -> list[V]:
    even, odd = d[4] - d[2], d[3] - d[1]
    near, far = d[4] - d[2] * 4, d[3] - d[1] * 4
    twice = odd + odd
    first, last = (d[0] - d[2]) * 4 + even, (d[1] - d[3]) * 4 + (d[5] - d[3])
    return [first, near + far, near - far, even + twice, even - twice, last]


def _sums_by_one(m: Sequence[V]) -> list[V]:
    ones, more = m[1] + m[2], m[2] - m[1]
    twos, fewer = m[3] + m[4], m[3] - m[4]
    first, last = m[0] * 4 + m[0] * 2, m[5] * 4 + m[5] * 2
    return [
        first - ones * 4 + twos,
        more * 2 + fewer,
        twos - ones,
        more + fewer * 2 + last,
    ]


def _data_by_one_small(d: Sequence[V]) -> list[V]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _sums_by_one_small(m: Sequence[V]) -> list[V]:
    return [m[0] + m[0] + (m[1] + m[2]), m[1] - m[2] - (m[3] + m[3])]


def _data_by_two(d: Sequence[V]) -> list[V]:
    return [d[0] - d[2], d[2], d[2] - d[4], d[1], d[3]]


def _sums_by_two(m: Sequence[V]) -> list[V]:
    return [m[0] + m[1] + m[3], m[1] - m[2] + m[4]]


BY_ONE = Transform(
    stride=1,
    outputs=4,
    weights=((1, 0, 0), (1, 1, 1), (1, -1, 1), (1, 2, 4), (1, -2, 4), (0, 0, 1)),
    data_column=_data_by_one,
    sums_column=_sums_by_one,
    shifts=(3, 2, 1, 1),  # 24, 12, 6 and 6 are 3 times these
    odd=9,
)
SMALL_BY_ONE = Transform(
    stride=1,
    outputs=2,
    weights=((1, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 1)),
    data_column=_data_by_one_small,
    sums_column=_sums_by_one_small,
    shifts=(1, 1),
)
BY_TWO = Transform(
    stride=2,
    outputs=2,
    weights=((1, 0, 0), (1, 0, 1), (0, 0, 1), (0, 1, 0), (0, 1, 0)),
    data_column=_data_by_two,
    sums_column=_sums_by_two,
    shifts=(0, 0),
)
TRANSFORMS = BY_ONE, SMALL_BY_ONE, BY_TWO


def transforms_of(strides: Sequence[int]) -> list[Transform]:
    """The transforms for windows that move so."""
    return [one for one in TRANSFORMS if tuple(strides) == (one.stride, one.stride)]


def transform_for(strides: Sequence[int], outputs: int) -> Transform:
    """The one whose tiles give so many sums along each axis."""
    found = next((one for one in transforms_of(strides) if one.outputs == outputs), None)
    assert found is not None, f"no transform to {outputs} sums for windows that move by {strides}"
    return found


def pack_transformed(signature: KernelSignature, q: Array, transform: Transform) -> Array:
    """Weights int8 [O, 3, 3, C], C even, as a kernel reads them: uint32 [OB, products, C / 2,
    channels], two channels a word. Of float32, float32 [OB, products, C, channels]."""
    assert signature.products is not None
    group, channels = signature.products.group, signature.channels
    per_word = signature.channels_per_word
    square, depth = transform.of_weights(q), q.shape[3] // per_word
    padded = np.pad(square, [(0, 0), (0, -len(q) % BLOCK), (0, 0)])
    words = padded.reshape(len(square), -1, channels, depth, per_word // group, group)
    ordered = np.ascontiguousarray(words.transpose(1, 0, 3, 4, 2, 5)).reshape(-1)
    kind = np.float32 if signature.is_float else np.uint32
    return ordered.view(kind).reshape(-1, len(square), depth, channels)


def unpack_transformed(signature: KernelSignature, packed: Array) -> Array:
    """What is multiplied, int16 or float32 [products, OCp, C]: undoes `pack_transformed` but for
    the transform."""
    assert signature.products is not None
    group, per_word = signature.products.group, signature.channels_per_word
    blocks, products, words, channels = packed.shape
    elements = np.ascontiguousarray(packed).view(signature.products.element)
    parts = elements.reshape(blocks, products, words, per_word // group, channels, group)
    return parts.transpose(1, 0, 4, 2, 3, 5).reshape(products, blocks * channels, per_word * words)


def calls_a_run(winograd_tiles: int, rows: int) -> int:
    """Calls of a kernel of `rows` tiles, one behind another, for the weights of one product.

    Weights that come from the L2 cache are taken to cost an eighth of a call: for that much a
    last run may repeat some of the tiles before it.
    """
    calls = -(-winograd_tiles // rows)
    most = max(1, min(WINOGRAD_TILES_A_RUN, winograd_tiles) // rows)
    return min(range(1, most + 1), key=lambda n: -(-calls // n) * (n + 1 / 8))
