"""Ranges and scales of MXNet's quantized tensors, as release 1.9.1 computes them.

A range is its two ends; integers q of a type stand for `q * largest / reach`, where `largest` is
the larger size of the two ends. `REACH` comes from `quantization_utils.h`; releases up to 1.6 had
127 and 255 there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.dialect.operators import OPERATORS
from stages.dialect.zero_point import AT_ZERO
from stages.importing.mxnet.mxnet_builder import MxnetBuilder, Scalars, real
from stages.importing.mxnet.symbol import Node
from stages.importing.relax_builder import Value
from stages.importing.unsupported import UnsupportedError
from stages.numerics import rescale, rule_names

Array = np.ndarray[Any, Any]

REACH = {"int8": 127.5, "uint8": 255.5}
"""Quantized levels from 0 to the largest real value (`kInt8Range`, `kUint8Range`)."""
INT32_REACH = float(2**31 - 1)
LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1)}


def reach(dtype: str) -> float:
    """`REACH` of a type; UnsupportedError for one that is not quantized to."""
    if dtype not in REACH:
        raise UnsupportedError(f"reads {dtype}; int8 and uint8 are accepted")
    return REACH[dtype]


def scale_of(scalars: Scalars, dtype: str, low: Value, high: Value) -> Value:
    """Levels per unit, `GetQuantizeScale`; UnsupportedError for a range of no width."""
    largest = scalars.largest(low, high)
    levels = real(reach(dtype))
    check_range(largest)
    return scalars.divide(levels, largest)


def check_range(largest: Value) -> None:
    """Raise UnsupportedError for a range known at import that cannot be divided by."""
    if isinstance(largest, np.ndarray) and not (0 < float(largest) < np.inf):
        raise UnsupportedError(f"has a range whose larger end is {float(largest)}; it must be > 0")


def calibrated(node: Node) -> tuple[Array, Array] | None:
    """The range an operator's output was calibrated to, if it was."""
    attributes = node.attributes
    if not (attributes.has("min_calib_range") and attributes.has("max_calib_range")):
        return None
    return real(attributes.number("min_calib_range")), real(attributes.number("max_calib_range"))


def product_range(
    scalars: Scalars, data_reach: float, data: tuple[Value, Value], weight: tuple[Value, Value]
) -> tuple[Value, Value]:
    """The range of int32 products, `QuantizationRangeForMultiplication`.

    Levels are counted by 127 and 255 here, unlike in `REACH`.
    """
    level = scalars.multiply(
        scalars.divide(scalars.largest(*data), real(data_reach)),
        scalars.divide(scalars.largest(*weight), real(127)),
    )
    high = scalars.multiply(level, real(INT32_REACH))
    return scalars.negative(high), high


def round_to(
    builder: MxnetBuilder,
    data: Any,
    scale: Value,
    dtype: str,
    name: str,
    limits: tuple[int, int] | None = None,
) -> Any:
    """oneDNN's conversion: `saturate(round_half_even(float32(data) * scale))`.

    At import where everything is known.
    """
    low, high = limits or LIMITS[dtype]
    attrs = {"zero_point": AT_ZERO, "low": low, "high": high, "dtype": dtype}
    if isinstance(data, np.ndarray) and isinstance(scale, np.ndarray):
        return np.array(OPERATORS[rule_names.QNN_RESCALE].meaning(data, scale, **attrs))
    operands = (
        builder.held(data, f"{name}.data"),
        builder.held(scale, f"{name}.scale"),
    )
    return builder.emit(rescale.rescale(*operands, **attrs), name)
