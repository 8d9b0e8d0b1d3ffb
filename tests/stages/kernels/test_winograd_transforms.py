"""Winograd's algebra in integers: exact for all pixels, and for the weights that `fits` accepts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.dialect.convolve import convolve
from stages.kernels.families import TransformedDots
from stages.kernels.signature import KernelSignature
from stages.kernels.winograd_transforms import (
    BY_ONE,
    BY_TWO,
    SMALL_BY_ONE,
    TOP,
    TRANSFORMS,
    WINDOW,
    Transform,
    both_ways,
    pack_transformed,
    transform_for,
    transforms_of,
    unpack_transformed,
)

Array = np.ndarray[Any, Any]
EVERY = pytest.mark.parametrize("one", TRANSFORMS, ids=("by one", "small by one", "by two"))


def convolved(one: Transform, levels: Array, q: Array) -> Array:
    """The sums as everything else computes them."""
    strides = (one.stride, one.stride)
    return convolve(levels.astype(np.int32), q.astype(np.int32), strides, 1, (1, 1), "int32")


def by_winograd(one: Transform, levels: Array, q: Array) -> Array:
    height, width = ((extent - WINDOW) // one.stride + 1 for extent in levels.shape[1:3])
    return one.sums_of(one.tiles_of_images(levels), one.of_weights(q), (height, width))


def matrix_of(column: Any, size: int) -> Array:
    """The matrix of a transform of columns."""
    return np.stack(column(list(np.eye(size, dtype=np.int64))))


@given(
    st.sampled_from(TRANSFORMS),
    st.integers(0, 2**32 - 1),
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 9),
    st.sampled_from([(0, 256), (0, 2), (255, 256)]),
)
def test_sums_are_those_of_a_convolution(
    one: Transform,
    seed: int,
    tiles: tuple[int, int, int],
    channels: int,
    span: tuple[int, int],
) -> None:
    rng = np.random.default_rng(seed)
    images, down, across = tiles
    shape = (images, *(one.reach(n * one.outputs) for n in (down, across)), channels)
    levels = rng.integers(*span, shape).astype(np.uint8)
    q = rng.integers(-128, 128, (5, WINDOW, WINDOW, channels)).astype(np.int8)
    assert one.fits(q)
    np.testing.assert_array_equal(by_winograd(one, levels, q), convolved(one, levels, q))


@EVERY
def test_outputs_that_fill_no_tiles_are_those_of_a_larger_image(one: Transform) -> None:
    rng = np.random.default_rng(0)
    height, width = 3 * one.outputs - 1, 2 * one.outputs - 1
    shape = (1, one.reach(height), one.reach(width), 3)
    levels = rng.integers(0, 256, shape).astype(np.uint8)
    q = rng.integers(-128, 128, (4, 3, 3, 3)).astype(np.int8)
    found = one.sums_of(one.tiles_of_images(levels), one.of_weights(q), (height, width))
    np.testing.assert_array_equal(found, convolved(one, levels, q)[:, :height, :width])


@EVERY
def test_what_is_multiplied_fits_16_bits(one: Transform) -> None:
    column = matrix_of(one.data_column, one.pixels)
    data = np.kron(column, column)
    assert np.where(data > 0, data, 0).sum(1).max() * TOP < 1 << 15
    assert np.where(data < 0, data, 0).sum(1).min() * TOP >= -1 << 15
    weights = np.abs(np.kron(one.weights, one.weights)).sum(1)
    assert weights.max() * 128 < 1 << 15


@pytest.mark.parametrize(
    ("one", "scales"),
    [(BY_ONE, (24, 12, 6, 6)), (SMALL_BY_ONE, (2, 2)), (BY_TWO, (1, 1))],
    ids=("by one", "small by one", "by two"),
)
def test_transforms_give_sums_as_often_as_they_say(one: Transform, scales: tuple[int, ...]) -> None:
    """Along one axis: A^T (G g * B^T d), for every single weight and pixel."""
    of_data, of_sums = (matrix_of(c, one.pixels) for c in (one.data_column, one.sums_column))
    bilinear = np.einsum("ok,ky,kx->oyx", of_sums, one.weights, of_data)
    expected = np.zeros_like(bilinear)
    for output, scale in enumerate(scales):
        for tap in range(WINDOW):
            expected[output, tap, one.stride * output + tap] = scale
    np.testing.assert_array_equal(bilinear, expected)
    for number in range(one.outputs**2):
        row, column = divmod(number, one.outputs)
        multiple = scales[row] * scales[column] * one.inverse % (1 << 32)
        assert multiple == 1 << one.shift_of(number)


@EVERY
def test_both_ways_is_columns_then_rows(one: Transform) -> None:
    square = np.arange(one.products).reshape(one.pixels, one.pixels)
    matrix = matrix_of(one.sums_column, one.pixels)
    found = np.array(both_ways(one.sums_column, list(square.reshape(-1)), one.outputs))
    np.testing.assert_array_equal(
        found.reshape(one.outputs, one.outputs), matrix @ square @ matrix.T
    )
    np.testing.assert_array_equal(one.of_products(list(square.reshape(-1))), found)


@EVERY
@pytest.mark.parametrize("value", (127, -128))
def test_weights_fit_up_to_the_last_bit(one: Transform, value: int) -> None:
    """And no further: with one more channel, images of the largest pixels give other sums.

    Beyond 32 bits nothing says what the others' sums are.
    """
    each = WINDOW * WINDOW * abs(value) * TOP
    most = ((1 << (one.sum_bits - 1)) - (value > 0)) // each
    q = np.full((1, WINDOW, WINDOW, most + 1), value, np.int8)
    assert one.fits(q[..., :-1]) and not one.fits(q)
    for channels in (most, most + 1) if one.sum_bits < 32 else (most,):
        levels = np.full((1, one.pixels, one.pixels, channels), TOP, np.uint8)
        found = by_winograd(one, levels, q[..., :channels])
        expected = convolved(one, levels, q[..., :channels])
        assert np.array_equal(found, expected) == (channels == most)


@EVERY
@pytest.mark.parametrize("channels", (4, 8, 16, 32))
@pytest.mark.parametrize("group", (1, 2))
def test_packed_weights_are_the_transformed_ones(one: Transform, group: int, channels: int) -> None:
    products = TransformedDots(group)
    signature = KernelSignature("avx2", None, products, 2, channels, "none", 0)
    q = np.random.default_rng(1).integers(-128, 128, (40, 3, 3, 6)).astype(np.int8)
    packed = pack_transformed(signature, q, one)
    assert packed.shape == (64 // channels, one.products, 3, channels)
    assert packed.dtype == np.uint32
    found = unpack_transformed(signature, packed)
    np.testing.assert_array_equal(found[:, :40], one.of_weights(q))
    assert not found[:, 40:].any()


def test_what_a_product_stands_for() -> None:
    assert (BY_ONE.saved, SMALL_BY_ONE.saved, BY_TWO.saved) == (4, 2.25, 1.44)


def test_windows_that_move_otherwise_have_no_transform() -> None:
    assert transforms_of((1, 1)) == [BY_ONE, SMALL_BY_ONE] and transforms_of([2, 2]) == [BY_TWO]
    assert transforms_of((1, 2)) == transforms_of((3, 3)) == []
    assert all(transform_for([one.stride] * 2, one.outputs) is one for one in TRANSFORMS)
