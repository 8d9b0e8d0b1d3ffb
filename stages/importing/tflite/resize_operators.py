"""Converters of RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.

Sources: tensorflow/lite/kernels/resize_{bilinear,nearest_neighbor}.cc and
internal/reference/resize_{bilinear,nearest_neighbor}.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from stages.importing.limits import MAX_ELEMENTS
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Array, Operator
from stages.importing.unsupported import UnsupportedError
from stages.numerics import tflite_resize

Places = tuple[Array, Array, Array]
"""The places before and after each output position, and how far it lies between them."""

UNIT = 1 << 10
"""Fixed-point positions count in 1024ths of a pixel."""


def _sizes(builder: TfliteBuilder, operator: Operator) -> tuple[list[int], list[int]]:
    """Heights and widths, of the data and of the result."""
    shape, wanted = builder.shape(operator.input(0)), builder.integers(operator.input(1))
    if len(shape) != 4 or len(wanted) != 2 or not 0 < min(wanted) <= max(wanted) < MAX_ELEMENTS:
        raise UnsupportedError(f"resizes {list(shape)} to {wanted}")
    return list(shape[1:3]), wanted


def _modes(operator: Operator) -> tuple[bool, bool]:
    corners = bool(operator.option("align_corners", False))
    centers = bool(operator.option("half_pixel_centers", False))
    if corners and centers:
        raise UnsupportedError("aligns both corners and centers; one of them is accepted")
    return corners, centers


def fixed_places(size: int, wanted: int, corners: bool, centers: bool) -> Places:
    """Places of integers: distances are int32 in 1024ths."""
    scale = (UNIT * size + wanted // 2) // wanted
    if corners and wanted > 1:
        scale = (UNIT * (size - 1) + (wanted - 1) // 2) // (wanted - 1)
    at = np.arange(wanted, dtype=np.int64) * scale
    if centers:
        at = at + scale // 2 - UNIT // 2
    # C divides towards zero; what is negative ends at 0 all the same.
    before = np.maximum(at // UNIT, 0)
    after = np.minimum(np.maximum(at + UNIT - 1, 0) // UNIT, size - 1)
    return before.astype(np.int32), after.astype(np.int32), (at - UNIT * before).astype(np.int32)


def float_places(size: int, wanted: int, corners: bool, centers: bool) -> Places:
    """Places of floats and uint8: distances are float32."""
    one = np.float32(1)
    scale = np.float32(size) / np.float32(wanted)
    if corners and wanted > 1:
        scale = np.float32(size - 1) / np.float32(wanted - 1)
    at = np.arange(wanted).astype(np.float32)
    half = one / 2
    at = ((at + half) * scale - half if centers else at * scale).astype(np.float32)
    before = np.maximum(np.floor(at).astype(np.int32), 0)
    after = np.minimum(np.ceil(at).astype(np.int32), size - 1)
    return before, after, (at - before.astype(np.float32)).astype(np.float32)


def resize_bilinear(builder: TfliteBuilder, operator: Operator) -> Any:
    """RESIZE_BILINEAR of floats, uint8, int8 or int16."""
    sizes, modes, layer = _sizes(builder, operator), _modes(operator), operator.layer
    is_fixed = builder.dtype(operator.input(0)) in ("int8", "int16")
    places = fixed_places if is_fixed else float_places
    build = tflite_resize.resize_bilinear_integer if is_fixed else tflite_resize.resize_bilinear
    names = tflite_resize.OPERANDS[1:]
    vectors = [vector for pair in zip(*sizes, strict=True) for vector in places(*pair, *modes)]
    read = [
        builder.tensor(f"{layer}.{name}", vector)
        for name, vector in zip(names, vectors, strict=True)
    ]
    return builder.emit(build(builder.read(operator.input(0)), *read), layer)


def nearest_places(size: int, wanted: int, corners: bool, centers: bool) -> Array:
    """The place that each output position copies."""
    scale = np.float32(size) / np.float32(wanted)
    if corners and wanted > 1:
        scale = np.float32(size - 1) / np.float32(wanted - 1)
    offset = np.float32(0.5 if centers else 0.0)
    at = ((np.arange(wanted).astype(np.float32) + offset) * scale).astype(np.float32)
    rounded = np.floor(at.astype(np.float64) + (0.5 if corners else 0.0))
    return np.clip(rounded, 0, size - 1).astype(np.int32)


def resize_nearest_neighbor(builder: TfliteBuilder, operator: Operator) -> Any:
    """RESIZE_NEAREST_NEIGHBOR: copies pixels, whatever their type."""
    (heights, widths), layer = zip(*_sizes(builder, operator), strict=True), operator.layer
    corners = bool(operator.option("align_corners", False))
    centers = bool(operator.option("half_pixel_centers", False))
    result = builder.read(operator.input(0))
    for axis, (size, wanted) in enumerate((heights, widths), start=1):
        places = nearest_places(size, wanted, corners, centers)
        index = builder.tensor(f"{layer}.places_{axis}", places)
        name = layer if axis == 2 else f"{layer}.rows"
        result = builder.emit(relax.op.take(result, index, axis), name)
    return result


CONVERTERS = {
    "RESIZE_BILINEAR": resize_bilinear,
    "RESIZE_NEAREST_NEIGHBOR": resize_nearest_neighbor,
}
