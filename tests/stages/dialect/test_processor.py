"""Fused products and nearest integers mean the same by every processor's own form."""

from __future__ import annotations

import platform
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.codegen import compile_object, target_of
from stages.dialect.numbers import Numbers
from stages.dialect.numbers_fused import WHOLE_TIR
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.numbers_tir import TIR
from stages.numerics.onnx_elementwise import qlinear_add
from stages.numerics.rescale import rescale
from tests.compiled import Library
from tests.stages.dialect.examples import Example
from tests.stages.dialect.test_legalize import FMA_TARGET, compare
from tests.stages.dialect.test_legalize import has_fma as runs_fma
from tests.stages.packaging.listings import calls, count, fused, listing
from tests.targets import (
    AARCH64,
    ARMV7,
    AVX2,
    AVX512BW,
    DOTPROD,
    SSE2,
    obstacle,
    skip_unless_runnable,
)

TRIPLE = f"{platform.machine()}-linux-gnu"
FLOATS = st.floats(-(2.0**40), 2.0**40, width=32)


def nearest_float(value: Fraction) -> np.float32:
    """float32 nearest to an exact number, halves to even."""
    guess = np.float32(float(value))
    steps = [np.nextafter(guess, np.float32(bound)) for bound in (-np.inf, np.inf)]
    return min(
        [guess, *steps],
        key=lambda each: (abs(Fraction(float(each)) - value), int(each.view(np.uint32)) % 2),
    )


@settings(max_examples=500)
@given(FLOATS, FLOATS, FLOATS)
@example(1 + 2.0**-23, 1 + 2.0**-12, 2.0**-80)  # float64 loses the addend at a tie of float32
@example(1 + 2.0**-23, 1 + 2.0**-12, -(2.0**-80))
@example(-1 - 2.0**-23, 1 + 2.0**-12, 2.0**-80)
@example(3.0, 0.5, -1.5)
def test_a_product_and_a_sum_are_rounded_once(left: float, right: float, addend: float) -> None:
    found = NUMPY.multiply_add(*(np.float32(x) for x in (left, right, addend)))
    assert found == nearest_float(Fraction(left) * Fraction(right) + Fraction(addend))


def test_what_is_not_finite_stays_so() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 1e38], np.float32)
    found = NUMPY.multiply_add(x, np.full_like(x, 8), np.ones_like(x))
    assert found[[0, 1, 3]].tolist() == [np.inf, -np.inf, np.inf]
    assert np.isnan(found[2])


def sums() -> Example:
    """Sums at ties that the first product decides, and of all sizes."""
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.integers(0, 256, (64, 512)).astype(np.uint8) for _ in range(2))
    ratios = rng.random((2, 512)).astype(np.float32)
    fixed = np.array(-ratios[0, 0] - 0.5, np.float32)
    operands = ((lhs, "uint8"), (rhs, "uint8"), (ratios[0], "float32"), (ratios[1], "float32"))
    return Example(qlinear_add, (*operands, (fixed, "float32")), {"low": 0, "high": 255})


def test_sums_without_an_fma() -> None:
    compare(sums(), {"kind": "llvm", "mtriple": TRIPLE})


@pytest.mark.skipif(not runs_fma(), reason="this processor has no fused multiply-add")
def test_sums_by_the_fma_of_the_processor() -> None:
    compare(sums(), FMA_TARGET | {"mtriple": TRIPLE})


def far_outside() -> Example:
    """Products at every power of two, far beyond what 32 bits hold."""
    sizes = 2 ** np.arange(31, dtype=np.int64)
    data = np.concatenate([sizes, -sizes, [0]]).astype(np.int32)
    scales = np.array([2.0**-30, 0.5, 1, 1.5, 2, 2.0**60, 2.0**96], np.float32)
    attrs = {"zero_point": 3, "low": 0, "high": 255, "dtype": "uint8"}
    return Example(rescale, ((data[:, None], "int32"), (scales, "float32")), attrs)


def test_what_saturates_as_floats() -> None:
    compare(far_outside(), {"kind": "llvm", "mtriple": TRIPLE})


@pytest.mark.skipif(bool(obstacle(AVX512BW)), reason=obstacle(AVX512BW))
def test_what_saturates_as_integers() -> None:
    attrs = {"mtriple": TRIPLE, "mattr": list(AVX512BW.features)}
    compare(far_outside(), {"kind": "llvm", **attrs})


POINTS = ((0, 0, 255), (3, 0, 255), (-128, -128, 127), (7, -128, 127), (17, 17, 200))
"""Zero points, with the bounds of what is saturated."""


