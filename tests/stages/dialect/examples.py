"""One call of every operator of all rooms, small enough to print, with operands to run it on."""

from __future__ import annotations

import numpy as np

from stages.dialect import batch_matmul, integer
from stages.dialect import float_linear as products_of_floats
from stages.dialect.padding import Padding, Sides
from stages.dialect.resummation import resum
from stages.graph.collecting import collect
from stages.kernels import (
    byte_shift,
    direct_operators,
)
from tests.stages.dialect.example import IMAGE, RNG, Example, floats, integers
from tests.stages.kernels.packed_examples import PACKED
from tests.stages.numerics.function_examples import FUNCTIONS
from tests.stages.numerics.onnx_examples import ONNX, QONNX
from tests.stages.numerics.tflite_examples import TFLITE

__all__ = ["ALL", "CONV", "INTEGER", "POOL", "Example", "floats", "integers"]

CONV = {
    "strides": [2, 1],
    "padding": Padding(Sides(1, 0, 1, 2)),
    "groups": 1,
    "data_zero_point": 0,
    "weight_zero_point": 0.5,
}
POOL = {"kernel": [3, 2], "strides": [2, 1], "padding": [1, 0, 1, 1]}

INTEGER: dict[str, Example] = {
    **TFLITE,
    **FUNCTIONS,
    **ONNX,
    "conv2d": Example(
        integer.conv2d,
        (integers(0, 255, (1, 5, 4, 4), "uint8"), integers(-4, 3, (6, 3, 3, 2), "int3")),
        {
            **CONV,
            "padding": Padding(Sides(1, 0, 1, 2), 3),
            "groups": 2,
            "weight_zero_point": 0,
            "data_zero_point": 128,
        },
    ),
    "bitserial_conv2d": Example(
        integer.bitserial_conv2d,
        (integers(0, 3, (1, 5, 4, 5), "uint2"), integers(0, 1, (6, 3, 3, 5), "uint1")),
        CONV,
    ),
    "lookup_conv2d": Example(
        integer.lookup_conv2d,
        (integers(0, 3, (1, 5, 4, 5), "uint2"), integers(0, 1, (6, 3, 3, 5), "uint1")),
        CONV,
    ),
    "direct_conv2d": Example(
        direct_operators.direct_conv2d,
        (integers(-128, 127, (1, 7, 6, 4), "int8"), integers(0, 255, (3, 2, 2, 6), "uint8")),
        {
            "strides": [2, 1],
            "dilation": [1, 2],
            "groups": 2,
            "data_zero_point": -3,
            "weight_zero_point": 117,
            "dtype": "int32",
        },
    ),
    "direct_dense": Example(
        direct_operators.direct_dense,
        (integers(-999, 999, (2, 9), "int32"), integers(-128, 127, (9, 5), "int8")),
        {"data_zero_point": 4, "weight_zero_point": -1, "dtype": "int64"},
    ),
    "rebase": Example(byte_shift.as_unsigned, (integers(-128, 127, (1, 2, 3, 3), "int8"),), {}),
    "less_shift": Example(byte_shift.less_shift, (integers(0, 255, (1, 2, 3, 3), "uint8"),), {}),
    "dense": Example(
        integer.dense,
        (integers(0, 1, (1, 9), "uint1"), integers(-127, 127, (4, 9), "int8")),
        {"data_zero_point": 0.5, "weight_zero_point": 0},
    ),
    "bitserial_dense": Example(
        integer.bitserial_dense,
        (integers(0, 1, (1, 9), "uint1"), integers(0, 7, (4, 9), "uint3")),
        {"data_zero_point": 0.5, "weight_zero_point": 3.5},
    ),
    "lookup_dense": Example(
        integer.lookup_dense,
        (integers(0, 1, (1, 9), "uint1"), integers(0, 7, (4, 9), "uint3")),
        {"data_zero_point": 0.5, "weight_zero_point": 3.5},
    ),
    "add": Example(
        integer.add,
        (integers(0, 255, (1, 2, 3, 4), "uint8"), integers(0, 7, (1, 2, 3, 4), "uint3")),
        {"lhs_zero_point": 128, "rhs_zero_point": -2},
    ),
    "max_pool2d": Example(integer.max_pool2d, (integers(0, 7, (1, 5, 4, 3), "uint3"),), POOL),
    "sum_pool2d": Example(
        integer.sum_pool2d,
        (integers(0, 7, (1, 5, 4, 3), "uint3"),),
        {**POOL, "zero_point": 4},
    ),
    "threshold": Example(
        integer.threshold,
        (
            integers(-9, 9, (1, 4, 4, 3), "int32"),
            (np.array([[-5, 8, 2147483647], [0, 1, -9], [3, -4, 2147483647]], np.int32), "int32"),
            (np.array([0, 1, 1], np.uint8), "uint8"),
        ),
        {"dtype": "uint2"},
    ),
    "requantize": Example(
        integer.requantize,
        (integers(-9999, 9999, (1, 4, 4, 3), "int32"), floats(0.01, -0.02, 0), floats(3.5, 7, 2.5)),
        {"low": 0, "high": 31, "dtype": "uint5"},
    ),
    "saturate": Example(
        integer.saturate,
        (integers(-99, 99, (1, 4, 4, 3), "int32"),),
        {"offset": 7, "low": 3, "high": 60, "dtype": "uint6"},
    ),
    "collect": Example(collect, (integers(0, 255, (1, 2, 3, 4), "uint8"),), {"pictures": 3}),
    "quantize": Example(
        integer.quantize,
        (IMAGE, floats(0.125), floats(0.5)),
        {"low": -8, "high": 7, "shift": 8, "rounding": "HALF_UP", "dtype": "uint4"},
    ),
    "dequantize": Example(
        integer.dequantize,
        (integers(0, 255, (1, 2, 3, 3), "uint8"), floats(0.1, -0.3, 7)),
        {"zero_point": 128},
    ),
}
"""Operators that plain Relax can run."""

