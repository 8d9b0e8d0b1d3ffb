"""MXNet's conversions between float32, bytes and int32: `src/operator/quantization`, release 1.9.1.

oneDNN makes them as reorders: one float32 product, rounded half to even, saturated.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from stages.dialect import integer
from stages.importing.mxnet.mxnet_builder import Scalars, Value, Values, Walk, real
from stages.importing.mxnet.quantized_ranges import (
    INT32_REACH,
    LIMITS,
    REACH,
    calibrated,
    check_range,
    round_to,
    scale_of,
)
from stages.importing.mxnet.symbol import Node
from stages.importing.unsupported import UnsupportedError


def quantize_v2(walk: Walk, node: Node) -> Values:
    """`_contrib_quantize_v2`: float32 by its calibrated range, or by the range it has."""
    data, known = walk.value(node, 0), calibrated(node)
    dtype = node.attributes.text("out_type", "int8")
    if walk.dtype(data) in REACH:
        reach = real(REACH[walk.dtype(data)])
        low = real(0) if walk.dtype(data) == "uint8" else real(-float(reach))
        return [data, *(known or (low, reach))]
    if dtype == "auto":
        dtype = "uint8" if known and known[0] >= 0 else "int8"
    low, high = known or _extremes(walk, node, data)
    scalars = Scalars(walk, node.name)
    result = round_to(walk, data, scale_of(scalars, dtype, low, high), dtype, node.name)
    if dtype == "int8":
        high = scalars.largest(low, high)
        low = scalars.negative(high)
    return [result, low, high]


def quantize(walk: Walk, node: Node) -> Values:
    """`_contrib_quantize`: float32 by the range it is given; 127 and 255 levels."""
    dtype = node.attributes.text("out_type", "uint8")
    if dtype not in REACH:
        raise UnsupportedError(f"gives {dtype}; int8 and uint8 are accepted")
    scalars = Scalars(walk, node.name)
    largest = scalars.largest(walk.scalar(node, 1), walk.scalar(node, 2))
    check_range(largest)
    scale = scalars.divide(real(float(LIMITS[dtype][1])), largest)
    result = round_to(walk, walk.value(node, 0), scale, dtype, node.name)
    return [result, real(0) if dtype == "uint8" else scalars.negative(largest), largest]


def _extremes(walk: Walk, node: Node, data: Value) -> tuple[Value, Value]:
    if isinstance(data, np.ndarray):
        return real(data.min()), real(data.max())
    return (
        walk.emit(relax.op.min(data), f"{node.name}.smallest"),
        walk.emit(relax.op.max(data), f"{node.name}.largest"),
    )


def dequantize(walk: Walk, node: Node) -> Values:
    """`_contrib_dequantize`: `float32(q) * (largest / levels)`."""
    dtype = walk.dtype(walk.value(node, 0))
    if dtype not in REACH:
        raise UnsupportedError(f"reads {dtype}; int8 and uint8 are accepted")
    scalars = Scalars(walk, node.name)
    largest = scalars.largest(walk.scalar(node, 1), walk.scalar(node, 2))
    scale = walk.tensor(scalars.divide(largest, real(REACH[dtype])), f"{node.name}.scale")
    return [walk.emit(integer.dequantize(walk.read(node, 0), scale, zero_point=0), node.name)]


def requantize(walk: Walk, node: Node) -> Values:
    """`_contrib_requantize`: int32 to a calibrated range, or to the range it has."""
    data, known = walk.value(node, 0), calibrated(node)
    if walk.dtype(data) != "int32":
        raise UnsupportedError(f"reads {walk.dtype(data)}; int32 is accepted")
    dtype = node.attributes.text("out_type", "int8")
    if dtype == "auto":
        dtype = "uint8" if known and known[0] >= 0 else "int8"
    if dtype not in REACH:
        raise UnsupportedError(f"gives {dtype}; int8 and uint8 are accepted")
    scalars = Scalars(walk, node.name)
    held = scalars.largest(walk.scalar(node, 1), walk.scalar(node, 2))
    if known:
        largest = scalars.largest(*known)
    else:
        as_float = walk.emit(relax.op.astype(data, "float32"), f"{node.name}.as_float")
        sizes = walk.emit(relax.op.abs(as_float), f"{node.name}.sizes")
        size = walk.emit(relax.op.max(sizes), f"{node.name}.size")
        largest = scalars.divide(scalars.multiply(size, held), real(INT32_REACH))
    check_range(largest)
    first = scalars.divide(held, real(INT32_REACH))
    scale = scalars.multiply(first, scalars.divide(real(LIMITS[dtype][1]), largest))
    result = round_to(walk, data, scale, dtype, node.name)
    return [result, real(0) if dtype == "uint8" else scalars.negative(largest), largest]
