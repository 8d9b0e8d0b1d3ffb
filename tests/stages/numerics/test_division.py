"""Divisions by products: proved for a scale, and the same integers from every float."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import tirx

from hw.profile import Hardware
from stages.codegen import compile_object
from stages.dialect.elementwise import ARITHMETIC
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.numbers_tir import TIR
from stages.numerics.division import LEAST_SCALE, quotient_by_products, rounds_alike
from stages.numerics.linear_quantizers import quantize_linear
from tests.compiled import Library
from tests.stages.dialect.test_processor import over_a_vector
from tests.stages.packaging.listings import listing
from tests.targets import AARCH64, ARMV7, AVX2, skip_unless_runnable

QUANTIZE = ARITHMETIC[f"relax.qnn.{quantize_linear.__name__}"]
SCALES = st.floats(2.0**-20, 2.0**10, width=32)


@settings(max_examples=50)
@given(SCALES, st.integers(-128, 255), st.randoms(use_true_random=False))
@example(0.25, 0, None)
def test_what_is_proved_holds_for_all_floats(scale: float, point: int, random: Any) -> None:
    least, most = -128 - point, 127 - point
    if not rounds_alike(NUMPY, scale, least, most):
        return
    rng = np.random.default_rng(random.getrandbits(32) if random else 0)
    x = rng.uniform((least - 1) * scale, (most + 1) * scale, 20_000).astype(np.float32)
    ties = ((np.arange(least, most) + 0.5) * scale).astype(np.float32)
    x = np.clip(
        np.concatenate([x, ties]), *(np.array([least, most], np.float32) * np.float32(scale))
    )
    found = quotient_by_products(NUMPY, x, np.float32(scale))
    assert np.array_equal(np.rint(found), np.rint(x / np.float32(scale)))


def test_most_scales_are_proved_and_some_are_not() -> None:
    rng = np.random.default_rng(0)
    scales = rng.uniform(1e-3, 1, 100).astype(np.float32)
    assert sum(rounds_alike(NUMPY, float(scale), -128, 127) for scale in scales) > 90
    for scale in (0.0, -1.0, np.inf, np.nan, LEAST_SCALE / 2, 2 / LEAST_SCALE):
        assert not rounds_alike(NUMPY, scale, -128, 127)
    assert not rounds_alike(NUMPY, 0.5, -(2**15), 2**15 - 1)


@pytest.mark.parametrize("hardware", (AARCH64, ARMV7), ids=lambda item: item.name)
def test_arm_quantizes_without_a_division(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    scale, point = np.float32(0.0186584), 114
    assert rounds_alike(NUMPY, float(scale), -point, 255 - point)
    kernel = over_a_vector(_quantized(scale, point), "uint8", hardware)
    library = Library({"over.o": compile_object({"over": kernel}, hardware)}, hardware)
    ties = ((np.arange(-130, 150) + 0.5) * scale).astype(np.float32)
    far = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, 0, -0.0], np.float32)
    x = np.concatenate([ties, np.nextafter(ties, far[0]), np.nextafter(ties, far[1]), far])
    x = np.resize(x, (-(-len(x) // 32), 32))
    found = np.zeros(x.shape, np.uint8)
    for values, result in zip(x, found, strict=True):
        library.call("over", values, values, result)
    with np.errstate(over="ignore"):
        expected = QUANTIZE(NUMPY, x, scale, np.uint8(point), low=0, high=255)
    assert np.array_equal(found, expected)


def test_x86_divides_as_before() -> None:
    lines = listing(over_a_vector(_quantized(np.float32(0.1), 3), "uint8", AVX2), AVX2)
    assert any("vdivps" in line for line in lines)


def _quantized(scale: np.float32, point: int) -> Any:
    operands = tirx.const(float(scale), "float32"), tirx.const(point, "uint8")
    attrs = {"low": 0, "high": 255, "rounds_alike": True}
    return lambda x, _: QUANTIZE(TIR, x, *operands, **attrs).astype("uint8")
