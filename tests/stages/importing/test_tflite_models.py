"""The files that other tests build are what TensorFlow Lite itself takes them for."""

from __future__ import annotations

import numpy as np

from tests.stages.importing.tflite_models import Tensor, constant, run_reference, single


def test_a_convolution_with_constants_and_options() -> None:
    data = Tensor((1, 4, 4, 2), "float32")
    weight = constant(np.ones((3, 2, 2, 2)), "float32")
    bias = constant([1, 2, 3], "float32")
    source = single(
        "CONV_2D",
        [data, weight, bias],
        [Tensor((1, 3, 3, 3), "float32")],
        "Conv2DOptions",
        padding=1,
        stride_w=1,
        stride_h=1,
    )
    (found,) = run_reference(source, np.ones((1, 4, 4, 2), np.float32))
    assert found.shape == (1, 3, 3, 3)
    assert np.array_equal(found[0, 0, 0], [9, 10, 11])


def test_quantization_reaches_the_kernel() -> None:
    data = Tensor((1, 4), "int8", scale=0.5, zero_point=1)
    out = Tensor((1, 4), "int8", scale=1.0, zero_point=-3)
    (found,) = run_reference(single("QUANTIZE", [data], [out]), np.array([[1, 3, 5, 7]], np.int8))
    assert np.array_equal(found, [[-3, -2, -1, 0]])


def test_vectors_in_options() -> None:
    source = single(
        "RESHAPE",
        [Tensor((2, 3), "int8", scale=1.0)],
        [Tensor((3, 2), "int8", scale=1.0)],
        "ReshapeOptions",
        new_shape=[3, 2],
    )
    (found,) = run_reference(source, np.arange(6, dtype=np.int8).reshape(2, 3))
    assert found.shape == (3, 2)
