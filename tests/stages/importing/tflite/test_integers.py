"""Sums, products, pools and changes of scale against LiteRT's reference kernels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stages.errors import StageError
from tests.stages.importing.tflite.comparing import (
    LIMITS,
    SEEDS,
    TYPES,
    Tensor,
    a_few,
    agrees,
    compiled,
    constant,
    imported,
    quantized,
    scale_of,
    stored,
    thorough,
)
from tests.stages.importing.tflite_models import Operation, build, single

Array = np.ndarray[Any, Any]
KINDS = st.sampled_from(["int8", "uint8", "int16"])
SHAPES = st.sampled_from(
    [
        ((2, 3, 4), (2, 3, 4)),
        ((1, 4, 4, 3), (3,)),
        ((1, 4, 4, 3), (1, 1, 1, 3)),
        ((5,), (3, 5)),
        ((2, 1, 3), (1, 4, 1)),
        ((6,), ()),
    ]
)
POOLS = ("AVERAGE_POOL_2D", "MAX_POOL_2D")
OPTIONS = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}


@st.composite
def binary(draw: st.DrawFn, op: str) -> tuple[bytes, Array, Array]:
    """A file of one operator on two tensors that broadcast, and its inputs."""
    kind, (left, right), seed = draw(KINDS), draw(SHAPES), draw(SEEDS)
    lhs, rhs = quantized(draw, left, kind), quantized(draw, right, kind)
    shape = np.broadcast_shapes(left, right)
    like = quantized(draw, shape, kind)
    steps = float(LIMITS[kind].max) if op == "MUL" else 1.0
    scales = scale_of(lhs), scale_of(rhs)
    natural = scales[0] * scales[1] if op == "MUL" else max(scales)
    factor = steps * draw(st.floats(0.1, 3.0))
    if draw(st.booleans()):
        # Just above a power of two, where rounding twice differs from rounding once.
        rhs = replace(rhs, scale=lhs.scale)
        natural = scales[0] ** 2 if op == "MUL" else scales[0]
        factor = 2.0 ** np.round(np.log2(factor)) * (1 + 2.0 ** -draw(st.integers(12, 23)))
    scale = float(np.float32(natural * factor))
    output = Tensor(shape, kind, scale=scale, zero_point=like.zero_point)
    options: dict[str, Any] = {"fused_activation_function": draw(st.sampled_from([0, 1, 2, 3]))}
    if op != "MUL":
        options["pot_scale_int16"] = False
    source = single(op, [lhs, rhs], [output], OPTIONS[op], **options)
    rng = np.random.default_rng(seed)
    return source, stored(rng, left, kind), stored(rng, right, kind)


@pytest.mark.parametrize("op", OPTIONS)
def test_sums_and_products(op: str) -> None:
    @thorough
    @given(case=binary(op))
    def check(case: tuple[bytes, Array, Array]) -> None:
        agrees(*case)

    check()


@thorough
@given(
    op=st.sampled_from(["ADD", "SUB"]), exponents=st.tuples(*[st.integers(-12, -8)] * 2), seed=SEEDS
)
def test_int16_sums_whose_scales_are_powers_of_two(
    op: str, exponents: tuple[int, int], seed: int
) -> None:
    shifted, other = min(exponents), max(exponents)
    order = (shifted, other) if seed % 2 else (other, shifted)
    lhs, rhs = (Tensor((4, 25), "int16", scale=2.0**exponent) for exponent in order)
    output = Tensor((4, 25), "int16", scale=2.0**other)
    source = single(op, [lhs, rhs], [output], OPTIONS[op], version=2, pot_scale_int16=True)
    rng = np.random.default_rng(seed)
    agrees(source, stored(rng, (4, 25), "int16"), stored(rng, (4, 25), "int16"))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("op", OPTIONS)
def test_plain_integers(op: str, dtype: str) -> None:
    a, b = Tensor((3, 4), dtype), Tensor((4,), dtype)
    source = single(op, [a, b], [Tensor((3, 4), dtype)], OPTIONS[op])
    rng = np.random.default_rng(0)
    agrees(source, *(rng.integers(-(1 << 14), 1 << 14, t.shape).astype(dtype) for t in (a, b)))


@st.composite
def pool(draw: st.DrawFn, op: str) -> tuple[bytes, Array]:
    """A file of one pool of any geometry, and its input."""
    kind, seed, padding = draw(KINDS), draw(SEEDS), draw(st.integers(0, 1))
    kernel = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    strides = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    size = tuple(draw(st.integers(1 if padding == 0 else k, 9)) for k in kernel)
    extents = [
        -(-n // s) if padding == 0 else (n - k) // s + 1
        for n, k, s in zip(size, kernel, strides, strict=True)
    ]
    data = quantized(draw, (2, *size, 3), kind)
    output = Tensor((2, *extents, 3), kind, scale=data.scale, zero_point=data.zero_point)
    source = single(
        op,
        [data],
        [output],
        "Pool2DOptions",
        padding=padding,
        stride_h=strides[0],
        stride_w=strides[1],
        filter_height=kernel[0],
        filter_width=kernel[1],
        fused_activation_function=draw(st.sampled_from([0, 1, 2, 3])),
    )
    return source, stored(np.random.default_rng(seed), data.shape, kind)


@pytest.mark.parametrize("op", POOLS)
def test_pools(op: str) -> None:
    @thorough
    @given(case=pool(op))
    def check(case: tuple[bytes, Array]) -> None:
        agrees(*case)

    check()


@st.composite
def change_of_scale(draw: st.DrawFn) -> tuple[bytes, Array]:
    """A QUANTIZE between two integer types, and its input."""
    pairs = ["int8", "uint8"], ["int8", "uint8"]
    first, second = draw(
        st.one_of(
            st.tuples(*map(st.sampled_from, pairs)),
            st.sampled_from([("int16", "int8"), ("int16", "int16"), ("int16", "int32")]),
            st.sampled_from([("int8", "int16"), ("int32", "int16"), ("int32", "int8")]),
        )
    )
    data = quantized(draw, (64,), first, symmetric=first == "int32")
    output = quantized(draw, (64,), second, symmetric=second == "int32")
    values = stored(np.random.default_rng(draw(SEEDS)), (64,), first)
    if first == "int32":
        values = values >> draw(st.integers(0, 20))
    source = single("QUANTIZE", [data], [output], "QuantizeOptions", version=3)
    return source, values


@thorough
@given(case=change_of_scale())
def test_quantize_from_one_scale_to_another(case: tuple[bytes, Array]) -> None:
    agrees(*case)


@thorough
@given(data=st.data(), kind=KINDS, seed=SEEDS)
def test_quantize_of_floats(data: st.DataObject, kind: str, seed: int) -> None:
    """Ties, their neighbours, and values far outside."""
    output = data.draw(st.composite(quantized)((200,), kind))
    rng = np.random.default_rng(seed)
    scale = np.float32(scale_of(output))
    steps = rng.integers(-300, 300, 200) + rng.choice([0.0, 0.5, 0.25], 200)
    x = (steps * scale).astype(np.float32)
    x[::3] = np.nextafter(x[::3], np.float32(rng.choice([-np.inf, np.inf])))
    x[:4] = [1e6, -1e6, -0.0, 0.0]
    agrees(single("QUANTIZE", [Tensor((200,), "float32")], [output], "QuantizeOptions"), x)


@thorough
@given(data=st.data(), kind=KINDS, seed=SEEDS)
def test_dequantize(data: st.DataObject, kind: str, seed: int) -> None:
    tensor = data.draw(st.composite(quantized)((100,), kind))
    source = single(
        "DEQUANTIZE", [tensor], [Tensor((100,), "float32")], "DequantizeOptions", version=3
    )
    agrees(source, stored(np.random.default_rng(seed), (100,), kind))


def test_dequantize_of_float16_weights() -> None:
    half = constant(np.array([1.5, -2.25, 0.1], np.float16))
    x, wide, y = (Tensor((n,), "float32") for n in (2, 3, 5))
    source = build(
        [
            Operation("DEQUANTIZE", [half], [wide], "DequantizeOptions", version=3),
            Operation("CONCATENATION", [x, wide], [y], "ConcatenationOptions"),
        ],
        [x],
        [y],
    )
    agrees(source, np.array([4.0, 5.0], np.float32))


@st.composite
def joined(draw: st.DrawFn) -> tuple[Any, ...]:
    """A CONCATENATION of uint8 tensors of different scales, and its inputs."""
    axis, seed = draw(st.integers(-3, 2)), draw(SEEDS)
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        shape = [2, 3, 4]
        shape[axis] = draw(st.integers(1, 4))
        parts.append(quantized(draw, shape, "uint8"))
    shape = [2, 3, 4]
    shape[axis] = sum(part.shape[axis] for part in parts)
    output = quantized(draw, shape, "uint8")
    source = single("CONCATENATION", parts, [output], "ConcatenationOptions", axis=axis)
    return source, *(stored(rng, part.shape, "uint8") for part in parts)


@thorough
@given(case=joined())
def test_concatenation_of_different_scales(case: tuple[Any, ...]) -> None:
    agrees(*case)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "float32", "uint8"])
def test_concatenation_of_one_scale(dtype: str) -> None:
    scale = None if dtype in ("int32", "float32") else 0.25
    a, b = Tensor((2, 3), dtype, scale=scale), Tensor((2, 1), dtype, scale=scale)
    output = Tensor((2, 4), dtype, scale=scale)
    source = single("CONCATENATION", [a, b], [output], "ConcatenationOptions", axis=1)
    agrees(source, *(np.arange(6).astype(dtype)[: n * 2].reshape(2, n) for n in (3, 1)))


def test_concatenation_of_int8_needs_one_scale() -> None:
    """So it does in LiteRT."""
    a, b = Tensor((2, 3), "int8", scale=0.25), Tensor((2, 1), "int8", scale=0.5)
    output = Tensor((2, 4), "int8", scale=0.25)
    source = single("CONCATENATION", [a, b], [output], "ConcatenationOptions", axis=1)
    with pytest.raises(StageError, match="int8 tensors of different scales"):
        imported(source, np.zeros((2, 3), np.int8), np.zeros((2, 1), np.int8))


@thorough
@given(data=st.data(), kind=TYPES, seed=SEEDS)
def test_pad(data: st.DataObject, kind: str, seed: int) -> None:
    tensor = data.draw(st.composite(quantized)((2, 3, 2), kind))
    width = data.draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))
    pairs = np.array(width, np.int32).reshape(3, 2)
    shape = tuple(int(n + p.sum()) for n, p in zip((2, 3, 2), pairs, strict=True))
    output = Tensor(shape, kind, scale=tensor.scale, zero_point=tensor.zero_point)
    value = stored(np.random.default_rng(seed), (3, 2, 2), kind).reshape(2, 3, 2)
    agrees(single("PAD", [tensor, constant(pairs)], [output], "PadOptions"), value)
    like: dict[str, Any] = {"scale": tensor.scale, "zero_point": tensor.zero_point}
    filling = constant(stored(np.random.default_rng(seed), (1,), kind), **like)
    operands = [tensor, constant(pairs), filling]
    agrees(single("PADV2", operands, [output], "PadV2Options", version=2), value)


@pytest.mark.slow
@pytest.mark.parametrize("op", [*OPTIONS, *POOLS, "QUANTIZE"])
def test_compiled(op: str) -> None:
    """TVM compiles the same arithmetic from the operators' expressions."""
    strategies: dict[str, Any] = {
        **{name: partial(binary, name) for name in OPTIONS},
        **{name: partial(pool, name) for name in POOLS},
        "QUANTIZE": change_of_scale,
    }

    @a_few
    @given(case=strategies[op]())
    def check(case: tuple[Any, ...]) -> None:
        assume(all(value.shape for value in case[1:]))
        assert np.array_equal(compiled(*case), agrees(*case)[0])

    check()


def test_sums_at_ties() -> None:
    """Halves of both signs: away from zero."""
    x = np.arange(-128, 128).astype(np.int8)
    lhs, rhs = (Tensor((256,), "int8", scale=0.5) for _ in range(2))
    output = Tensor((256,), "int8", scale=1.0)
    (found,) = agrees(single("ADD", [lhs, rhs], [output], "AddOptions"), x, np.ones(256, np.int8))
    exact = (x.astype(np.float64) + 1) / 2
    assert np.array_equal(found, np.sign(exact) * np.floor(np.abs(exact) + 0.5))
