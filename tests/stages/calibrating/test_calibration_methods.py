"""Laws of the calibration methods and of the grids that ranges become."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.calibrating.calibration_methods import METHODS, entropy, mse, percentile, squared_error
from stages.calibrating.grids import (
    LARGEST_BIAS,
    activation_quantization,
    quantized,
    smallest_weight_scale,
    weight_grid,
)
from stages.calibrating.histograms import Extremes, Histogram
from stages.kinds import Array
from stages.options import RangeEncoding

SEEDS = st.integers(0, 2**32 - 1)
KINDS = st.sampled_from(["normal", "relu", "negative", "laplace", "few"])
BOUNDS = st.floats(0, 1e6, width=32)


def draw(seed: int, kind: str, count: int = 4000) -> Array:
    rng = np.random.default_rng(seed)
    values: Array = rng.normal(rng.normal(), 1, count) * 2.0 ** rng.integers(-8, 9)
    if kind == "relu":
        values = np.maximum(values, 0)
    elif kind == "negative":
        values = -np.abs(values)
    elif kind == "laplace":
        values = rng.laplace(size=count)
    elif kind == "few":
        values = rng.integers(-2, 3, count) * 0.25
    return values.astype(np.float32)


def histogram(*parts: Array) -> Histogram:
    extremes = Extremes()
    for part in parts:
        extremes.add(part)
    made = Histogram(extremes)
    for part in parts:
        made.add(part)
    return made


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=25)
@given(SEEDS, KINDS, st.sampled_from([4, 16, 256]), st.booleans())
def test_a_range_holds_zero_and_lies_within_what_was_seen(
    method: str, seed: int, kind: str, levels: int, symmetric: bool
) -> None:
    values = draw(seed, kind)
    low, high = METHODS[method](histogram(values), levels, symmetric)
    assert min(values.min(), 0) <= low <= 0 <= high <= max(values.max(), 0)
    assert low < high or not values.any()


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=15)
@given(SEEDS, KINDS, st.integers(-10, 10))
def test_a_scaled_tensor_has_a_scaled_range(method: str, seed: int, kind: str, power: int) -> None:
    values = draw(seed, kind)
    scaled = (values * np.float32(2.0**power)).astype(np.float32)
    expected = METHODS[method](histogram(values), 256, False)
    found = METHODS[method](histogram(scaled), 256, False)
    np.testing.assert_allclose(found, np.array(expected) * 2.0**power, rtol=1e-9)


@settings(max_examples=20)
@given(SEEDS, KINDS, st.integers(1, 7))
def test_how_values_are_cut_into_samples_does_not_show(seed: int, kind: str, parts: int) -> None:
    values = draw(seed, kind)
    whole, cut = histogram(values), histogram(*np.array_split(values, parts)[::-1])
    np.testing.assert_array_equal(whole.counts, cut.counts)
    np.testing.assert_array_equal(whole.magnitudes, cut.magnitudes)
    assert whole.counts.sum() == (values.size if values.any() else 0)
    assert whole.magnitudes.sum() == np.count_nonzero(values)


@settings(max_examples=25)
@given(SEEDS, KINDS, st.sampled_from([4, 16, 256]), st.booleans())
def test_mse_is_never_worse_than_minmax(seed: int, kind: str, levels: int, symmetric: bool) -> None:
    found = histogram(draw(seed, kind))
    values, counts = found.centres(), found.counts
    errors = [
        squared_error(values, counts, METHODS[method](found, levels, symmetric), levels, symmetric)
        for method in ("mse", "minmax")
    ]
    assert errors[0] <= errors[1]


@pytest.mark.parametrize(("method", "levels"), [(entropy, 256), (mse, 16), (percentile, 256)])
def test_a_far_outlier_is_clipped(method: Any, levels: int) -> None:
    values = np.append(np.random.default_rng(0).normal(0, 1, 100_000), 40.0).astype(np.float32)
    low, high = method(histogram(values), levels, False)
    assert 2 < high < 20
    assert low < -1.9


@pytest.mark.parametrize("method", METHODS)
def test_a_uniform_tensor_keeps_its_range(method: str) -> None:
    values = np.random.default_rng(0).uniform(0, 3, 100_000).astype(np.float32)
    low, high = METHODS[method](histogram(values), 256, False)
    assert low == 0
    assert high > 2.9


@pytest.mark.parametrize("encoding", ["asymmetric", "symmetric"])
@settings(max_examples=100)
@given(BOUNDS, BOUNDS)
def test_zero_is_on_the_grid_and_the_range_is_covered(
    encoding: RangeEncoding, below: float, above: float
) -> None:
    found = activation_quantization(-below, above, encoding)
    assert found.levels.has_zero
    assert found.dequantize(np.asarray(found.zero_point.whole)) == 0
    low, high = (found.dequantize(np.asarray(limit)) for limit in found.limits)
    assert low <= -below + 0.51 * float(found.scale)
    assert high >= above - 0.51 * float(found.scale)
    if encoding == "symmetric":
        assert (found.zero_point.whole, found.dtype) == (0, "int8")
    assert np.isfinite(found.scale) and found.scale > 0


def test_ranges_that_differ_in_the_last_place_have_one_grid() -> None:
    """Sums in another order do not change a package."""
    value = np.float32(3.3)
    found = {
        activation_quantization(-1.25, float(bound), "asymmetric")
        for bound in (value, np.nextafter(value, np.float32(0)))
    }
    assert len(found) == 1


@settings(max_examples=30)
@given(SEEDS, st.sampled_from([0, 1]), st.booleans())
def test_weights_are_within_half_a_step(seed: int, axis: int, per_channel: bool) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=(5, 6, 3, 3)) * rng.uniform(0.01, 10, (5, 6, 1, 1))).astype(
        np.float32
    )
    values[0] = 0
    channels = values.shape[axis]
    grid = weight_grid(values, axis, "symmetric", per_channel, np.zeros(channels))
    stored = quantized(values, grid)
    assert stored.dtype == np.int8 and np.abs(stored.astype(int)).max() == 127
    assert not grid.zero_point.any()
    assert grid.scale.size == (channels if per_channel else 1)
    assert (np.abs(stored * grid.scale - values) <= grid.scale * 0.5001).all()


def test_asymmetric_weights_have_one_zero_point() -> None:
    values = np.random.default_rng(0).uniform(-0.5, 2, (4, 3, 3, 3)).astype(np.float32)
    grid = weight_grid(values, 0, "asymmetric", False, np.zeros(4))
    stored = quantized(values, grid)
    assert (grid.dtype, stored.dtype) == ("uint8", np.uint8)
    real = (stored.astype(np.float64) - grid.zero_point) * float(grid.scale)
    assert np.abs(real - values).max() <= 0.5001 * float(grid.scale)


def test_scales_grow_until_the_bias_fits() -> None:
    bias, scale = np.array([1e9, 1e-6]), np.float32(1e-4)
    weights = np.full((2, 3), 1e-6, np.float32)
    grid = weight_grid(weights, 0, "symmetric", True, smallest_weight_scale(bias, scale))
    steps = np.abs(bias / (grid.scale.reshape(-1).astype(np.float64) * float(scale)))
    assert steps.max() <= LARGEST_BIAS * 1.001
    assert (quantized(weights, grid)[1] == 127).all()
