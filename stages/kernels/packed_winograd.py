"""Operators around Winograd's products: images as tiles, and sums of these with their bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stages.dialect.calls import attributes, dtype_of, shape_of, tensor_type
from stages.dialect.registry import register
from stages.kernels.packed_conv2d import border_rows
from stages.kernels.packing import round_up
from stages.kernels.signature import BLOCK
from stages.kernels.signature_text import parse_signature
from stages.kernels.winograd_transforms import APART, WINDOW, transform_for, unpack_transformed
from stages.nodes import Call, TensorType

Array = np.ndarray[Any, Any]
Attrs = Mapping[str, Any]


def tiles_for(layer: str) -> str:
    """What transforms the data of a layer, in `main`."""
    return f"{layer}.tiles"


def _tiles_type(types: Sequence[TensorType], attrs: Attrs) -> Any:
    *images, _, _, channels = shape_of(types[0])
    transform = transform_for(attrs["strides"], attrs["tile"])
    count = transform.tiles_in(attrs["output"]) * (images[0] if images else 1)
    kind = "int16" if dtype_of(types[0]) == "uint8" else "float32"
    return tensor_type((transform.products, count * channels + APART), kind)


@register("to_tiles", ["data"], _tiles_type)
def to_tiles(
    data: Array, *, origin: Sequence[int], output: Sequence[int], strides: Sequence[int], tile: int
) -> Array:
    """Padded images uint8 [Hp, Wp, C] or [N, Hp, Wp, C] as tiles, int16 [products, N * tiles * C
    + 32]; float32 as float32. A `tile` gives so many sums along each axis.

    The first window begins at `origin`; they are as many, down and across, as the `output` has
    pixels, and those that fill up the last tiles.
    """
    transform = transform_for(strides, tile)
    rows, columns = (
        slice(first, first + transform.reach(extent))
        for first, extent in zip(origin, output, strict=True)
    )
    tiles = transform.tiles_of_images(data.reshape(-1, *data.shape[-3:])[:, rows, columns])
    return np.pad(tiles.reshape(transform.products, -1), [(0, 0), (0, APART)])


def inputs_of(call: Call) -> int:
    """Channels of the tiles of a convolution, with those of padding: words of its weights."""
    signature = parse_signature(attributes(call)["signature"])
    return signature.channels_per_word * shape_of(call.args[1].ty)[2]


def _sums_type(types: Sequence[TensorType], attrs: Attrs) -> Any:
    output, outputs = attrs["output"], round_up(attrs["channels"][1], BLOCK)
    inputs = parse_signature(attrs["signature"]).channels_per_word * shape_of(types[1])[2]
    count = (shape_of(types[0])[1] - APART) // inputs
    images = count // transform_for(attrs["strides"], attrs["tile"]).tiles_in(output)
    kind = "float32" if dtype_of(types[0]) == "float32" else "int32"
    return tensor_type((images, *output, outputs), kind)


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
    tile: int,
) -> Array:
    """Convolution of windows of 3x3 pixels that move by one or two, `scale * raw + bias[border
    class, channel]`: int32 or float32 [N, OH, OW, OCp] of what `to_tiles` gives and weights as
    `pack_weights` transforms them. The attributes are those of both."""
    assert (*window, rows, phases) == (WINDOW, WINDOW, WINDOW, 1), "another window"
    transform = transform_for(strides, tile)
    kernel = parse_signature(signature)
    factors = unpack_transformed(kernel, weights)
    assert factors.shape[2] >= channels[0], "the weights have too few channels"
    tiles = data[:, :-APART].reshape(transform.products, -1, factors.shape[2])
    raw = transform.sums_of(tiles, factors, output)
    return (scale * raw + bias[border_rows(output, border)]).astype(raw.dtype)
