"""One call of every operator of the dialect, small enough to print, with operands to run it on."""

from __future__ import annotations

import numpy as np

from stages.dialect import batch_matmul, integer
from stages.dialect import float_linear as products_of_floats
from stages.dialect.resummation import settle
from stages.graph.collecting import collect
from stages.kernels import (
    computed_weights,
    direct_operators,
    packed,
    packed_depthwise,
    packed_winograd,
    rebase,
)
from stages.kernels.byte_families import Dots
from stages.kernels.packing import pack_weights
from stages.kernels.signature import KernelSignature
from stages.kernels.terms import plain_plan
from stages.kernels.wide_families import TransformedDots
from stages.kernels.winograd_transforms import BY_ONE
from stages.numerics import (
    linear_quantizers,
    onnx_elementwise,
    onnx_layers,
    qonnx_operators,
    rescale,
)
from stages.numerics.onnx_pointwise_conv import near_ties
from tests.stages.dialect.example import RNG, Example, floats, integers
from tests.stages.numerics.function_examples import FUNCTIONS
from tests.stages.numerics.tflite_examples import TFLITE

__all__ = ["ALL", "CONV", "INTEGER", "POOL", "Example", "floats", "integers"]

POPCOUNT = KernelSignature(
    "neon_aarch64", plain_plan("xor", 2, 1, "bipolar"), None, 1, 8, "window", 15
)
CONV = {
    "strides": [2, 1],
    "padding": [1, 0, 1, 2],
    "groups": 1,
    "data_zero_point_x2": 0,
    "weight_zero_point_x2": 1,
    "pad_value": 0,
}
POOL = {"kernel": [3, 2], "strides": [2, 1], "padding": [1, 0, 1, 1]}
_TRANSFORMED = KernelSignature(
    "avx2", None, TransformedDots(2), 2, 8,
    "none", 0,
)  # fmt: skip
_PAIRS = KernelSignature("avx2", None, Dots(2), 2, 8, "none", 0)
_LEVELS = RNG.integers(0, 256, (1, 10, 6, 4))
_TILES = np.pad(BY_ONE.squares_of(_LEVELS).reshape(36, -1), [(0, 0), (0, 32)])
_PICTURE = RNG.normal(size=(1, 3, 4, 4)).astype(np.float32), "float32"
_BITS = RNG.integers(0, 2, (40, 1, 1, 32)).astype(np.uint8)

