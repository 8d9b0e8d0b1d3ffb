"""Calls of ONNX Runtime's operators, and of those that QONNX and FINN define."""

from __future__ import annotations

import numpy as np

from stages.numerics import (
    linear_quantizers,
    onnx_elementwise,
    onnx_layers,
    qonnx_operators,
    rescale,
)
from stages.numerics.onnx_pointwise_conv import near_ties
from tests.stages.dialect.example import IMAGE, RNG, Example, floats, integers

ONNX: dict[str, Example] = {
    "quantize_linear": Example(
        linear_quantizers.quantize_linear,
        (IMAGE, floats(0.01), (np.array([[[3]], [[-4]], [[0]]], np.int8), "int8")),
        {"low": -128, "high": 127},
    ),
    "rescaled_sum": Example(
        rescale.rescaled_sum,
        (
            integers(-(2**20), 2**20, (1, 2, 3, 3), "int32"),
            integers(0, 255, (1, 2, 3, 3), "uint8"),
            floats(1e-4, 7e-5, 3e-4),
            floats(0.3),
        ),
        {"fused": True, "low": -128, "high": 127, "dtype": "int8"},
    ),
    "dequantize_linear": Example(
        linear_quantizers.dequantize_linear,
        (
            integers(0, 15, (1, 2, 3, 3), "uint4"),
            floats(0.1, -0.3, 7),
            integers(0, 9, (3,), "uint4"),
        ),
        {},
    ),
    "qlinear_add": Example(
        onnx_elementwise.qlinear_add,
        (
            integers(0, 255, (2, 3, 4), "uint8"),
            integers(0, 255, (3, 1), "uint8"),
            (np.array(0.3, np.float32), "float32"),
            (np.array(0.7, np.float32), "float32"),
            (np.array(-60.2, np.float32), "float32"),
        ),
        {"low": 0, "high": 255},
    ),
    "qlinear_mul": Example(
        onnx_elementwise.qlinear_mul,
        (
            integers(-128, 127, (2, 3, 4), "int8"),
            integers(-128, 127, (3, 4), "int8"),
            (np.array(0.003, np.float32), "float32"),
        ),
        {"lhs_zero_point": 3, "rhs_zero_point": -9, "zero_point": 5, "low": -128, "high": 127},
    ),
    "quantize_inside": Example(
        onnx_elementwise.quantize_inside,
        (IMAGE, floats(0.01)),
        {"zero_point": -7, "low": -128, "high": 127, "dtype": "int8"},
    ),
    "qlinear_add_fixed": Example(
        onnx_elementwise.qlinear_add_fixed,
        tuple((np.array(value, np.float32), "float32") for value in (0.3, 17, 0.7, 201, 96)),
        {},
    ),
    "float_sum": Example(onnx_elementwise.float_sum, (IMAGE, floats(0.01)), {}),
    "dynamic_scale": Example(
        onnx_elementwise.dynamic_scale, (floats(-3, 2, 0), floats(5, 9, 0)), {}
    ),
    "dynamic_zero_point": Example(
        onnx_elementwise.dynamic_zero_point, (floats(-3, 2, 0), floats(0.02, 0.3, 1)), {}
    ),
    "window_sum2d": Example(
        onnx_layers.window_sum2d,
        (IMAGE,),
        {"kernel": [3, 2], "strides": [1, 2], "padding": [1, 0, 1, 1], "accumulator": "float32"},
    ),
    "qlinear_softmax": Example(
        onnx_layers.qlinear_softmax,
        (
            integers(-128, 127, (2, 3, 7), "int8"),
            (np.exp(np.linspace(-9, 9, 256)).astype(np.float32), "float32"),
        ),
        {"levels": 256.0, "zero_point": -128},
    ),
}
"""Operators that plain Relax can run."""

QONNX: dict[str, Example] = {
    "quant": Example(
        qonnx_operators.quant,
        (IMAGE, floats(0.3), floats(1.5)),
        {"bits": 3, "signed": True, "narrow": False, "rounding": "FLOOR"},
    ),
    "bipolar_quant": Example(qonnx_operators.bipolar_quant, (IMAGE, floats(0.5)), {}),
    "multi_threshold": Example(
        qonnx_operators.multi_threshold,
        (IMAGE, (np.array([[-1.0, 0.25, 1.0]], np.float32), "float32")),
        {"out_scale": 2.0, "out_bias": -3.0, "channel_axis": 1},
    ),
    "batch_norm": Example(
        qonnx_operators.batch_norm,
        (IMAGE, *[floats(0.5, 1, 2)] * 4),
        {"epsilon": 1e-5, "channel_axis": 1},
    ),
    "near_ties": Example(
        near_ties,
        (
            (RNG.integers(-99, 100, (1, 2, 3, 4), dtype=np.int32), "int32"),
            integers(-128, 127, (1, 3, 6, 5), "int8"),
            integers(-128, 127, (4, 1, 1, 5), "int8"),
            *((np.full(4, value, np.float32), "float32") for value in (0.5, 2, 0.25, 1, 0.001)),
            (np.full(4, 0.1, np.float32), "float32"),
        ),
        {
            **{"strides": [2, 2], "block": 3, "data_scale": 0.5, "data_point": -3},
            **{"scale": 0.25, "point": 7, "low": -128, "high": 127},
        },
    ),
}
"""Operators that it cannot."""
