"""Layers of float32 data and int8 weights against LiteRT's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import StageError
from tests.stages.importing.tflite.comparing import (
    SEEDS,
    Tensor,
    a_few,
    compiled,
    constant,
    imported,
    thorough,
)
from tests.stages.importing.tflite_models import run_reference, single

Array = np.ndarray[Any, Any]


def close(found: Array, expected: Array) -> bool:
    """Equal up to the order of float sums; one step of the stored data would be far more."""
    return bool(np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max())


@st.composite
def layer(draw: st.DrawFn) -> tuple[bytes, Array]:
    """A hybrid CONV_2D or FULLY_CONNECTED file, and an input of up to three samples."""
    rng, batch = np.random.default_rng(draw(SEEDS)), draw(st.integers(1, 3))
    scale, activation = draw(st.floats(0.01, 1)), draw(st.sampled_from([0, 1, 3]))
    bias = constant(rng.normal(size=5).astype(np.float32) * 20)
    size = rng.choice([0, 1e-3, 1, 50])
    x = (rng.normal(size=(batch, 6, 5, 3)) * size).astype(np.float32)
    data = Tensor(x.shape, "float32")
    if draw(st.booleans()):
        weights = constant(rng.integers(-127, 128, (5, 90)).astype(np.int8), scale=scale)
        output = Tensor((batch, 5), "float32")
        options: dict[str, Any] = {"fused_activation_function": activation}
        operands = [data, weights, bias]
        return single("FULLY_CONNECTED", operands, [output], "FullyConnectedOptions", **options), x
    weights = constant(rng.integers(-127, 128, (5, 3, 2, 3)).astype(np.int8), scale=scale)
    stride, padding = draw(st.integers(1, 2)), draw(st.integers(0, 1))
    sizes = ((6, 3), (5, 2))
    extents = [-(-n // stride) if padding == 0 else (n - k) // stride + 1 for n, k in sizes]
    output = Tensor((batch, *extents, 5), "float32")
    source = single(
        "CONV_2D",
        [data, weights, bias],
        [output],
        "Conv2DOptions",
        padding=padding,
        stride_h=stride,
        stride_w=stride,
        fused_activation_function=activation,
    )
    return source, x


@thorough
@given(case=layer())
def test_hybrid_layers(case: tuple[bytes, Array]) -> None:
    (found,), (expected,) = imported(*case), run_reference(*case)
    assert found.shape == expected.shape
    assert close(found, expected)


@pytest.mark.slow
@a_few
@given(case=layer())
def test_compiled(case: tuple[bytes, Array]) -> None:
    assert np.array_equal(compiled(*case), imported(*case)[0])


def test_weights_with_a_scale_a_channel_are_refused() -> None:
    x, y = Tensor((1, 4), "float32"), Tensor((1, 2), "float32")
    weights = constant(np.ones((2, 4), np.int8), scale=[0.5, 0.25])
    source = single("FULLY_CONNECTED", [x, weights], [y], "FullyConnectedOptions")
    with pytest.raises(StageError, match="with 2 scales; one is accepted"):
        imported(source, np.ones((1, 4), np.float32))
