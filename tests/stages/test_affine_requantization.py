"""Lines of float32 give what fixed point gives, for every integer: checked one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.operators import OPERATORS
from stages.dialect.zero_point import AT_ZERO
from stages.numerics import tflite
from stages.quantizing.affine_requantization import Affine, fitted, step_function

Array = np.ndarray[Any, Any]
FACTORS = st.floats(2.0**-12, 2.0, exclude_max=True)
CLOSE = 30000
"""Integers from minus this to this are all tried."""


def fixed_point(factors: list[float]) -> tuple[Array, Array, Array]:
    """Multipliers, shifts and slopes of real factors."""
    found = [tflite.quantize_multiplier(factor) for factor in factors]
    multiplier, shift = (np.array(part, np.int64) for part in zip(*found, strict=True))
    return multiplier, shift, multiplier * 2.0 ** (shift - 31)


def line_of(
    factors: list[float], bounds: tuple[int, int], is_odd: bool, reach: int
) -> Affine | None:
    """The line of `x * factor` in fixed point, for x of at most `reach` in size."""
    multiplier, shift, slope = fixed_point(factors)
    ends = np.full(len(factors), reach, np.int64)
    found = step_function(
        lambda x: tflite.multiply(NUMPY, x, multiplier, shift), -ends, ends, bounds, is_odd
    )
    return fitted(found, slope)


def meaning(line: Affine, x: Array, low: int, high: int, is_odd: bool) -> Array:
    """What the operator makes of integers."""
    misses = [*line.low, *line.high]
    result: Array = OPERATORS[f"relax.qnn.line{len(misses)}"].meaning(
        x.astype(np.int32), line.scale, line.offset, *misses, low_misses=len(line.low),
        is_odd=is_odd, zero_point=AT_ZERO, low=low, high=high, dtype="int16", fits=False,
    )  # fmt: skip
    return result


@settings(max_examples=100, deadline=None)
@given(
    st.lists(FACTORS, min_size=1, max_size=4), st.integers(-128, 0), st.integers(1, 127),
    st.sampled_from([1, 500, CLOSE]),
)  # fmt: skip
def test_a_line_is_fixed_point_for_every_sum(
    factors: list[float], low: int, high: int, reach: int
) -> None:
    line = line_of(factors, (low, high), True, reach)
    if line is None:
        return
    multiplier, shift, _ = fixed_point(factors)
    x = np.arange(-reach, reach + 1)[:, None]
    wanted = np.clip(tflite.multiply(NUMPY, x, multiplier, shift), low, high)
    assert np.array_equal(meaning(line, x, low, high, True), wanted)


def test_nearly_all_lines_are_found_and_some_of_them_miss_an_integer() -> None:
    rng = np.random.default_rng(0)
    found = [
        line_of([float(factor)], (-128, 127), True, 1 << 20)
        for factor in 2.0 ** rng.uniform(-12, -3, 400)
    ]
    lines = [line for line in found if line is not None]
    assert len(lines) > 396
    missing = [line for line in lines if len(line.low) or len(line.high)]
    assert 4 < len(missing) < 100
    assert any(len(line.high) for line in missing)


def test_a_line_that_misses_is_right_where_it_does_and_beside_it() -> None:
    rng = np.random.default_rng(1)
    tried = 0
    for factor in 2.0 ** rng.uniform(-13, -10, 100):
        line = line_of([float(factor)], (0, 255), False, 1 << 21)
        if line is None or not (line.low.size or line.high.size):
            continue
        tried += 1
        multiplier, shift, _ = fixed_point([float(factor)])
        missed = np.concatenate([line.low, line.high]).ravel()
        x = (missed[:, None] + np.arange(-3, 4)).reshape(-1, 1).astype(np.int64)
        wanted = np.clip(tflite.multiply(NUMPY, x, multiplier, shift), 0, 255)
        assert np.array_equal(meaning(line, x, 0, 255, False), wanted)
        without = Affine(line.scale, line.offset, line.low[:0], line.high[:0])
        assert not np.array_equal(meaning(without, x, 0, 255, False), wanted)
    assert tried > 5


def test_what_follows_no_line_has_none() -> None:
    ends = np.full(1, 1000)
    bent = step_function(lambda x: np.where(x > 0, x // 4, x // 16), -ends, ends, (-100, 100), True)
    assert fitted(bent, np.array([0.25])) is None


def test_channels_that_rise_nowhere_have_a_line() -> None:
    ends = np.full(2, 1000)
    flat = step_function(lambda x: np.zeros_like(x) + 7, -ends, ends, (-128, 127), False)
    line = fitted(flat, np.zeros(2))
    assert line is not None
    assert np.array_equal(meaning(line, np.arange(-9, 9)[:, None], -128, 127, False), [[7, 7]] * 18)
