"""MXNet's conversions between float32, bytes and int32: `src/operator/quantization`, release 1.9.1.

oneDNN makes them as reorders: one float32 product, rounded half to even, saturated.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from stages.dialect import integer
from stages.importing.mxnet.mxnet_builder import MxnetBuilder, Scalars, Values, real
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
from stages.importing.relax_builder import Value, value_dtype
from stages.importing.unsupported import UnsupportedError


def quantize_v2(builder: MxnetBuilder, node: Node) -> Values:
    """`_contrib_quantize_v2`: float32 by its calibrated range, or by the range it has."""
    data, known = builder.value_at(node, 0), calibrated(node)
    dtype = node.attributes.text("out_type", "int8")
    if value_dtype(data) in REACH:
        reach = real(REACH[value_dtype(data)])
        least = real(0) if value_dtype(data) == "uint8" else real(-float(reach))
        return [data, *(known or (least, reach))]
    if dtype == "auto":
        dtype = "uint8" if known and known[0] >= 0 else "int8"
    low, high = known or _extremes(builder, node, data)
    scalars = Scalars(builder, node.name)
    result = round_to(builder, data, scale_of(scalars, dtype, low, high), dtype, node.name)
    if dtype == "int8":
        high = scalars.largest(low, high)
        low = scalars.negative(high)
    return [result, low, high]


def quantize(builder: MxnetBuilder, node: Node) -> Values:
    """`_contrib_quantize`: float32 by the range it is given; 127 and 255 levels."""
    dtype = node.attributes.text("out_type", "uint8")
    if dtype not in REACH:
        raise UnsupportedError(f"gives {dtype}; int8 and uint8 are accepted")
    scalars = Scalars(builder, node.name)
    largest = scalars.largest(builder.range_bound(node, 1), builder.range_bound(node, 2))
    check_range(largest)
    scale = scalars.divide(real(float(LIMITS[dtype][1])), largest)
    result = round_to(builder, builder.value_at(node, 0), scale, dtype, node.name)
    return [result, real(0) if dtype == "uint8" else scalars.negative(largest), largest]


def _extremes(builder: MxnetBuilder, node: Node, data: Value) -> tuple[Value, Value]:
    if isinstance(data, np.ndarray):
        return real(data.min()), real(data.max())
    return (
        builder.emit(relax.op.min(data), f"{node.name}.smallest"),
        builder.emit(relax.op.max(data), f"{node.name}.largest"),
    )


def dequantize(builder: MxnetBuilder, node: Node) -> Values:
    """`_contrib_dequantize`: `float32(q) * (largest / levels)`."""
    dtype = value_dtype(builder.value_at(node, 0))
    if dtype not in REACH:
        raise UnsupportedError(f"reads {dtype}; int8 and uint8 are accepted")
    scalars = Scalars(builder, node.name)
    largest = scalars.largest(builder.range_bound(node, 1), builder.range_bound(node, 2))
    scale = builder.held(scalars.divide(largest, real(REACH[dtype])), f"{node.name}.scale")
    return [
        builder.emit(integer.dequantize(builder.read_at(node, 0), scale, zero_point=0), node.name)
    ]


def requantize(builder: MxnetBuilder, node: Node) -> Values:
    """`_contrib_requantize`: int32 to a calibrated range, or to the range it has."""
    data, known = builder.value_at(node, 0), calibrated(node)
    if value_dtype(data) != "int32":
        raise UnsupportedError(f"reads {value_dtype(data)}; int32 is accepted")
    dtype = node.attributes.text("out_type", "int8")
    if dtype == "auto":
        dtype = "uint8" if known and known[0] >= 0 else "int8"
    if dtype not in REACH:
        raise UnsupportedError(f"gives {dtype}; int8 and uint8 are accepted")
    scalars = Scalars(builder, node.name)
    held = scalars.largest(builder.range_bound(node, 1), builder.range_bound(node, 2))
    if known:
        largest = scalars.largest(*known)
    else:
        as_float = builder.emit(relax.op.astype(data, "float32"), f"{node.name}.as_float")
        sizes = builder.emit(relax.op.abs(as_float), f"{node.name}.sizes")
        size = builder.emit(relax.op.max(sizes), f"{node.name}.size")
        largest = scalars.divide(scalars.multiply(size, held), real(INT32_REACH))
    check_range(largest)
    first = scalars.divide(held, real(INT32_REACH))
    scale = scalars.multiply(first, scalars.divide(real(LIMITS[dtype][1]), largest))
    result = round_to(builder, data, scale, dtype, node.name)
    return [result, real(0) if dtype == "uint8" else scalars.negative(largest), largest]
