"""Convolutions of 3x3 pixels with a quarter of the products, exactly: Winograd's in integers.

Of 6x6 pixels, F(4x4, 3x3) computes 4x4 sums from 36 products a channel instead of 144 (A. Lavin and
S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016, section 4). As published its
matrices hold fractions. Here rows of G are multiplied by 4, -6, -6, 24, 24 and 1, columns of A by
24 over that, and what then divides a row of A is taken out of it. So every number is an integer,
and a sum comes out as one of `SCALES` per axis too large.

Pixels and weights of 8 bits become integers of 16 bits. Sums wrap around at 32 bits, which does no
harm: a sum times 9 and a power of two, modulo 2^32, is the sum itself once it is multiplied by the
inverse of 9 and shifted, if it fits the bits that are left (`fits`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.qnn.signature import BLOCK, KernelSignature

Array = np.ndarray[Any, Any]
OUTPUTS, PIXELS, WINDOW = 4, 6, 3
"""Along each axis: sums of a tile, the pixels that they are of, and those of a window."""
PRODUCTS = PIXELS * PIXELS
SAVED = (OUTPUTS * WINDOW) ** 2 // PRODUCTS
"""Products of a convolution that each of these stands for."""
WEIGHTS = np.array([[1, 0, 0], [1, 1, 1], [1, -1, 1], [1, 2, 4], [1, -2, 4], [0, 0, 1]])
"""Rows of G, each as small as integers allow."""
SCALES = (24, 12, 6, 6)
"""How many times too large the sums of a row are, and those of a column: 3 times a power of two."""
SHIFTS = tuple((scale // 3).bit_length() - 1 for scale in SCALES)
NINTH = pow(9, -1, 1 << 32)
"""What 9 times is 1, modulo 2^32."""
SUM_BITS = 32 - 2 * max(SHIFTS)
"""Bits of a sum that a multiple of it, modulo 2^32, leaves known."""
SQUARES_A_RUN = 16
"""Tiles that are multiplied by the weights of one product before those of the next one: with AVX2
on a Zen 4, 8 took 1.06 of the time of a ResNet-18 and 32 the same."""
TOP = 255
"""The largest pixel."""
APART = 32
"""Elements between the tiles of one product and the next: of a power of two of bytes all would be
in the same few sets of a cache."""


def data_column(d: Sequence[Any]) -> list[Any]:
    """B^T d of six values, in additions and shifts of whatever has these."""
    even, odd = d[4] - d[2], d[3] - d[1]
    near, far = d[4] - (d[2] << 2), d[3] - (d[1] << 2)
    twice = odd + odd
    first, last = ((d[0] - d[2]) << 2) + even, ((d[1] - d[3]) << 2) + (d[5] - d[3])
    return [first, near + far, near - far, even + twice, even - twice, last]


def sums_column(m: Sequence[Any]) -> list[Any]:
    """A^T m of six values, each sum `SCALES` times too large."""
    ones, more = m[1] + m[2], m[2] - m[1]
    twos, fewer = m[3] + m[4], m[3] - m[4]
    first, last = ((m[0] << 2) + (m[0] << 1)), ((m[5] << 2) + (m[5] << 1))
    return [
        first - (ones << 2) + twos,
        (more << 1) + fewer,
        twos - ones,
        more + (fewer << 1) + last,
    ]


def both_ways(column: Any, square: Sequence[Any], size: int) -> list[Any]:
    """A transform of the columns of a square of `PIXELS` a side, row by row, then of the rows of
    what that gives, `size` values each."""
    columns = [column(square[x::PIXELS]) for x in range(PIXELS)]
    rows = [[columns[x][y] for x in range(PIXELS)] for y in range(size)]
    return [value for row in rows for value in column(row)]


def transformed_weights(q: Array) -> Array:
    """Weights int8 [O, 3, 3, C] as int16 [36, O, C]."""
    square = np.einsum("iy,oyxc,jx->ijoc", WEIGHTS, q.astype(np.int32), WEIGHTS)
    return square.reshape(PRODUCTS, *square.shape[2:]).astype(np.int16)


def fits(q: Array) -> bool:
    """Whether weights int8 [O, 3, 3, C] times any pixels give sums of `SUM_BITS` bits, signed."""
    by_output = q.reshape(len(q), -1).astype(np.int64)
    most = max(int(np.where(by_output > 0, by_output, 0).sum(1).max(initial=0)), 0)
    least = min(int(np.where(by_output < 0, by_output, 0).sum(1).min(initial=0)), 0)
    return most * TOP < 1 << (SUM_BITS - 1) and least * TOP >= -1 << (SUM_BITS - 1)


def tiles_of(extent: int) -> int:
    """Tiles along an axis of so many sums; the last one may have some that nobody wants."""
    return -(-extent // OUTPUTS)


def squares_of(levels: Array) -> Array:
    """Padded pictures [N, Hp, Wp, C], a multiple of four and two pixels high and wide, as what is
    multiplied: int16 [36, N * tiles, C], of all tiles row by row."""
    view = np.lib.stride_tricks.sliding_window_view(levels, (PIXELS, PIXELS), (1, 2))
    squares = view[:, ::OUTPUTS, ::OUTPUTS].transpose(4, 5, 0, 1, 2, 3)
    flat = squares.reshape(PRODUCTS, -1, levels.shape[-1]).astype(np.int16)
    return np.stack(both_ways(data_column, list(flat), PIXELS))


def pack_transformed(signature: KernelSignature, q: Array) -> Array:
    """Weights int8 [O, 3, 3, C], C even, as a kernel reads them: uint32 [OB, 36, C / 2, channels],
    two channels a word."""
    assert signature.products is not None
    group, channels = signature.products.group, signature.channels
    square = transformed_weights(q)
    padded = np.pad(square, [(0, 0), (0, -len(q) % BLOCK), (0, 0)])
    words = padded.reshape(PRODUCTS, -1, channels, q.shape[3] // 2, 2 // group, group)
    ordered = np.ascontiguousarray(words.transpose(1, 0, 3, 4, 2, 5))
    return ordered.reshape(-1).view(np.uint32).reshape(-1, PRODUCTS, q.shape[3] // 2, channels)


def unpack_transformed(signature: KernelSignature, packed: Array) -> Array:
    """What is multiplied, int16 [36, OCp, C]: undoes `pack_transformed` but for the transform."""
    assert signature.products is not None
    group = signature.products.group
    blocks, _, words, channels = packed.shape
    elements = np.ascontiguousarray(packed).view(np.int16)
    parts = elements.reshape(blocks, PRODUCTS, words, 2 // group, channels, group)
    return parts.transpose(1, 0, 4, 2, 3, 5).reshape(PRODUCTS, blocks * channels, 2 * words)


def sums_of(tiles: Array, weights: Array, output: Sequence[int]) -> Array:
    """Sums int32 [N, OH, OW, O] of tiles int16 [36, T, C] and weights int16 [36, O, C]."""
    products = np.einsum("itc,ioc->ito", tiles.astype(np.int64), weights.astype(np.int64))
    multiples = both_ways(sums_column, list(products), OUTPUTS)
    height, width = output
    down, across = tiles_of(height), tiles_of(width)
    square = np.stack([_once(m, n) for n, m in enumerate(multiples)])
    squares = square.reshape(OUTPUTS, OUTPUTS, -1, down, across, square.shape[-1])
    whole = squares.transpose(2, 3, 0, 4, 1, 5).reshape(
        -1, down * OUTPUTS, across * OUTPUTS, square.shape[-1]
    )
    return whole[:, :height, :width]


def shift_of(number: int) -> int:
    """The power of two that the sum of this number in its tile is too large by."""
    row, column = divmod(number, OUTPUTS)
    return SHIFTS[row] + SHIFTS[column]


def _once(multiple: Array, number: int) -> Array:
    """Sums, of what 9 times and a power of two times them is modulo 2^32."""
    wrapped = (multiple * NINTH).astype(np.uint32).view(np.int32)
    return wrapped >> shift_of(number)


def calls_a_run(squares: int, rows: int) -> int:
    """Calls of a kernel of `rows` tiles, one behind another, for the weights of one product.

    Weights that come from the second cache are taken to cost an eighth of a call: for that much a
    last run may repeat some of the tiles before it.
    """
    calls = -(-squares // rows)
    most = max(1, min(SQUARES_A_RUN, squares) // rows)
    return min(range(1, most + 1), key=lambda n: -(-calls // n) * (n + 1 / 8))
