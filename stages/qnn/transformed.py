"""Operators around Winograd's products: pictures as tiles, and sums of these with their bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stages.qnn.packed import border_rows, parse_signature
from stages.qnn.packing import round_up
from stages.qnn.registry import register, shape_of, tensor_type
from stages.qnn.signature import BLOCK
from stages.qnn.winograd import (
    APART,
    PRODUCTS,
    WINDOW,
    squares_of,
    sums_of,
    tiles_of,
    unpack_transformed,
)

Array = np.ndarray[Any, Any]
Attrs = Mapping[str, Any]
TILES = "relax.qnn.to_tiles"


def _tiles_type(types: Sequence[Any], attrs: Attrs) -> Any:
    del attrs
    *pictures, height, width, channels = shape_of(types[0])
    down, across = (tiles_of(extent - WINDOW + 1) for extent in (height, width))
    count = down * across * (pictures[0] if pictures else 1)
    return tensor_type((PRODUCTS, count * channels + APART), "int16")


@register("to_tiles", ["data"], _tiles_type)
def to_tiles(data: Array) -> Array:
    """Padded pictures uint8 [Hp, Wp, C] or [N, Hp, Wp, C], a multiple of four and two pixels high
    and wide, as tiles: int16 [36, N * tiles * C + 32]."""
    squares = squares_of(data.reshape(-1, *data.shape[-3:]))
    return np.pad(squares.reshape(PRODUCTS, -1), [(0, 0), (0, APART)])


def _sums_type(types: Sequence[Any], attrs: Attrs) -> Any:
    height, width = attrs["output"]
    inputs, outputs = attrs["channels"]
    count = (shape_of(types[0])[1] - APART) // inputs
    pictures = count // (tiles_of(height) * tiles_of(width))
    return tensor_type((pictures, height, width, round_up(outputs, BLOCK)), "int32")


@register("packed_winograd", ["data", "weights", "bias"], _sums_type)
def packed_winograd(
    data: Array,
    weights: Array,
    bias: Array,
    *,
    signature: str,
    scale: int,
    channels: Sequence[int],
    window: Sequence[int],
    rows: int,
    strides: Sequence[int],
    output: Sequence[int],
    border: Sequence[int],
    phases: int,
) -> Array:
    """Convolution of windows of 3x3 pixels that move by one, `scale * raw + bias[border class,
    channel]`: int32 [N, OH, OW, OCp] of what `to_tiles` gives and weights as `pack_weights`
    transforms them. The attributes are those of `packed_conv2d`."""
    assert (*window, rows, *strides, phases) == (WINDOW, WINDOW, WINDOW, 1, 1, 1), "another window"
    kernel = parse_signature(signature)
    tiles = data[:, :-APART].reshape(PRODUCTS, -1, channels[0])
    raw = sums_of(tiles, unpack_transformed(kernel, weights), output)
    return (scale * raw + bias[border_rows(output, border)]).astype(np.int32)
