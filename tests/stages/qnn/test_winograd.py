"""Winograd's algebra in integers: exact for all pixels, and for the weights that `fits` accepts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.qnn import winograd
from stages.qnn.integer import convolve
from stages.qnn.signature import KernelSignature, Products
from stages.qnn.winograd import (
    NINTH,
    OUTPUTS,
    PIXELS,
    PRODUCTS,
    SCALES,
    SUM_BITS,
    TOP,
    WEIGHTS,
    WINDOW,
    both_ways,
    data_column,
    fits,
    pack_transformed,
    squares_of,
    sums_column,
    sums_of,
    transformed_weights,
    unpack_transformed,
)

Array = np.ndarray[Any, Any]


def convolved(levels: Array, q: Array) -> Array:
    """The sums as everything else computes them."""
    return convolve(levels.astype(np.int32), q.astype(np.int32), (1, 1), 1, (1, 1), "int32")


def by_winograd(levels: Array, q: Array) -> Array:
    height, width = (extent - WINDOW + 1 for extent in levels.shape[1:3])
    return sums_of(squares_of(levels), transformed_weights(q), (height, width))


def matrix_of(column: Any, size: int) -> Array:
    """The matrix of a transform of columns."""
    return np.stack(column(list(np.eye(size, dtype=np.int64))))


@given(
    st.integers(0, 2**32 - 1),
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 9),
    st.sampled_from([(0, 256), (0, 2), (255, 256)]),
)
def test_sums_are_those_of_a_convolution(
    seed: int, tiles: tuple[int, int, int], channels: int, span: tuple[int, int]
) -> None:
    rng = np.random.default_rng(seed)
    pictures, down, across = tiles
    shape = (pictures, *(n * OUTPUTS + WINDOW - 1 for n in (down, across)), channels)
    levels = rng.integers(*span, shape).astype(np.uint8)
    q = rng.integers(-128, 128, (5, WINDOW, WINDOW, channels)).astype(np.int8)
    assert fits(q)
    np.testing.assert_array_equal(by_winograd(levels, q), convolved(levels, q))


def test_outputs_that_fill_no_tiles_are_those_of_a_larger_picture() -> None:
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 256, (1, 10, 14, 3)).astype(np.uint8)
    q = rng.integers(-128, 128, (4, 3, 3, 3)).astype(np.int8)
    found = sums_of(squares_of(levels), transformed_weights(q), (7, 9))
    np.testing.assert_array_equal(found, convolved(levels, q)[:, :7, :9])


def test_what_is_multiplied_fits_16_bits() -> None:
    data = np.kron(matrix_of(data_column, PIXELS), matrix_of(data_column, PIXELS))
    assert np.where(data > 0, data, 0).sum(1).max() * TOP < 1 << 15
    assert np.where(data < 0, data, 0).sum(1).min() * TOP >= -1 << 15
    weights = np.abs(np.kron(WEIGHTS, WEIGHTS)).sum(1)
    assert weights.max() * 128 < 1 << 15


def test_transforms_give_sums_as_often_as_they_say() -> None:
    """Along one axis: A^T (G g * B^T d), for every single weight and pixel."""
    of_data, of_sums = matrix_of(data_column, PIXELS), matrix_of(sums_column, PIXELS)
    bilinear = np.einsum("ok,ky,kx->oyx", of_sums, WEIGHTS, of_data)
    expected = np.zeros_like(bilinear)
    for output in range(OUTPUTS):
        for tap in range(WINDOW):
            expected[output, tap, output + tap] = SCALES[output]
    np.testing.assert_array_equal(bilinear, expected)
    assert NINTH * 9 % (1 << 32) == 1


def test_both_ways_is_columns_then_rows() -> None:
    square = np.arange(PRODUCTS).reshape(PIXELS, PIXELS)
    matrix = matrix_of(sums_column, PIXELS)
    found = np.array(both_ways(sums_column, list(square.reshape(-1)), OUTPUTS))
    np.testing.assert_array_equal(found.reshape(OUTPUTS, OUTPUTS), matrix @ square @ matrix.T)


@pytest.mark.parametrize("value", (127, -128))
def test_weights_fit_up_to_the_last_bit(value: int) -> None:
    """And no further: with one more channel, pictures of the largest pixels give other sums."""
    each = WINDOW * WINDOW * abs(value) * TOP
    most = ((1 << (SUM_BITS - 1)) - (value > 0)) // each
    for channels in (most, most + 1):
        q = np.full((1, WINDOW, WINDOW, channels), value, np.int8)
        levels = np.full((1, PIXELS, PIXELS, channels), TOP, np.uint8)
        is_same = np.array_equal(by_winograd(levels, q), convolved(levels, q))
        assert fits(q) == is_same == (channels == most)


@pytest.mark.parametrize("channels", (4, 8, 16, 32))
@pytest.mark.parametrize("group", (1, 2))
def test_packed_weights_are_the_transformed_ones(group: int, channels: int) -> None:
    products = Products(group, activation_bits=16, weight_limit=1 << 15, element="int16")
    signature = KernelSignature("avx2", None, products, 2, channels, "none", 0)
    q = np.random.default_rng(1).integers(-128, 128, (40, 3, 3, 6)).astype(np.int8)
    packed = pack_transformed(signature, q)
    assert packed.shape == (64 // channels, PRODUCTS, 3, channels) and packed.dtype == np.uint32
    found = unpack_transformed(signature, packed)
    np.testing.assert_array_equal(found[:, :40], transformed_weights(q))
    assert not found[:, 40:].any()


def test_each_product_stands_for_four() -> None:
    assert winograd.SAVED * PRODUCTS == (OUTPUTS * WINDOW) ** 2
