"""Constants whose scales are negative or 0, as ONNX Runtime's symmetric quantizers write them.

They scale a block so that its largest value becomes the smallest integer, which makes the scale
negative where that value is positive, and 0 where all are. The rest of bitkiln has positive scales
alone, so integers take over the sign: `(-q) * s = q * (-s)`, float32 has both signs alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stages.dialect.dtypes import limits
from stages.importing.onnx.onnx_builder import OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.onnx.scale_views import views
from stages.importing.unsupported import UnsupportedError

Array = np.ndarray[Any, Any]

_WIDER = {dtype: ((np.dtype(np.int8), limits("int8")),) for dtype in ("int4", "int2")}


def with_positive_scales(builder: OnnxBuilder, node: Node) -> Node:
    """A DequantizeLinear of constants that gives the same reals by scales above 0.

    The node itself where its scales are so already. UnsupportedError where they are not and it
    reads no constants, or an integer has no opposite in its type.
    """
    names = [name for name in node.inputs if name]
    scale = builder.constants.get(names[1])
    if (
        scale is None
        or scale.dtype.kind != "f"
        or (scale > 0).all()
        or not np.isfinite(scale).all()
    ):
        return node
    if not all(name in builder.constants for name in names):
        raise UnsupportedError(f"has the scale '{names[1]}', which is not positive everywhere")
    dtype = builder.dtype(names[0])
    seen = views(builder.shape(names[0]), scale.shape, node)
    stored = builder.constants[names[0]].reshape(seen.data).astype(np.int64)
    zero_points = np.zeros(scale.shape, np.int64)
    if len(names) > 2:
        zero_points = builder.constants[names[2]].astype(np.int64).reshape(scale.shape)
    signs = seen.of_scale(np.where(scale == 0, 0, np.sign(scale)).astype(np.int64))
    # What a scale of 0 multiplies is 0: such integers become their zero point.
    values = signs * (stored - seen.of_scale(zero_points))
    if dtype.startswith("u"):
        zero_points = _of_unsigned(zero_points, scale, dtype)
    else:
        zero_points = np.where(scale < 0, -zero_points, zero_points)
    values = values + seen.of_scale(zero_points)
    kind = _type_of(builder.constants[names[0]].dtype, values, zero_points)
    new = (f"{node.layer}.negated", f"{node.layer}.sizes", f"{node.layer}.points")
    builder.constants[new[0]] = values.astype(kind).reshape(builder.shape(names[0]))
    builder.constants[new[1]] = np.where(scale == 0, np.float32(1), np.abs(scale))
    builder.constants[new[2]] = zero_points.astype(kind)
    return replace(node, inputs=new if zero_points.any() else new[:2])


def _of_unsigned(zero_points: Array, scale: Array, dtype: str) -> Array:
    """Zero points on the other side of the middle: that turns the whole range of a type."""
    return np.asarray(np.where(scale < 0, limits(dtype)[1] - zero_points, zero_points))


def _type_of(given: np.dtype[Any], *integers: Array) -> np.dtype[Any]:
    """The type that holds integers with their signs: theirs, or bytes for those below 8 bits."""
    extremes = [int(end) for each in integers for end in (each.min(), each.max())]
    low, high = limits(str(given))
    for dtype, (least, most) in ((given, (low, high)), *_WIDER.get(str(given), ())):
        if least <= min(extremes) and max(extremes) <= most:
            return np.dtype(dtype)
    raise UnsupportedError(
        f"has a negative scale for the integer {low} of {given}, which has no opposite"
    )