INTEGER: dict[str, Example] = {
    **TFLITE,
    **FUNCTIONS,
    "conv2d": Example(
        integer.conv2d,
        (integers(0, 255, (1, 5, 4, 4), "uint8"), integers(-4, 3, (6, 3, 3, 2), "int3")),
        {**CONV, "groups": 2, "weight_zero_point_x2": 0, "data_zero_point_x2": 256, "pad_value": 3},
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
    "rebase": Example(rebase.rebase, (integers(-128, 127, (1, 2, 3, 3), "int8"),), {}),
    "less_shift": Example(rebase.less_shift, (integers(0, 255, (1, 2, 3, 3), "uint8"),), {}),
    "dense": Example(
        integer.dense,
        (integers(0, 1, (1, 9), "uint1"), integers(-127, 127, (4, 9), "int8")),
        {"data_zero_point_x2": 1, "weight_zero_point_x2": 0},
    ),
    "bitserial_dense": Example(
        integer.bitserial_dense,
        (integers(0, 1, (1, 9), "uint1"), integers(0, 7, (4, 9), "uint3")),
        {"data_zero_point_x2": 1, "weight_zero_point_x2": 7},
    ),
    "lookup_dense": Example(
        integer.lookup_dense,
        (integers(0, 1, (1, 9), "uint1"), integers(0, 7, (4, 9), "uint3")),
        {"data_zero_point_x2": 1, "weight_zero_point_x2": 7},
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
        (_PICTURE, floats(0.125), floats(0.5)),
        {"low": -8, "high": 7, "shift": 8, "rounding": "HALF_UP", "dtype": "uint4"},
    ),
    "dequantize": Example(
        integer.dequantize,
        (integers(0, 255, (1, 2, 3, 3), "uint8"), floats(0.1, -0.3, 7)),
        {"zero_point": 128},
    ),
    "quantize_linear": Example(
        linear_quantizers.quantize_linear,
        (_PICTURE, floats(0.01), (np.array([[[3]], [[-4]], [[0]]], np.int8), "int8")),
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
        (_PICTURE, floats(0.01)),
        {"zero_point": -7, "low": -128, "high": 127, "dtype": "int8"},
    ),
    "qlinear_add_fixed": Example(
        onnx_elementwise.qlinear_add_fixed,
        tuple((np.array(value, np.float32), "float32") for value in (0.3, 17, 0.7, 201, 96)),
        {},
    ),
    "float_sum": Example(onnx_elementwise.float_sum, (_PICTURE, floats(0.01)), {}),
    "dynamic_scale": Example(
        onnx_elementwise.dynamic_scale, (floats(-3, 2, 0), floats(5, 9, 0)), {}
    ),
    "dynamic_zero_point": Example(
        onnx_elementwise.dynamic_zero_point, (floats(-3, 2, 0), floats(0.02, 0.3, 1)), {}
    ),
    "window_sum2d": Example(
        onnx_layers.window_sum2d,
        (_PICTURE,),
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

OTHERS: dict[str, Example] = {
    "quant": Example(
        qonnx_operators.quant,
        (_PICTURE, floats(0.3), floats(1.5)),
        {"bits": 3, "signed": True, "narrow": False, "rounding": "FLOOR"},
    ),
    "bipolar_quant": Example(qonnx_operators.bipolar_quant, (_PICTURE, floats(0.5)), {}),
    "multi_threshold": Example(
        qonnx_operators.multi_threshold,
        (_PICTURE, (np.array([[-1.0, 0.25, 1.0]], np.float32), "float32")),
        {"out_scale": 2.0, "out_bias": -3.0, "channel_axis": 1},
    ),
    "batch_norm": Example(
        qonnx_operators.batch_norm,
        (_PICTURE, *[floats(0.5, 1, 2)] * 4),
        {"epsilon": 1e-5, "channel_axis": 1},
    ),
    "packed_depthwise": Example(
        packed_depthwise.packed_depthwise,
        (
            integers(-128, 127, (1, 6, 7, 5), "int8"),
            (
                packed_depthwise.pack_depthwise(RNG.integers(-128, 128, (3, 2, 5)), 2, "int16"),
                "int16",
            ),
            integers(-999, 999, (32,), "int32"),
        ),
        {"window": [3, 2], "strides": [2, 1], "dilation": [1, 2], "offset": 128},
    ),
    "float_conv2d": Example(
        products_of_floats.float_conv2d,
        (
            (RNG.integers(-9, 10, (2, 6, 7, 6)).astype(np.float32), "float32"),
            (RNG.integers(-9, 10, (9, 3, 2, 2)).astype(np.float32), "float32"),
        ),
        {"strides": [2, 1], "groups": 3},
    ),
    "settle": Example(
        settle,
        (
            (RNG.integers(-9, 10, (1, 3, 6, 4)).astype(np.float32) / 8, "float32"),
            (RNG.integers(-9, 10, (1, 5, 7, 2)).astype(np.float32), "float32"),
            (RNG.integers(-9, 10, (4, 1, 2, 2)).astype(np.float32) / 16, "float32"),
            *((np.full(4, value, np.float32), "float32") for value in (0.5, 0.25, 0.01, 0.1)),
            (np.asarray(9, np.float32), "float32"),
        ),
        {"strides": [2, 1], "low": -2, "high": 3},
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
        {"data_zero_point_x2": 6, "weight_zero_point_x2": -4},
    ),
    "pack_matrices": Example(
        computed_weights.pack_matrices,
        (integers(0, 255, (2, 40, 13), "uint8"),),
        {"signature": packed.signature_text(_PAIRS), "depth": 16},
    ),
    "to_bfloat16": Example(products_of_floats.to_bfloat16, (_PICTURE,), {}),
    "from_bfloat16": Example(
        products_of_floats.from_bfloat16,
        ((RNG.integers(0, 0x7F00, (1, 3, 4, 4)).astype(np.uint16), "bfloat16"),),
        {},
    ),
    "to_float16": Example(products_of_floats.to_float16, (_PICTURE,), {}),
    "from_float16": Example(
        products_of_floats.from_float16,
        ((RNG.normal(size=(1, 3, 4, 4)).astype(np.float16), "float16"),),
        {},
    ),
    "packed_conv2d": Example(
        packed.packed_conv2d,
        (
            (RNG.integers(0, 2**32, (2, 3, 3, 1)).astype(np.uint32), "uint32"),
            (pack_weights(POPCOUNT, _BITS), "uint32"),
            integers(-99, 99, (1, 64), "int32"),
        ),
        {
            "signature": packed.signature_text(POPCOUNT),
            "scale": -1,
            "channels": [32, 40],
            "window": [1, 1],
            "rows": 1,
            "strides": [2, 1],
            "origin": [0, 1],
            "output": [2, 2],
            "border": [0, 0, 0, 0],
            "phases": 1,
            "groups": 1,
        },
    ),
    "packed_winograd": Example(
        packed_winograd.packed_winograd,
        (
            (_TILES, "int16"),
            (pack_weights(_TRANSFORMED, RNG.integers(-9, 9, (40, 3, 3, 4)), BY_ONE), "uint32"),
            integers(-99, 99, (1, 64), "int32"),
        ),
        {
            "signature": packed.signature_text(_TRANSFORMED),
            "scale": -1,
            "channels": [4, 40],
            "window": [3, 3],
            "rows": 3,
            "strides": [1, 1],
            "output": [5, 3],
            "border": [0, 0, 0, 0],
            "phases": 1,
            "tile": 4,
        },
    ),
    "to_tiles": Example(
        packed_winograd.to_tiles,
        (integers(0, 255, (11, 8, 2), "uint8"),),
        {"origin": [1, 2], "output": [6, 3], "strides": [1, 1], "tile": 4},
    ),
    "to_bytes": Example(
        packed.to_bytes,
        (integers(0, 7, (1, 2, 3, 8), "uint3"),),
        {"halo": [1, 0, 3, 3], "channels": 8, "fill": 5, "stacked": 2, "phases": 1},
    ),
    "bitpack": Example(
        packed.bitpack,
        (integers(0, 7, (1, 2, 3, 40), "uint3"),),
        {"halo": [1, 0, 2, 3], "bits": 3, "planes": [2, 204, 15], "sums": [[0, 1, 0, -1] * 2]},
    ),
    "to_tables": Example(
        packed.to_tables,
        (integers(0, 7, (1, 2, 3, 40), "uint3"),),
        {"halo": [1, 0, 2, 3], "bits": 3, "balanced": True},
    ),
    "from_bytes": Example(
        packed.from_bytes,
        (integers(0, 7, (5, 6, 4), "uint8"),),
        {"origin": [1, 2], "size": [3, 2], "dtype": "uint3"},
    ),
    "from_planes": Example(
        packed.from_planes,
        (integers(0, 1 << 31, (2, 5, 6, 2), "uint32"),),
        {"origin": [1, 2], "size": [3, 2], "bits": 2, "planes": [10, 12]},
    ),
    "take_channels": Example(
        packed.take_channels, (integers(0, 7, (1, 2, 3, 8), "uint3"),), {"channels": 5}
    ),
    "pad_channels": Example(
        packed.pad_channels, (integers(0, 7, (1, 2, 3, 8), "uint3"),), {"channels": 32}
    ),
}
"""Operators of source graphs and of packed ones."""

ALL = {**INTEGER, **OTHERS}
