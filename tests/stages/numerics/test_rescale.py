"""Sums of rescaled integers round where oneDNN rounds: checked against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.dialect.operators import OPERATORS
from stages.kinds import Array
from stages.numerics.rescale import rescaled_sum
from tests.stages.dialect.examples import Example
from tests.stages.dialect.test_legalize import compare
from tests.stages.dialect.test_processor import nearest_float

SCALES = st.floats(2.0**-20, 4.0, width=32)


def _rescaled_sum(*operands: Array, fused: bool) -> Array:
    attrs = {"fused": fused, "low": -128, "high": 127, "dtype": "int8"}
    result: Array = OPERATORS["relax.qnn.rescaled_sum"].meaning(*operands, **attrs)
    return result


@settings(max_examples=300)
@given(st.integers(-(2**24), 2**24), st.integers(-128, 255), SCALES, SCALES)
def test_only_the_left_product_of_a_fused_sum_is_rounded(
    lhs: int, rhs: int, lhs_scale: float, rhs_scale: float
) -> None:
    left = np.float32(lhs) * np.float32(lhs_scale)
    exact = Fraction(float(left)) + rhs * Fraction(float(np.float32(rhs_scale)))
    expected = np.clip(np.rint(nearest_float(exact)), -128, 127)
    found = _rescaled_sum(
        np.array([lhs], np.int32), np.array([rhs], np.int32),
        np.array([lhs_scale], np.float32), np.array([rhs_scale], np.float32), fused=True,
    )  # fmt: skip
    assert found[0] == expected


@settings(max_examples=100)
@given(st.integers(-128, 255), st.integers(-128, 255), SCALES, SCALES)
def test_both_products_of_a_plain_sum_are_rounded(
    lhs: int, rhs: int, lhs_scale: float, rhs_scale: float
) -> None:
    total = np.float32(lhs) * np.float32(lhs_scale) + np.float32(rhs) * np.float32(rhs_scale)
    found = _rescaled_sum(
        np.array([lhs], np.int32), np.array([rhs], np.int32),
        np.array([lhs_scale], np.float32), np.array([rhs_scale], np.float32), fused=False,
    )  # fmt: skip
    assert found[0] == np.clip(np.rint(total), -128, 127)


def test_compiled_code_fuses_no_more_than_the_meaning() -> None:
    """Scales of many bits, where one rounding more or less shows in about one sum in a thousand."""
    rng = np.random.default_rng(0)
    for fused in (False, True):
        compare(
            Example(
                rescaled_sum,
                (
                    (rng.integers(-(2**22), 2**22, (200, 64)).astype(np.int32), "int32"),
                    (rng.integers(0, 256, (200, 64)).astype(np.uint8), "uint8"),
                    (rng.random(64).astype(np.float32) * np.float32(2e-5), "float32"),
                    (rng.random(64).astype(np.float32), "float32"),
                ),
                {"fused": fused, "low": -(2**31), "high": 2**31 - 128, "dtype": "int32"},
            )
        )
