"""Convolutions of dequantized bytes that ONNX Runtime adds up as floats, in its order.

Those of single pixels fuse a multiplication and an addition for every channel, from the first to
the last, in blocks of channels that depend on the size of the image (`sgemm.cpp`; weights that
are dequantized keep them out of the blocked layout of `snchwc.cpp`). Larger windows are not
followed.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect import names
from stages.dialect.calls import is_op, shape_of
from stages.kinds import Array
from stages.nodes import Var
from stages.numerics import linear_quantizers, qlinear
from stages.numerics.onnx_pointwise_conv import bounds, near_ties
from stages.numerics.qdq_graph import QdqGraph
from stages.numerics.qdq_sums import Product
from stages.numerics.quantization import Quantization

BLOCK = (128, 128)
"""Channels and pixels of a block, unless there are fewer pixels than that, and than channels."""
FEWEST_PIXELS = 16
"""Where a block stops to become narrower, and deeper instead."""

DEEPEST = 1 << 15
"""Channels whose squares of 9 bits add up to an int32."""
_KEPT = (linear_quantizers.dequantize_linear.name, *names.RESHAPES)


def block_of(graph: QdqGraph, product: Product) -> int | None:
    """How many channels of a product are added up before the next ones; None if nobody knows."""
    if not product.is_conv or product.weight.grid.common_zero_point != 0:
        return None
    attrs, weight = product.call.attrs, shape_of(product.weight.value.ty)
    is_pixel = weight[2:] == (1, 1) and not any(int(n) for n in attrs.padding)
    if not is_pixel or int(attrs.groups) != 1 or _weight(graph, product) is None:
        return None
    batch, outputs, *positions = shape_of(product.variable.ty)
    pixels, depth = prod(positions), weight[1]
    # A product by a vector is of another order.
    is_known = batch == 1 and min(outputs, pixels) > 1 and depth <= DEEPEST
    return _block(pixels, depth) if is_known else None


def _block(pixels: int, depth: int) -> int:
    """As `MlasSgemmOperation` chooses it."""
    channels, width = BLOCK
    if pixels >= depth:
        return channels
    while width > FEWEST_PIXELS and width // 2 >= pixels:
        channels, width = 2 * channels, width // 2
    return channels


def _weight(graph: QdqGraph, product: Product) -> Array | None:
    """The constant integers [O, C] of a convolution of single pixels."""
    variable = product.call.args[1]
    while (call := graph.expressions.get(variable)) is not None:
        if not is_op(call, *_KEPT):
            return None
        variable = call.args[0]
    values = graph.tensor(variable)
    if values is None or values.dtype != np.int8:
        return None
    outputs, depth = shape_of(product.weight.value.ty)[:2]
    return values.reshape(outputs, depth)


def levels(
    graph: QdqGraph, product: Product, bias: Array | None, out: Quantization, block: int
) -> Var:
    """Bytes of such a product, NHWC; `bias` is int32 [O] in steps of the sums."""
    to, name = graph.builder, product.layer
    weight = _weight(graph, product)
    assert weight is not None  # block_of found it
    scales = np.broadcast_to(product.weight.grid.scale.ravel(), len(weight)).astype(np.float32)
    floats = np.zeros(len(weight), np.float32)
    if bias is not None:
        floats = bias.astype(np.float32) * np.broadcast_to(product.factor, len(weight))
    sums, data = product.sums(graph, None), qlinear.nhwc(to, product.data, name)
    tensor = to.emit(relax.op.permute_dims(product.weight.value, [0, 2, 3, 1]), f"{name}.ohwi")
    operands = operands_of(weight, scales, floats, product.source, out, block)
    call = near_ties(
        *(sums, data, tensor),
        *(to.tensor(f"{name}.{part}", value) for part, value in operands.items()),
        strides=[int(n) for n in product.call.attrs.strides],
        **attributes_of(product.source, out, block),
    )
    return to.emit(call, f"{name}.levels")


def operands_of(
    weight: Array, scales: Array, bias: Array, data: Quantization, out: Quantization, block: int
) -> dict[str, Array]:
    """What `near_ties` reads beside tensors, float32 [O]; `weight` are integers [O, C]."""
    step = float(out.scale)
    slope = scales.astype(np.float64) * float(data.scale) / step
    offset = bias.astype(np.float64) / step
    floats = weight * scales.astype(np.float64)[:, None]
    reach, least = bounds(floats, block, np.asarray(1 / step), offset)
    return {
        "weight_scale": scales,
        "bias": bias,
        "slope": slope.astype(np.float32),
        "offset": offset.astype(np.float32),
        "reach": reach,
        "least": least,
    }


def attributes_of(data: Quantization, out: Quantization, block: int) -> dict[str, Any]:
    """What `near_ties` knows of its data and of the bytes it gives."""
    low, high = out.limits
    return {
        "block": block,
        "data_scale": float(data.scale),
        "data_zero_point": data.zero_point,
        "scale": float(out.scale),
        "zero_point": out.zero_point,
        "low": low,
        "high": high,
    }
