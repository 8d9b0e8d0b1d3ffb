"""MXNet's quantized operators that join several tensors, as release 1.9.1 runs them on CPUs."""

from __future__ import annotations

import numpy as np
from tvm import relax

from stages.importing.mxnet.mxnet_builder import MxnetBuilder, Scalars, Values, real
from stages.importing.mxnet.quantized_ranges import (
    INT32_REACH,
    LIMITS,
    REACH,
    calibrated,
    check_range,
    reach,
    round_to,
    scale_of,
)
from stages.importing.mxnet.symbol import Node
from stages.importing.relax_builder import Value, value_dtype
from stages.importing.unsupported import UnsupportedError
from stages.numerics import rescale

_INT32 = (-(2**31), 2**31 - 128)
"""What a float32 that is no larger than int32 can become."""


def elemwise_add(builder: MxnetBuilder, node: Node) -> Values:
    """`_contrib_quantized_elemwise_add`, as mkldnn_quantized_elemwise_add.cc has it.

    Where one addend is uint8 and the other int8, the former is first rescaled to int8.
    """
    operands, scalars = (
        [builder.read_at(node, 0), builder.read_at(node, 1)],
        Scalars(builder, node.name),
    )
    dtypes = [value_dtype(operand) for operand in operands]
    if not all(dtype in REACH for dtype in dtypes):
        raise UnsupportedError(f"reads {' and '.join(dtypes)}; int8 and uint8 are accepted")
    ranges = [(builder.range_bound(node, 2 + i), builder.range_bound(node, 3 + i)) for i in (0, 2)]
    largest = [scalars.largest(*each) for each in ranges]
    known = calibrated(node)
    mixed = dtypes[0] != dtypes[1]
    ends: tuple[Value, Value]
    if known:
        ends, dtype = known, "int8" if "int8" in dtypes else "uint8"
        out_scale = scale_of(scalars, dtype, *known)
        scales = [
            scalars.divide(out_scale, scale_of(scalars, kind, *each))
            for kind, each in zip(dtypes, ranges, strict=True)
        ]
    else:
        dtype = "int32"
        both = scalars.add(*largest)
        check_range(both)
        ends = scalars.negative(both), both
        levels = dtypes if mixed else [dtypes[0]] * 2
        scales = [
            scalars.divide(
                scalars.multiply(size, real(INT32_REACH)),
                scalars.multiply(both, real(reach(kind))),
            )
            for size, kind in zip(largest, levels, strict=True)
        ]
    if mixed:
        at = dtypes.index("uint8")
        operands[at] = round_to(builder, operands[at], scales[at], "int8", f"{node.name}.as_int8")
        scales[at] = real(1)
    low, high = _INT32 if dtype == "int32" else LIMITS[dtype]
    factors = [builder.held(scale, f"{node.name}.scale") for scale in scales]
    call = rescale.rescaled_sum(*operands, *factors, fused=False, low=low, high=high, dtype=dtype)
    return [builder.emit(call, node.name), *ends]


def concat(builder: MxnetBuilder, node: Node) -> Values:
    """`_contrib_quantized_concat`: operands rescaled to the range that holds them all."""
    count = node.attributes.integer("num_args")
    if not 1 <= count <= len(node.inputs) // 3:
        raise UnsupportedError(f"has num_args {count} and {len(node.inputs)} inputs")
    scalars = Scalars(builder, node.name)
    low: Value = real(0)
    high: Value = real(0)
    bounds = [builder.range_bound(node, count + number) for number in range(2 * count)]
    ranges = list(zip(bounds[::2], bounds[1::2], strict=True))
    for smallest, greatest in ranges:
        low, high = scalars.minimum(low, smallest), scalars.maximum(high, greatest)
    dtypes = [value_dtype(builder.value_at(node, i)) for i in range(count)]
    dtype = "int8" if "int8" in dtypes else "uint8"
    out_scale = scale_of(scalars, dtype, low, high)
    parts = []
    for i, (kind, each) in enumerate(zip(dtypes, ranges, strict=True)):
        scale = scale_of(scalars, kind, *each)
        same = all(isinstance(s, np.ndarray) for s in (scale, out_scale)) and scale == out_scale
        factor = scalars.divide(out_scale, scale)
        part = builder.read_at(node, i)
        name = f"{node.name}.part{i}"
        parts.append(
            part if same and kind == dtype else round_to(builder, part, factor, dtype, name)
        )
    axis = node.attributes.integer("dim", 1)
    return [builder.emit(relax.op.concat(parts, axis), node.name), low, high]