@pytest.mark.parametrize("numbers", (TIR, WHOLE_TIR), ids=("stored", "read next"))
@pytest.mark.parametrize("hardware", (AARCH64, ARMV7), ids=lambda item: item.name)
def test_arm_saturates_what_is_beyond_every_integer(hardware: Hardware, numbers: Numbers) -> None:
    skip_unless_runnable(hardware)
    sizes = np.float32(2) ** np.arange(-140, 128, dtype=np.float32)
    halves = np.arange(-600, 601, dtype=np.float32) / 2
    x = np.concatenate([sizes, -sizes, halves, np.nextafter(halves, np.float32(9)), [0, -0.0]])
    x = np.resize(x, -(-len(x) // 32) * 32).astype(np.float32)
    emitted = {f"over{i}": _saturated_to(numbers, *point) for i, point in enumerate(POINTS)}
    objects = {
        f"{name}.o": compile_object(
            {name: over_a_vector(emit, "int32", hardware).with_attr("global_symbol", name)},
            hardware,
        )
        for name, emit in emitted.items()
    }
    library = Library(objects, hardware)
    for name, (zero_point, low, high) in zip(emitted, POINTS, strict=True):
        found = np.zeros((len(x) // 32, 32), np.int32)
        for values, result in zip(x.reshape(-1, 32), found, strict=True):
            library.call(name, values, values, result)
        exact = np.clip(np.rint(x.astype(np.float64)) + zero_point, low, high)
        np.testing.assert_array_equal(found.ravel(), exact)


def _saturated_to(numbers: Numbers, zero_point: int, low: int, high: int) -> Any:
    return lambda x, _: numbers.saturated(x, zero_point, low, high).astype("int32")


def test_arm_narrows_by_instructions_that_saturate() -> None:
    lines = listing(over_a_vector(_saturated, "uint8", AARCH64), AARCH64)
    assert count(lines, "fcvtns") == 8
    assert count(lines, "sqxtn") + count(lines, "sqxtn2") == 8
    assert count(lines, "sqxtun") + count(lines, "sqxtun2") == 4
    names = ("frinti", "frintx", "fcvtzs", "fcvtzu", "umin", "smin", "smax", "fmin", "fmax")
    assert not any(count(lines, name) for name in names)


def test_armv7_rounds_whole_registers() -> None:
    lines = listing(over_a_vector(_saturated, "uint8", ARMV7), ARMV7)
    assert count(lines, "vadd.f32") == 8
    assert not any("vrint" in line or "vcvt" in line for line in lines)


def test_bytes_are_clipped_from_above_as_they_narrow() -> None:
    lines = listing(over_a_vector(_saturated, "uint8", AVX512BW), AVX512BW)
    assert count(lines, "vpmovusdb") == 2
    assert not count(lines, "vminps")


@pytest.mark.parametrize("hardware", (AVX512BW, AVX2, DOTPROD), ids=lambda item: item.name)
def test_what_a_float_step_reads_is_rounded_as_a_float(hardware: Hardware) -> None:
    """By two sums that nothing has folded into one."""
    kernel = over_a_vector(lambda x, _: WHOLE_TIR.saturated(x, 3, 0, 255), "float32", hardware)
    lines = listing(kernel, hardware)
    assert not any(count(lines, name) for name in ("vcvtps2dq", "vcvtdq2ps", "fcvtns", "scvtf"))
    names = ("fadd", "fsub") if hardware is DOTPROD else ("vaddps", "vsubps")
    assert sum(count(lines, name) for name in names) == 2 * 32 * 4 // isa_of(hardware).bytes


def test_what_a_float_step_reads_is_clipped_as_integers_where_floats_are_rounded() -> None:
    kernel = over_a_vector(lambda x, _: WHOLE_TIR.saturated(x, 3, 0, 255), "float32", AARCH64)
    lines = listing(kernel, AARCH64)
    assert [count(lines, name) for name in ("fcvtns", "smax", "smin")] == [8, 8, 8]
    assert not any(count(lines, name) for name in ("fmaxnm", "fminnm", "fadd", "fsub"))


def _saturated(x: Any, _: Any) -> Any:
    return TIR.saturated(x, 3, 0, 255).astype("uint8")


@pytest.mark.parametrize("hardware", (AVX2, AARCH64, ARMV7), ids=lambda item: item.name)
def test_processors_have_their_own_fma(hardware: Hardware) -> None:
    def emit(x: Any, y: Any) -> Any:
        return TIR.multiply_add(x, y, x)

    lines = listing(over_a_vector(emit, "float32", hardware), hardware)
    assert fused(lines)
    assert not calls(lines)


@pytest.mark.parametrize(
    ("hardware", "instruction"),
    ((AVX2, "vcvtps2dq"), (SSE2, "cvtps2dq"), (AARCH64, "fcvtns")),
    ids=lambda item: getattr(item, "name", ""),
)
def test_the_nearest_integer_is_one_instruction(hardware: Hardware, instruction: str) -> None:
    lines = listing(over_a_vector(lambda x, _: TIR.nearest(x), "int32", hardware), hardware)
    assert count(lines, instruction) == 32 * 4 // isa_of(hardware).bytes
    assert not calls(lines)


def over_a_vector(emit: Any, dtype: str, hardware: Hardware) -> Any:
    """A PrimFunc that goes through two tensors of 32 floats."""
    with target_of(hardware), IRBuilder() as builder, T.prim_func():
        T.func_name("over")
        T.func_attr({"global_symbol": "over"})
        x, y = (T.arg(name, T.Buffer((32,), "float32")) for name in "xy")
        result = T.arg("r", T.Buffer((32,), dtype))
        with T.vectorized(0, 32) as i:
            T.buffer_store(result, emit(x[i], y[i]), [i])
    return builder.get()