OTHERS: dict[str, Example] = {
    **QONNX,
    **PACKED,
    "float_conv2d": Example(
        products_of_floats.float_conv2d,
        (
            (RNG.integers(-9, 10, (2, 6, 7, 6)).astype(np.float32), "float32"),
            (RNG.integers(-9, 10, (9, 3, 2, 2)).astype(np.float32), "float32"),
        ),
        {"strides": [2, 1], "groups": 3},
    ),
    "resum": Example(
        resum,
        (
            (RNG.integers(-9, 10, (1, 3, 6, 4)).astype(np.float32) / 8, "float32"),
            (RNG.integers(-9, 10, (1, 5, 7, 2)).astype(np.float32), "float32"),
            (RNG.integers(-9, 10, (4, 1, 2, 2)).astype(np.float32) / 16, "float32"),
            *((np.full(4, value, np.float32), "float32") for value in (0.5, 0.25, 0.01, 0.1)),
            (np.asarray(9, np.float32), "float32"),
        ),
        {"strides": [2, 1], "low": -2, "high": 3},
    ),
    "float_dense": Example(
        products_of_floats.float_dense,
        (
            (RNG.integers(-9, 10, (3, 17)).astype(np.float32), "float32"),
            (RNG.integers(-9, 10, (10, 17)).astype(np.float32), "float32"),
        ),
        {},
    ),
    "float_batch_dense": Example(
        batch_matmul.float_batch_dense,
        (
            (RNG.integers(-9, 10, (2, 1, 3, 17)).astype(np.float32), "float32"),
            (RNG.integers(-9, 10, (2, 10, 17)).astype(np.float32), "float32"),
        ),
        {},
    ),
    "batch_dense": Example(
        batch_matmul.batch_dense,
        (integers(0, 255, (2, 1, 3, 17), "uint8"), integers(-128, 127, (2, 10, 17), "int8")),
        {"data_zero_point": 3, "weight_zero_point": -2},
    ),
    "to_bfloat16": Example(products_of_floats.to_bfloat16, (IMAGE,), {}),
    "from_bfloat16": Example(
        products_of_floats.from_bfloat16,
        ((RNG.integers(0, 0x7F00, (1, 3, 4, 4)).astype(np.uint16), "bfloat16"),),
        {},
    ),
    "to_float16": Example(products_of_floats.to_float16, (IMAGE,), {}),
    "from_float16": Example(
        products_of_floats.from_float16,
        ((RNG.normal(size=(1, 3, 4, 4)).astype(np.float16), "float16"),),
        {},
    ),
}
"""Operators that plain Relax cannot run: those of source graphs, of kernels, and of floats."""

ALL = {**INTEGER, **OTHERS}
