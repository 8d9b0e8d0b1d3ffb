"""Quantized layers with weights against LiteRT's reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stages.importing.tflite.comparing import (
    SEEDS,
    Tensor,
    a_few,
    agrees,
    compiled,
    constant,
    quantized,
    scale_of,
    stored,
    thorough,
)
from tests.stages.importing.tflite_models import single

Array = np.ndarray[Any, Any]
ACTIVATIONS = st.sampled_from([0, 1, 2, 3])
KINDS = st.sampled_from(["int8", "uint8", "int16"])


@st.composite
def weights_and_bias(
    draw: st.DrawFn,
    shape: tuple[int, ...],
    axis: int,
    data: Tensor,
    seed: int,
    *,
    narrow: bool = False,
    needs_bias: bool = False,
) -> list[Tensor]:
    """Weights, and a bias or none, for data of a type: scales per tensor or along `axis`.

    A `narrow` bias is int32 with int16 data too.
    """
    rng = np.random.default_rng(seed)
    dtype = "uint8" if data.dtype == "uint8" else "int8"
    count = shape[axis] if dtype == "int8" and draw(st.booleans()) else 1
    scales = rng.uniform(0.001, 0.02, count).astype(np.float32)
    values = stored(rng, shape, dtype)
    zero_point = draw(st.integers(0, 255)) if dtype == "uint8" else 0
    scale: Any = scales.tolist() if count > 1 else float(scales[0])
    weights = Tensor(shape, dtype, scale=scale, zero_point=zero_point, data=values, axis=axis)
    if not needs_bias and draw(st.booleans()):
        return [weights]
    wide = "int64" if data.dtype == "int16" and not narrow else "int32"
    bias = rng.integers(-(1 << 14), 1 << 14, shape[axis]).astype(wide)
    steps = (np.float32(scale_of(data)) * scales).tolist()
    return [weights, constant(bias, scale=steps if count > 1 else steps[0])]


def _output(
    draw: st.DrawFn, shape: tuple[int, ...], data: Tensor, weights: Tensor, depth: int
) -> Tensor:
    """An output whose scale lets results spread over the type.

    Half of them are just above a power of two of the accumulators' scale: there, rounding twice
    differs from rounding once.
    """
    step = scale_of(data) * scale_of(weights)
    steps = 40 * np.sqrt(depth) * draw(st.floats(0.5, 4.0))
    if draw(st.booleans()):
        steps = 2.0 ** np.round(np.log2(steps)) * (1 + 2.0 ** -draw(st.integers(6, 14)))
    scale = float(np.float32(step * steps))
    like = quantized(draw, shape, data.dtype)
    return Tensor(shape, data.dtype, scale=scale, zero_point=like.zero_point)


@st.composite
def convolution(draw: st.DrawFn) -> tuple[bytes, Array]:
    """A CONV_2D file of any geometry, and an input."""
    seed, kind = draw(SEEDS), draw(KINDS)
    groups = draw(st.sampled_from([1, 1, 2]))
    kh, kw = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    dilation = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    strides = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    size = tuple(
        draw(st.integers((k - 1) * d + 1, 8)) for k, d in zip((kh, kw), dilation, strict=True)
    )
    data = quantized(draw, (draw(st.integers(1, 2)), *size, 2 * groups), kind)
    narrow = draw(st.booleans())
    operands = weights_and_bias((4, kh, kw, 2), 0, data, seed, narrow=narrow, needs_bias=True)
    weights, *bias = draw(operands)
    padding = draw(st.integers(0, 1))
    extents = _extents(size, (kh, kw), strides, dilation, padding)
    output = _output(draw, (data.shape[0], *extents, 4), data, weights, kh * kw * 2)
    source = single(
        "CONV_2D",
        [data, weights, *bias],
        [output],
        "Conv2DOptions",
        padding=padding,
        stride_h=strides[0],
        stride_w=strides[1],
        dilation_h_factor=dilation[0],
        dilation_w_factor=dilation[1],
        quantized_bias_type=2 if narrow else 0,
        fused_activation_function=draw(ACTIVATIONS),
    )
    return source, stored(np.random.default_rng(seed), data.shape, kind)


def _extents(
    size: tuple[int, ...],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    padding: int,
) -> list[int]:
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    return [
        -(-extent // stride) if padding == 0 else (extent - span) // stride + 1
        for extent, span, stride in zip(size, spans, strides, strict=True)
    ]


@thorough
@given(case=convolution())
def test_conv_2d(case: tuple[bytes, Array]) -> None:
    agrees(*case)


@st.composite
def depthwise(draw: st.DrawFn) -> tuple[bytes, Array]:
    """A DEPTHWISE_CONV_2D file with any multiplier, and an input."""
    seed, kind = draw(SEEDS), draw(KINDS)
    channels, multiplier = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    stride, dilation = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    size = (draw(st.integers(5, 8)), draw(st.integers(5, 8)))
    data = quantized(draw, (1, *size, channels), kind)
    weights, *bias = draw(weights_and_bias((1, 3, 3, channels * multiplier), 3, data, seed))
    padding = draw(st.integers(0, 1))
    extents = _extents(size, (3, 3), (stride, stride), (dilation, dilation), padding)
    output = _output(draw, (1, *extents, channels * multiplier), data, weights, 9)
    source = single(
        "DEPTHWISE_CONV_2D",
        [data, weights, *bias],
        [output],
        "DepthwiseConv2DOptions",
        padding=padding,
        stride_h=stride,
        stride_w=stride,
        depth_multiplier=multiplier,
        dilation_h_factor=dilation,
        dilation_w_factor=dilation,
        fused_activation_function=draw(ACTIVATIONS),
    )
    return source, stored(np.random.default_rng(seed), data.shape, kind)


@thorough
@given(case=depthwise())
def test_depthwise_conv_2d(case: tuple[bytes, Array]) -> None:
    agrees(*case)


@st.composite
def dense(draw: st.DrawFn) -> tuple[bytes, Array]:
    """A FULLY_CONNECTED file over data of any rank, and an input."""
    seed, kind = draw(SEEDS), draw(KINDS)
    units, depth = draw(st.integers(1, 6)), draw(st.integers(1, 20))
    lead = draw(st.sampled_from([(1,), (3,), (2, 2), (1, 2, 2)]))
    keep = draw(st.booleans())
    data = quantized(draw, (*lead, depth), kind)
    narrow = draw(st.booleans())
    weights, *bias = draw(weights_and_bias((units, depth), 0, data, seed, narrow=narrow))
    shape = (*lead, units) if keep else (int(np.prod(lead)), units)
    output = _output(draw, shape, data, weights, depth)
    source = single(
        "FULLY_CONNECTED",
        [data, weights, *bias],
        [output],
        "FullyConnectedOptions",
        fused_activation_function=draw(ACTIVATIONS),
        keep_num_dims=keep,
        quantized_bias_type=2 if narrow else 0,
    )
    return source, stored(np.random.default_rng(seed), data.shape, kind)


@thorough
@given(case=dense())
def test_fully_connected(case: tuple[bytes, Array]) -> None:
    agrees(*case)


@st.composite
def transposed(draw: st.DrawFn) -> tuple[bytes, Array]:
    """A TRANSPOSE_CONV file, and an input."""
    seed, kind = draw(SEEDS), draw(KINDS)
    kernel = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    strides = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    size, padding = (draw(st.integers(1, 4)), draw(st.integers(1, 4))), draw(st.integers(0, 1))
    extents = [
        n * s if padding == 0 else (n - 1) * s + k
        for n, s, k in zip(size, strides, kernel, strict=True)
    ]
    data = quantized(draw, (1, *size, 3), kind)
    weights, *bias = draw(weights_and_bias((2, *kernel, 3), 0, data, seed))
    output = _output(draw, (1, *extents, 2), data, weights, 3 * kernel[0] * kernel[1])
    shape = constant(np.array(output.shape, np.int32))
    source = single(
        "TRANSPOSE_CONV",
        [shape, weights, data, *bias],
        [output],
        "TransposeConvOptions",
        version=3,
        padding=padding,
        stride_h=strides[0],
        stride_w=strides[1],
    )
    return source, stored(np.random.default_rng(seed), data.shape, kind)


@thorough
@given(case=transposed())
def test_transpose_conv(case: tuple[bytes, Array]) -> None:
    agrees(*case)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [convolution, depthwise, dense, transposed])
def test_compiled_layers(strategy: Any) -> None:
    """TVM compiles the same arithmetic from the operators' expressions."""

    @a_few
    @given(case=strategy())
    def check(case: tuple[bytes, Array]) -> None:
        assert np.array_equal(compiled(*case), agrees(*case)[0])

    check()
