"""Operators that pack levels for kernels and unpack them: bit planes, LUTs and padded bytes.

A batch of 1 is left out. A packed edge has a halo, rows and columns around the image that its
producer fills, so that no kernel tests for borders; channels are padded to whole words or blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from stages.dialect.calls import shape_of, storage_dtype, tensor_type
from stages.dialect.convolve import pad_spatial
from stages.dialect.padding import Halo, Sides
from stages.dialect.registry import register
from stages.kernels.lut import pack_lut
from stages.kernels.operand_storage import WORD_BITS, Stored
from stages.kernels.packed_conv2d import stored_row
from stages.kernels.packing import (
    pack_activations,
    pack_rows,
    round_up,
    unpack_planes,
)
from stages.nodes import Index, Scalar, Tensor, TensorType

Array = np.ndarray[Any, Any]
Attrs = Mapping[str, Any]


def _bytes_type(types: Sequence[TensorType], attrs: Attrs) -> Any:
    images, h, w, _ = shape_of(types[0])
    (rows, columns), packed_rows = attrs["halo"].sides.around(h, w), attrs["packed_rows"]
    size = (rows // packed_rows, columns, packed_rows * attrs["channels"])
    return tensor_type((images, *size) if images > 1 else size, "uint8")


def _bytes_expression(
    levels: Tensor, *, halo: Halo, channels: int, packed_rows: int, phases: int
) -> Any:
    top, left, *_ = halo.sides
    images, height, width, own = (int(extent) for extent in levels.shape)

    def at(n: Index, line: Index, x: Index, place: Index) -> Scalar:
        row = stored_row(line, rows, rows // phases) if phases > 1 else line
        y, c = row * packed_rows + place // channels, place % channels
        value = levels[n, y - top, x - left, c]
        if channels > own:
            value = tirx.if_then_else(c < own, value, tirx.const(0, "uint8"))
        if not any(halo.sides):
            return value
        inside = tirx.all(y >= top, y < height + top, x >= left, x < width + left)
        return tirx.if_then_else(inside, value, tirx.const(halo.level, "uint8"))

    rows, columns = halo.sides.around(height, width)
    shape = (rows // packed_rows, columns, packed_rows * channels)
    if images > 1:
        return te.compute((images, *shape), at, name="to_bytes")
    return te.compute(shape, lambda *i: at(0, *i), name="to_bytes")


@register("to_bytes", ["levels"], _bytes_type, _bytes_expression)
def to_bytes(levels: Array, *, halo: Halo, channels: int, packed_rows: int, phases: int) -> Array:
    """Levels [N, H, W, C] as uint8 [N, Hp, Wp, channels] with a halo; of one image without N.

    Of packed rows, [N, Hp / packed_rows, Wp, packed_rows * channels]: the channels of a pixel,
    then those of the pixel below it (space to depth, of one axis). In `phases`, rows of equal
    number modulo so many lie together (polyphase).
    """
    values = levels[..., :channels].astype(np.uint8)
    widened = np.pad(values, [(0, 0)] * 3 + [(0, channels - values.shape[3])])
    padded = pad_spatial(widened, halo.sides, halo.level)
    rows = np.arange(padded.shape[1])
    padded[:, stored_row(rows, len(rows), phases)] = padded.copy()
    result = pack_rows(padded, packed_rows)
    return result if len(result) > 1 else result[0]


def stored_of(attrs: Attrs) -> Stored:
    """What a `bitpack` writes, from its attributes."""
    sums = tuple(tuple(values) for values in attrs["sums"])
    return Stored(attrs["bits"], tuple(attrs["planes"]), sums, attrs.get("inner", 0))


def _planes_type(types: Sequence[TensorType], attrs: Attrs) -> Any:
    _, h, w, c = shape_of(types[0])
    stored, size = stored_of(attrs), attrs["halo"].around(h, w)
    return tensor_type(stored_shape(stored, size, round_up(c, WORD_BITS) // WORD_BITS), "uint32")


def stored_shape(stored: Stored, size: tuple[int, int], words: int) -> tuple[int, ...]:
    """Shape of an edge of planes, of images of so many pixels with their halo."""
    if stored.inner:
        return (1, *size, words * stored.words)
    return (stored.words, *size, words)


@register("bitpack", ["levels"], _planes_type)
def bitpack(
    levels: Array,
    *,
    halo: Sides,
    bits: int,
    planes: Sequence[int],
    sums: Sequence[Sequence[int]],
    inner: int = 0,
) -> Array:
    """Levels [1, H, W, C] as uint32 [words, Hp, Wp, CW]: planes, then sums; a halo of level 0.

    A plane is a truth table over levels; a sum adds up a value per level over 32 channels. With
    planes inside a pixel, `inner` words of each side by side, uint32 [1, Hp, Wp, words * CW].
    """
    padded = pad_spatial(levels, halo, 0)[0]
    attrs = {"bits": bits, "planes": planes, "sums": sums, "inner": inner}
    return pack_activations(stored_of(attrs), padded)


def _tables_type(types: Sequence[TensorType], attrs: Attrs) -> Any:
    _, h, w, c = shape_of(types[0])
    return tensor_type((*attrs["halo"].around(h, w), 4 * round_up(c, 32)), "uint8")


@register("to_tables", ["levels"], _tables_type)
def to_tables(levels: Array, *, halo: Sides, bits: int, balanced: bool) -> Array:
    """Levels [1, H, W, C] as uint8 [Hp, Wp, 4 * Cp]: 16 sums of every four; a halo of level 0."""
    return pack_lut(pad_spatial(levels, halo, 0)[0], bits, bool(balanced))


def _cropped_type(types: Sequence[TensorType], attrs: Attrs) -> Any:
    h, w = attrs["size"]
    return tensor_type((1, h, w, shape_of(types[0])[2]), attrs["dtype"])


@register("from_bytes", ["data"], _cropped_type)
def from_bytes(data: Array, *, origin: Sequence[int], size: Sequence[int], dtype: str) -> Array:
    """The image inside a padded uint8 [Hp, Wp, Cp] edge: [1, H, W, Cp]."""
    rows, columns = (slice(o, o + s) for o, s in zip(origin, size, strict=True))
    return data[None, rows, columns].astype(storage_dtype(dtype))


def _unpacked_type(types: Sequence[TensorType], attrs: Attrs) -> Any:
    h, w = attrs["size"]
    return tensor_type((1, h, w, WORD_BITS * shape_of(types[0])[3]), f"uint{attrs['bits']}")


@register("from_planes", ["data"], _unpacked_type)
def from_planes(
    data: Array, *, origin: Sequence[int], size: Sequence[int], bits: int, planes: Sequence[int]
) -> Array:
    """The image inside an edge of planes, uint32 [planes, Hp, Wp, CW]: levels [1, H, W, Cp]."""
    rows, columns = (slice(o, o + s) for o, s in zip(origin, size, strict=True))
    return unpack_planes(data[:, rows, columns], planes, bits)[None]


def _channels_type(types: Sequence[TensorType], attrs: Attrs) -> Any:
    return tensor_type((*shape_of(types[0])[:-1], attrs["channels"]), str(types[0].dtype))


@register("take_channels", ["data"], _channels_type)
def take_channels(data: Array, *, channels: int) -> Array:
    """The first `channels` channels: what padding to blocks had added is dropped."""
    return data[..., :channels]


@register("pad_channels", ["data"], _channels_type)
def pad_channels(data: Array, *, channels: int) -> Array:
    """`data` with channels of zeros behind its own, `channels` in all."""
    width = [(0, 0)] * (data.ndim - 1) + [(0, channels - data.shape[-1])]
    return np.pad(data, width)
