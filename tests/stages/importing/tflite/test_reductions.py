"""Reductions, comparisons and resizing against TensorFlow Lite's reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stages.importing.tflite.cases import compare, compare_nearly, random_integers
from tests.stages.importing.tflite_models import Tensor, constant, single

QUANTIZED = ("int8", "uint8", "int16")
SCALES = st.floats(-7, -2).map(lambda exponent: float(np.float32(2.0**exponent)))
SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple)


def middle(dtype: str) -> int:
    return 128 if dtype == "uint8" else 0


def reduction(
    op: str,
    shape: tuple[int, ...],
    axes: list[int],
    keep: bool,
    data: tuple[str, float | None, int],
    target: tuple[str, float | None, int],
) -> bytes:
    kept = [1 if i in [a % len(shape) for a in axes] else e for i, e in enumerate(shape)]
    out = (
        kept
        if keep
        else [e for i, e in enumerate(shape) if i not in [a % len(shape) for a in axes]]
    )
    return single(
        op,
        [Tensor(shape, data[0], scale=data[1], zero_point=data[2]), constant(axes, "int32")],
        [Tensor(out, target[0], scale=target[1], zero_point=target[2])],
        "ReducerOptions",
        keep_dims=keep,
    )


@pytest.mark.parametrize("dtype", QUANTIZED)
@settings(max_examples=20)
@given(data=st.data())
def test_mean_of_quantized_integers(dtype: str, data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    keep = len(shape) == 1 or data.draw(st.booleans())
    axes = data.draw(
        st.lists(
            st.integers(-len(shape), len(shape) - 1), min_size=1, max_size=max(1, len(shape) - 1)
        )
    )
    scales = data.draw(st.tuples(SCALES, SCALES))
    zero_points = (0, 0) if dtype == "int16" else data.draw(st.tuples(*[st.integers(-9, 9)] * 2))
    kinds = [(dtype, s, p + middle(dtype)) for s, p in zip(scales, zero_points, strict=True)]
    model = reduction("MEAN", shape, axes, keep, kinds[0], kinds[1])
    seed = data.draw(st.integers(0, 999))
    compare(model, random_integers(dtype, shape, seed), compiled=seed % 8 == 0)


@pytest.mark.parametrize("size", [(7, 7), (12, 5), (1, 1), (25, 25)])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("dtype", QUANTIZED)
def test_global_average(size: tuple[int, int], keep: bool, dtype: str) -> None:
    shape = (1, *size, 16)
    zero_point = middle(dtype) - (5 if dtype != "int16" else 0)
    model = reduction(
        "MEAN", shape, [1, 2], keep, (dtype, 0.02, zero_point), (dtype, 0.013, zero_point)
    )
    compare(model, random_integers(dtype, shape))


@pytest.mark.parametrize("dtype", QUANTIZED)
@pytest.mark.parametrize("op", ["MEAN", "REDUCE_MAX", "REDUCE_MIN"])
def test_operand_and_result_of_one_scale(dtype: str, op: str) -> None:
    kind = (dtype, 0.05, middle(dtype) + (3 if dtype != "int16" else 0))
    for axes in ([1], [0, -1]):
        model = reduction(op, (3, 4, 5), axes, False, kind, kind)
        compare(model, random_integers(dtype, (3, 4, 5)))


@pytest.mark.parametrize("op", ["REDUCE_MAX", "REDUCE_MIN", "SUM", "MEAN"])
@pytest.mark.parametrize("axes", [[1, 2], [0], [-1]])
def test_reductions_of_floats(op: str, axes: list[int]) -> None:
    x = np.random.default_rng(0).normal(size=(2, 5, 6, 3)).astype(np.float32)
    kind = ("float32", None, 0)
    compare_nearly(reduction(op, x.shape, axes, True, kind, kind), x, ulps=4)


@pytest.mark.parametrize("op", ["ARG_MAX", "ARG_MIN"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32", "int32"])
@pytest.mark.parametrize("wanted", ["int32", "int64"])
def test_position_is_the_first(op: str, dtype: str, wanted: str) -> None:
    x = np.random.default_rng(0).integers(0, 4, (3, 9, 5)).astype(dtype)
    scale = None if dtype in ("float32", "int32") else 0.5
    for axis, shape in ((-1, (3, 9)), (1, (3, 5)), (0, (9, 5))):
        table = "ArgMaxOptions" if op == "ARG_MAX" else "ArgMinOptions"
        model = single(
            op,
            [Tensor(x.shape, dtype, scale=scale), constant(axis, "int32")],
            [Tensor(shape, wanted)],
            table,
            output_type=2 if wanted == "int32" else 4,
        )
        compare(model, x)


COMPARISONS = ["EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"]


def two(
    op: str, shapes: tuple[Any, Any], dtype: str, out: str, scales: Any = (None, None)
) -> bytes:
    shape = np.broadcast_shapes(*shapes)
    zero_points = [0 if s is None else middle(dtype) + i for i, s in enumerate(scales)]
    operands = [
        Tensor(s, dtype, scale=scale, zero_point=zero_point)
        for s, scale, zero_point in zip(shapes, scales, zero_points, strict=True)
    ]
    result = Tensor(shape, out, scale=scales[0] if out == dtype else None)
    return single(op, operands, [result])


@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_comparisons_of_plain_values(op: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((4, 5), (1, 5)))
    compare(two(op, (a.shape, b.shape), dtype, "bool"), a, b)


@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@settings(max_examples=4)
@given(scales=st.tuples(SCALES, SCALES), same=st.booleans())
def test_comparisons_of_bytes(op: str, dtype: str, scales: Any, same: bool) -> None:
    scales = (scales[0], scales[0]) if same else scales
    values = random_integers(dtype, (2, 32, 64))
    compare(two(op, ((32, 64), (32, 64)), dtype, "bool", scales), *values, compiled=same)


@pytest.mark.parametrize("op", ["MINIMUM", "MAXIMUM"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float32", "int64"])
def test_smaller_and_larger(op: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 100, shape).astype(dtype) for shape in ((3, 4, 5), (4, 1)))
    scales = (0.1, 0.1) if dtype in ("int8", "uint8") else (None, None)
    compare(two(op, (a.shape, b.shape), dtype, dtype, scales), a, b)


@pytest.mark.parametrize("op", ["LOGICAL_AND", "LOGICAL_OR"])
def test_logic(op: str) -> None:
    a, b = np.array([[0, 0, 1, 1]], bool), np.array([[0, 1, 0, 1]], bool)
    compare(two(op, (a.shape, b.shape), "bool", "bool"), a, b)


@pytest.mark.parametrize("dtype", ["float32", "int8", "int32"])
@pytest.mark.parametrize(
    ("op", "rows"), [("SELECT", False), ("SELECT", True), ("SELECT_V2", False)]
)
def test_select(dtype: str, op: str, rows: bool) -> None:
    rng = np.random.default_rng(0)
    condition = rng.integers(0, 2, (4,) if rows else (4, 5)).astype(bool)
    yes, no = (rng.integers(0, 9, (4, 5)).astype(dtype) for _ in range(2))
    scale = 0.1 if dtype == "int8" else None
    tensors = [Tensor(condition.shape, "bool"), *[Tensor((4, 5), dtype, scale=scale)] * 2]
    tensors = [tensors[0], Tensor((4, 5), dtype, scale=scale), Tensor((4, 5), dtype, scale=scale)]
    compare(single(op, tensors, [Tensor((4, 5), dtype, scale=scale)]), condition, yes, no)


def resize(op: str, table: str, dtype: str, size: Any, wanted: Any, modes: Any) -> bytes:
    scale = None if dtype == "float32" else 0.1
    return single(
        op,
        [Tensor((2, *size, 3), dtype, scale=scale), constant(wanted, "int32")],
        [Tensor((2, *wanted, 3), dtype, scale=scale)],
        table,
        align_corners=modes[0],
        half_pixel_centers=modes[1],
    )


SIZES = st.tuples(st.integers(1, 9), st.integers(1, 9))
MODES = st.sampled_from([(False, False), (True, False), (False, True)])


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "float32"])
@settings(max_examples=15)
@given(
    size=SIZES, wanted=SIZES.map(lambda s: (s[0] * 2, s[1])), modes=MODES, seed=st.integers(0, 99)
)
def test_resize_bilinear(dtype: str, size: Any, wanted: Any, modes: Any, seed: int) -> None:
    model = resize("RESIZE_BILINEAR", "ResizeBilinearOptions", dtype, size, list(wanted), modes)
    is_compiled = seed % 8 == 0
    if dtype == "float32":
        x = np.random.default_rng(seed).normal(size=(2, *size, 3)).astype(np.float32)
        compare_nearly(model, x, ulps=2, compiled=is_compiled)
    else:
        compare(model, random_integers(dtype, (2, *size, 3), seed), compiled=is_compiled)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32", "int16"])
@settings(max_examples=8)
@given(
    size=SIZES, wanted=SIZES.map(lambda s: (s[0] * 2, s[1])), modes=MODES, seed=st.integers(0, 99)
)
def test_resize_nearest(dtype: str, size: Any, wanted: Any, modes: Any, seed: int) -> None:
    table = "ResizeNearestNeighborOptions"
    model = resize("RESIZE_NEAREST_NEIGHBOR", table, dtype, size, list(wanted), modes)
    x = np.random.default_rng(seed).integers(0, 100, (2, *size, 3)).astype(dtype)
    compare(model, x, compiled=seed % 8 == 0)
