"""SOFTMAX and LOG_SOFTMAX against TensorFlow Lite's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stages.importing.tflite.cases import compare, compare_nearly, random_integers
from tests.stages.importing.tflite_models import Tensor, single

ZERO = {"int8": -128, "uint8": 0, "int16": 0}
SCALE = {"int8": 1 / 256, "uint8": 1 / 256, "int16": 1 / 32768}


def softmax(source: str, target: str, shape: tuple[int, ...], scale: float, beta: float) -> bytes:
    if source == "float32":
        return single(
            "SOFTMAX", [Tensor(shape, source)], [Tensor(shape, source)], "SoftmaxOptions", beta=beta
        )
    return single(
        "SOFTMAX",
        [Tensor(shape, source, scale=scale, zero_point=0 if source == "int16" else 3)],
        [Tensor(shape, target, scale=SCALE[target], zero_point=ZERO[target])],
        "SoftmaxOptions",
        beta=beta,
    )


@pytest.mark.parametrize(
    ("source", "target"),
    [("int8", "int8"), ("uint8", "uint8"), ("int8", "int16"), ("int16", "int16")],
)
@settings(max_examples=25)
@given(
    exponent=st.floats(-9, 1), beta=st.sampled_from([1.0, 0.5, 3.0]),
    columns=st.integers(1, 300), seed=st.integers(0, 1 << 30),
)  # fmt: skip
def test_softmax_of_integers(
    source: str, target: str, exponent: float, beta: float, columns: int, seed: int
) -> None:
    shape = (3, columns)
    scale = 2.0**exponent / (256 if source == "int16" else 1)
    x = random_integers(source, shape, seed)
    compare(softmax(source, target, shape, scale, beta), x, compiled=seed % 8 == 0)


@pytest.mark.parametrize("shape", [(1, 10), (2, 3, 5), (7,), (1, 2, 2, 1001)])
@pytest.mark.parametrize("source", ["int8", "uint8", "int16"])
def test_softmax_of_other_shapes(source: str, shape: tuple[int, ...]) -> None:
    found = compare(softmax(source, source, shape, 0.05, 1.0), random_integers(source, shape))
    assert len(np.unique(found)) > 1


def test_softmax_of_int16_rounds_scale_times_beta_to_float32() -> None:
    x = random_integers("int16", (3, 254), 1_073_741_823)
    compare(softmax("int16", "int16", (3, 254), 2.0**-2.266804430216447 / 256, 3.0), x)


@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_softmax_of_floats(beta: float) -> None:
    x = (np.random.default_rng(0).normal(size=(5, 37)) * 4).astype(np.float32)
    compare_nearly(softmax("float32", "float32", (5, 37), 0, beta), x, ulps=1)


def test_log_softmax_of_floats() -> None:
    x = (np.random.default_rng(0).normal(size=(5, 37)) * 4).astype(np.float32)
    source = single(
        "LOG_SOFTMAX",
        [Tensor(x.shape, "float32")],
        [Tensor(x.shape, "float32")],
        "LogSoftmaxOptions",
    )
    compare_nearly(source, x, ulps=1)
