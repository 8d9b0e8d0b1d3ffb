"""Calls of float functions, of softmax, resizing and TensorFlow Lite's functions of integers."""

from __future__ import annotations

from math import exp

import numpy as np

from stages.importing.tflite.resize_operators import fixed_places, float_places
from stages.importing.tflite.softmaxes import exponentials, lookup_table
from stages.kinds import Array
from stages.numerics import (
    bipolar,
    float_elementwise,
    float_softmax,
    onnx_resize,
    onnx_sums,
    tflite_activations,
    tflite_hybrid,
    tflite_resize,
    tflite_softmax,
)
from tests.stages.dialect.example import RNG, Example, floats, integers

_REALS = (np.append(RNG.normal(size=37) * 5, [0.0, 88.0, -100.0]).astype(np.float32), "float32")
_ROWS = ((RNG.normal(size=(3, 17)) * 4).astype(np.float32), "float32")
_SIGMOID = (tflite_activations.sigmoid_table(), "int32")
_SAMPLES = ((RNG.normal(size=(2, 3, 4, 5)) * 9).astype(np.float32), "float32")
_SUMS = integers(-9999, 9999, (2, 3, 4, 5), "int32")
_FACTORS = floats(*RNG.uniform(0.01, 0.1, 5))
_CLIPPED = {"zero_point": 3, "low": -128, "high": 127, "dtype": "int8"}


def _end(reduce: np.ufunc) -> tuple[Array, str]:
    """A least or greatest value of each sample."""
    return reduce.reduce(_SAMPLES[0], axis=(1, 2, 3), keepdims=True), "float32"


_ENDS = (_end(np.minimum), _end(np.maximum))
_LARGEST = (np.maximum(np.abs(_ENDS[0][0]), np.abs(_ENDS[1][0])), "float32")

_UNARY = (
    "exp", "sigmoid", "tanh", "expm1", "sin", "cos", "erf", "gelu", "elu", "hard_swish",
)  # fmt: skip

FUNCTIONS: dict[str, Example] = {
    **{name: Example(getattr(float_elementwise, name), (_REALS,), {}) for name in _UNARY},
    "log": Example(float_elementwise.log, ((np.abs(_REALS[0]) + np.float32(1e-3), "float32"),), {}),
    "power": Example(
        float_elementwise.power,
        (floats(0.0, 1.5, -2.0, 9.0, -3.0), floats(2.0, -1.25, 3.0, 0.5, 2.0)),
        {},
    ),
    "leaky_relu": Example(float_elementwise.leaky_relu, (_REALS,), {"alpha": 0.3}),
    "prelu": Example(float_elementwise.prelu, (_SAMPLES, floats(0.1, -0.5, 2.0, 0.0, 1.0)), {}),
    "softmax": Example(float_softmax.softmax, (_ROWS,), {"beta": 0.7}),
    "log_softmax": Example(float_softmax.log_softmax, (_ROWS,), {}),
    "tflite_softmax": Example(
        tflite_softmax.softmax_of_bytes,
        (
            integers(-128, 127, (2, 3, 17), "int8"),
            (exponentials(1.0, np.float32(0.05)), "int32"),
        ),
        {"dtype": "int8"},
    ),
    "tflite_softmax_int16": Example(
        tflite_softmax.softmax_of_int16,
        (
            integers(-32768, 32767, (3, 17), "int16"),
            (lookup_table(exp, -10.0, 0.0), "int16"),
            (lookup_table(lambda x: 1.0 / (1.0 + x), 0.0, 1.0), "int16"),
        ),
        {"multiplier": 1 << 30, "shift": 1},
    ),
    "tflite_logistic": Example(
        tflite_activations.logistic_of_int16,
        (integers(-32768, 32767, (5, 40), "int16"), _SIGMOID),
        {"multiplier": 3, "shift": 0},
    ),
    "tflite_tanh": Example(
        tflite_activations.tanh_of_int16,
        (integers(-32768, 32767, (5, 40), "int16"), _SIGMOID),
        {"multiplier": 20000, "shift": 13},
    ),
    "tflite_leaky_relu": Example(
        tflite_activations.leaky_relu_of_int16,
        (integers(-32768, 32767, (5, 40), "int16"),),
        {
            "data_zero_point": 0,
            "multiplier": 1610612736,
            "shift": 0,
            "slope_multiplier": 1717986918,
            "slope_shift": -3,
            "zero_point": 0,
            "low": -32768,
            "high": 32767,
            "dtype": "int16",
        },
    ),
    "tflite_prelu": Example(
        tflite_activations.prelu_of_bytes,
        (integers(-128, 127, (2, 3, 4), "int8"), integers(-128, 127, (1, 4), "int8")),
        {
            "data_zero_point": -3,
            "alpha_zero_point": 5,
            "multiplier": 1610612736,
            "shift": 0,
            "slope_multiplier": 1717986918,
            "slope_shift": -6,
            **_CLIPPED,
        },
    ),
    "resize_bilinear": Example(
        tflite_resize.resize_bilinear,
        (
            _SAMPLES,
            *zip(float_places(3, 7, False, True), ("int32", "int32", "float32"), strict=True),
            *zip(float_places(4, 3, False, True), ("int32", "int32", "float32"), strict=True),
        ),
        {},
    ),
    "resize_bilinear_integer": Example(
        tflite_resize.resize_bilinear_integer,
        (
            integers(-128, 127, (2, 3, 4, 5), "int8"),
            *zip(fixed_places(3, 7, True, False), ["int32"] * 3, strict=True),
            *zip(fixed_places(4, 3, True, False), ["int32"] * 3, strict=True),
        ),
        {},
    ),
    "interpolate": Example(
        onnx_resize.interpolate,
        (
            _SAMPLES,
            ((RNG.normal(size=(2, 3, 4, 5)) * 9).astype(np.float32), "float32"),
            (RNG.random((2, 5)).astype(np.float32), "float32"),
            (RNG.integers(0, 4, (2, 7)).astype(np.int32), "int32"),
            (RNG.random((2, 7)).astype(np.float32), "float32"),
            (RNG.integers(0, 3, (2, 2)).astype(np.int32), "int32"),
            (RNG.random((2, 2)).astype(np.float32), "float32"),
        ),
        {"axes": [3, 2, 1]},
    ),
    "sum_in_order": Example(
        onnx_sums.sum_in_order,
        (((RNG.normal(size=(5, 23, 1)) * 9).astype(np.float32), "float32"),),
        {"order": "vectors"},
    ),
    "from_bits": Example(
        bipolar.from_bits,
        (integers(0, 1, (3, 5), "uint1"),),
        {"low": -1, "high": 1, "dtype": "float32"},
    ),
    "sign": Example(bipolar.sign, (floats(-1.5, -0.0, 0.0, 1e-30, -1e-30, 7.0),), {}),
    "larq_output": Example(
        bipolar.larq_output,
        (_SUMS, _FACTORS, floats(0.5, -0.5, 1e3, -3.0, 0.0)),
        {"depth": 576, "low": 0, "high": 700, "dtype": "int8"},
    ),
    "quantize_sample": Example(tflite_hybrid.quantize_sample, (_SAMPLES, _LARGEST), {}),
    "sample_output": Example(tflite_hybrid.sample_output, (_SUMS, _LARGEST, floats(0.03)), {}),
    "center_sample": Example(tflite_hybrid.center_sample, (_SAMPLES, *_ENDS), {}),
    "centered_output": Example(
        tflite_hybrid.centered_output, (_SUMS, *_ENDS, _FACTORS), {"joined": True}
    ),
}
"""By the operator's name without its prefix."""
