"""A picture spread out: the first half of a transposed convolution.

A transposed convolution of stride s is a plain one, of stride 1 and with the weights turned by half
a turn, of the picture with s - 1 zeros between neighbouring pixels (Dumoulin and Visin,
arXiv 1603.07285, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from stages.qnn.registry import dtype_of, register, shape_of, tensor_type

Array = np.ndarray[Any, Any]


def _extents(shape: Sequence[int], strides: Sequence[int], padding: Sequence[int]) -> list[int]:
    """Height and width of the result."""
    return [(int(shape[1 + a]) - 1) * strides[a] + 1 + padding[a] + padding[2 + a] for a in (0, 1)]


def _infer(types: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    shape = shape_of(types[0])
    strides, padding = attrs["strides"], attrs["padding"]
    if len(shape) != 4 or len(strides) != 2 or len(padding) != 4 or min(strides) < 1:
        raise ValueError(f"data {list(shape)}, strides {strides}, padding {padding}")
    height, width = _extents(shape, strides, padding)
    if height < 1 or width < 1:
        raise ValueError(f"padding {padding} leaves nothing of data {list(shape)}")
    return tensor_type((shape[0], height, width, shape[3]), dtype_of(types[0]))


def _legalize(data: Any, *, strides: Sequence[int], padding: Sequence[int], value: int) -> Any:
    n, h, w, c = data.shape
    height, width = _extents(data.shape, strides, padding)
    (sh, sw), (top, left) = strides, padding[:2]
    outside = tirx.const(value, str(data.dtype))

    def at(b: Any, y: Any, x: Any, k: Any) -> Any:
        row, column = y - top, x - left
        is_pixel = tirx.all(
            row >= 0,
            row <= (h - 1) * sh,
            column >= 0,
            column <= (w - 1) * sw,
            tirx.indexmod(row, sh) == 0,
            tirx.indexmod(column, sw) == 0,
        )
        pixel = data[b, tirx.indexdiv(row, sh), tirx.indexdiv(column, sw), k]
        return tirx.if_then_else(is_pixel, pixel, outside)

    return te.compute((n, height, width, c), at, name="spread2d")


@register("spread2d", ["data"], _infer, _legalize)
def spread2d(data: Array, *, strides: Sequence[int], padding: Sequence[int], value: int) -> Array:
    """NHWC data with `value` in the `stride - 1` places between neighbours and around them.

    `padding` is (top, left, bottom, right); a negative one cuts off.
    """
    n, h, w, c = data.shape
    height, width = _extents(data.shape, strides, padding)
    result = np.full((n, height, width, c), value, data.dtype)
    rows, columns = (
        np.arange(extent) * stride + before
        for extent, stride, before in zip((h, w), strides, padding[:2], strict=True)
    )
    kept = [(p >= 0) & (p < e) for p, e in ((rows, height), (columns, width))]
    result[:, rows[kept[0]][:, None], columns[kept[1]]] = data[:, kept[0]][:, :, kept[1]]
    return result
