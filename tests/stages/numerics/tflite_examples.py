"""Calls of TensorFlow Lite's integer operators, and of what other frameworks share with them."""

from __future__ import annotations

import numpy as np

from stages.numerics import rescale, tflite
from tests.stages.dialect.example import RNG, Example, floats, integers

_FACTORS = (
    (np.array([1 << 30, 1717986918, 1073741825], np.int32), "int32"),
    (np.array([-7, 1, -31], np.int32), "int32"),
)
_BYTES = {"zero_point": 3, "low": -128, "high": 127, "dtype": "int8"}
_SUMS = integers(-90000, 90000, (2, 5, 3), "int32")  # of bytes that leave room for one more


def _line(missed: int) -> Example:
    """A line that misses integers, half of which lie among its data."""
    integers = [np.full(3, int(_SUMS[0].flat[2 * i]) + i % 2, np.int32) for i in range(missed)]
    operands = (
        (np.array([1 / 777, 0.0007, 0], np.float32), "float32"),
        (np.array([0.4, 0.001, 117], np.float32), "float32"),
        *((each, "int32") for each in integers),
    )
    attrs = {"low_misses": missed // 2, "is_odd": missed % 2 == 1, "fits": missed > 1, **_BYTES}
    return Example(rescale.AFFINE_RESCALES[missed], (_SUMS, *operands), attrs)


TFLITE: dict[str, Example] = {
    **{f"line{missed}": _line(missed) for missed in range(rescale.MOST_MISSED + 1)},
    "tflite_requantize": Example(tflite.requantize, (_SUMS, *_FACTORS), _BYTES),
    "tflite_requantize_once": Example(
        tflite.requantize_once,
        (
            integers(-(1 << 40), 1 << 40, (2, 5, 3), "int64"),
            (np.array([1 << 14, 32767, 20000], np.int32), "int32"),
            (np.array([40, 46, 8], np.int32), "int32"),
        ),
        {"low": -32768, "high": 32767, "dtype": "int16"},
    ),
    "tflite_rescale": Example(
        tflite.rescale, (_SUMS, (np.array([1 / 512, 0.0007, 1e9]), "float64")), _BYTES
    ),
    "tflite_add": Example(
        tflite.add,
        (integers(0, 255, (2, 3, 4), "uint8"), integers(0, 255, (3, 1), "uint8")),
        {
            "left_shift": 20,
            "lhs_zero_point": 7,
            "lhs_multiplier": 1 << 30,
            "lhs_shift": 0,
            "rhs_zero_point": 130,
            "rhs_multiplier": -1600000000,
            "rhs_shift": -2,
            "multiplier": 1717986918,
            "shift": -18,
            "zero_point": 120,
            "low": 0,
            "high": 200,
            "dtype": "uint8",
        },
    ),
    "tflite_add_shifted": Example(
        tflite.add_shifted,
        (integers(-32768, 32767, (3, 4), "int16"), integers(-32768, 32767, (4,), "int16")),
        {
            "lhs_shift": 3,
            "rhs_shift": 0,
            "sign": -1,
            "low": -32768,
            "high": 32767,
            "dtype": "int16",
        },
    ),
    "tflite_mul": Example(
        tflite.mul,
        (integers(-128, 127, (2, 3), "int8"), integers(-128, 127, (2, 1), "int8")),
        {
            "lhs_zero_point": -3,
            "rhs_zero_point": 5,
            "multiplier": 1333333333,
            "shift": -6,
            **_BYTES,
        },
    ),
    "tflite_average": Example(
        tflite.average,
        (
            integers(-900, 900, (1, 3, 3, 2), "int32"),
            (np.array([4, 6, 9], np.int32).reshape(1, 3, 1, 1), "int32"),
        ),
        {"low": -100, "high": 100, "dtype": "int8"},
    ),
    "tflite_quantize": Example(
        tflite.quantize,
        (floats(0.25, -0.25, 0.125, -0.375, 1e9, -1e9, -0.0, 0.37499997),),
        {"scale": 0.25, **_BYTES},
    ),
    "rescale": Example(rescale.rescale, (_SUMS, floats(0.01, 0.5, 1e-9)), _BYTES),
    "table": Example(
        rescale.table,
        (
            integers(-128, 127, (3, 50), "int8"),
            (RNG.integers(-30000, 30000, 256).astype(np.int16), "int16"),
        ),
        {},
    ),
}
"""By the operator's name without its prefix."""
