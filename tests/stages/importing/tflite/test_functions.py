"""Activations of integers against TensorFlow Lite's reference kernels: every value there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.numerics.quantization import every_byte
from tests.stages.importing.tflite.cases import compare, random_integers
from tests.stages.importing.tflite_models import Tensor, single

BYTES = ("int8", "uint8")


def every_value(dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "int16":
        return np.arange(-32768, 32768).astype(np.int16).reshape(256, 256)
    return every_byte(dtype).reshape(16, 16)


def unary(
    op: str, dtype: str, source: tuple[float, int], target: tuple[float, int], **options: Any
) -> None:
    x = every_value(dtype)
    model = single(
        op,
        [Tensor(x.shape, dtype, scale=source[0], zero_point=source[1])],
        [Tensor(x.shape, dtype, scale=target[0], zero_point=target[1])],
        "LeakyReluOptions" if op == "LEAKY_RELU" else None,
        **options,
    )
    found = compare(model, x, compiled=abs(hash((op, source))) % 4 == 0)
    assert len(np.unique(found)) > 1 or source[0] < 1e-2 * target[0]


SCALES = st.floats(-8, -2).map(lambda exponent: float(np.float32(2.0**exponent)))
POINTS = st.integers(-20, 20)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"])
@settings(max_examples=12)
@given(scales=st.tuples(SCALES, SCALES), zero_points=st.tuples(POINTS, POINTS))
def test_clipped(
    op: str, dtype: str, scales: tuple[float, float], zero_points: tuple[int, int]
) -> None:
    middle = 128 if dtype == "uint8" else 0
    unary(op, dtype, (scales[0], zero_points[0] + middle), (scales[1], zero_points[1] + middle))


@pytest.mark.parametrize("dtype", [*BYTES, "int16"])
@settings(max_examples=12)
@given(
    scales=st.tuples(SCALES, SCALES),
    zero_points=st.tuples(POINTS, POINTS),
    alpha=st.floats(0.01, 1.5),
)
def test_leaky_relu(
    dtype: str, scales: tuple[float, float], zero_points: tuple[int, int], alpha: float
) -> None:
    middle = 128 if dtype == "uint8" else 0
    a, b = (0, 0) if dtype == "int16" else (zero_points[0] + middle, zero_points[1] + middle)
    unary("LEAKY_RELU", dtype, (scales[0], a), (scales[1], b), alpha=alpha)


@pytest.mark.parametrize("dtype", BYTES)
@settings(max_examples=25)
@given(scale=st.floats(-8, 0).map(lambda exponent: 2.0**exponent), zero_point=POINTS)
def test_sigmoid_and_tanh_of_bytes(dtype: str, scale: float, zero_point: int) -> None:
    low, middle = (0, 128) if dtype == "uint8" else (-128, 0)
    unary("LOGISTIC", dtype, (scale, zero_point + middle), (1 / 256, low))
    unary("TANH", dtype, (scale, zero_point + middle), (1 / 128, middle))


@pytest.mark.parametrize("op", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [2.0**-12, 2.0**-11, 2.0**-13, 1e-4, 3e-4, 0.0007, 1e-5])
def test_sigmoid_and_tanh_of_int16(op: str, scale: float) -> None:
    unary(op, "int16", (scale, 0), (1 / 32768, 0))


@pytest.mark.parametrize("dtype", BYTES)
@settings(max_examples=25)
@given(scales=st.tuples(SCALES, SCALES), zero_points=st.tuples(POINTS, POINTS))
def test_hard_swish(dtype: str, scales: tuple[float, float], zero_points: tuple[int, int]) -> None:
    middle = 128 if dtype == "uint8" else 0
    small, large = sorted(scales)
    unary("HARD_SWISH", dtype, (small, zero_points[0] + middle), (large, zero_points[1] + middle))
    unary(
        "HARD_SWISH",
        dtype,
        (small * 30, zero_points[0] + middle),
        (large * 30, zero_points[1] + middle),
    )


@pytest.mark.parametrize("dtype", BYTES)
@settings(max_examples=15)
@given(scales=st.tuples(SCALES, SCALES, SCALES), zero_points=st.tuples(POINTS, POINTS, POINTS))
def test_slopes_of_bytes(dtype: str, scales: Any, zero_points: Any) -> None:
    middle = 128 if dtype == "uint8" else 0
    shapes = ((2, 5, 6, 7), (1, 1, 7), (2, 5, 6, 7))
    tensors = [
        Tensor(shape, dtype, scale=scale, zero_point=zero_point + middle)
        for shape, scale, zero_point in zip(shapes, scales, zero_points, strict=True)
    ]
    x, alpha = random_integers(dtype, shapes[0]), random_integers(dtype, shapes[1], 1)
    is_compiled = zero_points[0] % 5 == 0
    compare(single("PRELU", tensors[:2], tensors[2:]), x, alpha, compiled=is_compiled)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
@settings(max_examples=8)
@given(scales=st.tuples(SCALES, SCALES, SCALES), zero_points=st.tuples(POINTS, POINTS, POINTS))
def test_batch_matmul_of_int8(turned: tuple[bool, bool], scales: Any, zero_points: Any) -> None:
    left, right = ((2, 3, 5, 4) if turned[0] else (2, 3, 4, 5)), (1, 3, 5, 6)
    right = (1, 3, 6, 5) if turned[1] else right
    tensors = [
        Tensor(shape, "int8", scale=scale, zero_point=zero_point)
        for shape, scale, zero_point in zip(
            (left, right, (2, 3, 4, 6)), scales, zero_points, strict=True
        )
    ]
    model = single(
        "BATCH_MATMUL", tensors[:2], tensors[2:], "BatchMatMulOptions",
        adj_x=turned[0], adj_y=turned[1],
    )  # fmt: skip
    values = random_integers("int8", left), random_integers("int8", right, 1)
    compare(model, *values, compiled=zero_points[0] % 5 == 0)
