"""Physical operators: packed planes, tables and padded bytes, as kernels read and write them.

A batch of 1 is left out. An edge has a halo, rows and columns around the picture that its producer
fills, so that no kernel tests for borders; channels are padded to whole words or blocks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from pydantic import TypeAdapter
from tvm import te, tirx

from stages.dialect.calls import attributes, is_op, shape_of, storage_dtype, tensor_type
from stages.dialect.convolve import windows
from stages.dialect.registry import register
from stages.kernels.channel_groups import groups_of, put_back
from stages.kernels.family_text import from_plain, to_plain
from stages.kernels.lut import pack_lut
from stages.kernels.operand_storage import WORD_BITS, Stored
from stages.kernels.packing import (
    pack_activations,
    pack_rows,
    raw_sums,
    round_up,
    unpack_activations,
    unpack_planes,
    unpack_weights,
)
from stages.kernels.signature import BLOCK, KernelSignature

Array = np.ndarray[Any, Any]
_SIGNATURE = TypeAdapter(KernelSignature)
Attrs = Mapping[str, Any]
CONVOLUTION, WINOGRAD = "relax.qnn.packed_conv2d", "relax.qnn.packed_winograd"
DEPTHWISE_CONVOLUTION = "relax.qnn.packed_depthwise"
WEIGHTS_RANK = 4
"""Of weights for all pictures: blocks of channels, planes, words, channels. Where every picture has
its own, there is an axis more in front."""


def stored_row(y: Any, height: Any, phases: int) -> Any:
    """Where row `y` of a padded picture lies: those of equal number modulo `phases` are together.

    Of what is stored so, `stored_row(y, height, height // phases)` is the row that lies at `y`.
    """
    return y if phases == 1 else y % phases * (height // phases) + y // phases


def is_convolution(call: Any) -> bool:
    """Whether a call is of an operator whose sums a micro-kernel of a signature computes."""
    return is_op(call, CONVOLUTION) or is_op(call, WINOGRAD)


def signature_text(signature: KernelSignature) -> str:
    """A signature as canonical JSON, the form it has as an attribute."""
    data = asdict(signature)
    data["products"] = None if signature.products is None else to_plain(signature.products)
    data["tables"] = data.pop("lut")  # the text keeps its spelling: kernels' names depend on it
    if signature.word_bits == WORD_BITS:
        del data["word_bits"]  # names of compiled kernels depend on the text
    if signature.stored is not None and not signature.inner:
        del data["stored"]["inner"]
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def parse_signature(text: str) -> KernelSignature:
    """Undo `signature_text`."""
    data = json.loads(text)
    if data["products"] is not None:
        data["products"] = from_plain(data["products"])
    data["lut"] = data.pop("tables")
    return _SIGNATURE.validate_python(data)


def reads_of(attrs: Attrs, signature: KernelSignature) -> tuple[int, ...]:
    """What a tile of a packed convolution's kernel reads, as `Groups.reads` has it."""
    return groups_of(attrs["groups"], attrs["channels"]).reads(signature)


def rows_of(call: Any, signature: KernelSignature) -> tuple[int, int]:
    """Rows of a packed convolution's window, and the words that a kernel reads of each, the last
    one in part where pixels lie close together.

    Where it reads but some of their channels, pixels are rows of their own.
    """
    attrs, data = attributes(call), call.args[0].ty
    size = storage_dtype(str(data.dtype)).itemsize
    height, columns = attrs["window"]
    if reads := reads_of(attrs, signature):
        return height * columns, reads[0] * size // signature.stored_bytes
    words = signature.row_unit // signature.channels_per_word
    row = columns * shape_of(data)[-1] * size
    return height, round_up(-(-row // signature.stored_bytes), words)


def border_classes(size: int, before: int, after: int) -> Array:
    """Class of every output position along one axis: leading ones, the inside, trailing ones.

    `before` and `after` count the positions whose window reaches into the halo.
    """
    position = np.arange(size)
    if size < before + after + 1:
        return position
    return np.minimum(position, before) + np.maximum(0, position - (size - 1 - after))


def class_count(size: int, before: int, after: int) -> int:
    """How many classes `border_classes` has."""
    return min(size, before + after + 1)


def border_rows(output: Sequence[int], border: Sequence[int]) -> Array:
    """Row of the bias table, its border class, for every pixel of an output."""
    top, left, bottom, right = border
    across = class_count(output[1], left, right)
    down = border_classes(output[0], top, bottom)[:, None] * across
    rows: Array = down + border_classes(output[1], left, right)[None, :]
    return rows


def _conv_type(types: Sequence[Any], attrs: Attrs) -> Any:
    oh, ow = attrs["output"]
    channels = round_up(attrs["channels"][1], BLOCK)
    return tensor_type((pictures_in(types[0]), oh, ow, channels), str(types[2].dtype))


def pictures_in(kind: Any) -> int:
    """How many pictures an edge of a type holds: several only as bytes or floats, N first."""
    shape = shape_of(kind)
    return shape[0] if len(shape) == 4 and str(kind.dtype) != "uint32" else 1


@register("packed_conv2d", ["data", "weights", "bias"], _conv_type)
def packed_conv2d(
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
    origin: Sequence[int],
    output: Sequence[int],
    border: Sequence[int],
    phases: int,
    groups: int,
) -> Array:
    """Convolution by a micro-kernel: `scale * raw + bias[border class, channel]`, int32.

    Of the picture, whose rows may be stacked or lie in phases, a window has `rows`; other weights
    are 0. Of several groups, a tile of output channels may read some channels only. Weights with
    an axis more are matrices, one for each picture.

    `data` is uint32 [words, Hp, Wp, CW] (planes), uint8 [Hp, Wp, 4 * Cp] (tables), uint8
    [Hp, Wp, Cp] or, of a batch, uint8 [N, Hp, Wp, Cp]; `bias` is int32 [classes, OCp]. Floats come
    as float32 or bfloat16 [Hp, Wp, C] or [N, Hp, Wp, C]; then bias and result are float32.
    """
    assert rows >= window[0], "a window has rows of its own"
    kernel = parse_signature(signature)
    levels = unpack_activations(kernel, data)
    levels = levels.reshape(-1, *levels.shape[-3:])
    levels = levels[:, stored_row(np.arange(levels.shape[1]), levels.shape[1], phases)]
    padded_channels = levels.shape[-1]
    kh, kw = window
    view = windows(levels, (kh, kw), (1, 1))
    down = origin[0] + strides[0] * np.arange(output[0])
    columns = origin[1] + strides[1] * np.arange(output[1])
    patches = view[:, down[:, None], columns[None, :]].transpose(0, 1, 2, 4, 5, 3)
    outputs = round_up(channels[1], BLOCK)
    reads = groups_of(groups, channels).reads(kernel)
    read = reads[0] if reads else padded_channels
    sums = []
    of_all = [weights] if weights.ndim == WEIGHTS_RANK else weights
    for each, pixels in zip(of_all, np.split(patches, len(of_all)), strict=True):
        q = unpack_weights(kernel, each, (outputs, kh, kw, read))
        q = put_back(q, reads, padded_channels) if reads else q
        pixels = pixels.reshape(len(pixels), *output, -1)
        sums.append(raw_sums(kernel, pixels, q.reshape(outputs, -1)))
    raw = np.concatenate(sums)
    return (scale * raw + bias[border_rows(output, border)]).astype(bias.dtype)


def _bytes_type(types: Sequence[Any], attrs: Attrs) -> Any:
    pictures, h, w, _ = shape_of(types[0])
    top, left, bottom, right = attrs["halo"]
    stacked = attrs["stacked"]
    size = ((h + top + bottom) // stacked, w + left + right, stacked * attrs["channels"])
    return tensor_type((pictures, *size) if pictures > 1 else size, "uint8")


def _bytes_expression(
    levels: Any, *, halo: Sequence[int], channels: int, fill: int, stacked: int, phases: int
) -> Any:
    top, left, bottom, right = halo
    pictures, height, width, own = (int(extent) for extent in levels.shape)

    def at(n: Any, line: Any, x: Any, place: Any) -> Any:
        row = stored_row(line, rows, rows // phases) if phases > 1 else line
        y, c = row * stacked + place // channels, place % channels
        value = levels[n, y - top, x - left, c]
        if channels > own:
            value = tirx.if_then_else(c < own, value, tirx.const(0, "uint8"))
        if not any(halo):
            return value
        inside = tirx.all(y >= top, y < height + top, x >= left, x < width + left)
        return tirx.if_then_else(inside, value, tirx.const(fill, "uint8"))

    rows = height + top + bottom
    shape = (rows // stacked, width + left + right, stacked * channels)
    if pictures > 1:
        return te.compute((pictures, *shape), at, name="to_bytes")
    return te.compute(shape, lambda *i: at(0, *i), name="to_bytes")


@register("to_bytes", ["levels"], _bytes_type, _bytes_expression)
def to_bytes(
    levels: Array, *, halo: Sequence[int], channels: int, fill: int, stacked: int, phases: int
) -> Array:
    """Levels [N, H, W, C] as uint8 [N, Hp, Wp, channels] with a halo of `fill`; of one picture
    without N.

    Of rows that are `stacked`, [N, Hp / stacked, Wp, stacked * channels]: the channels of a pixel,
    then those of the pixel below it (space to depth, of one axis). In `phases`, rows of equal
    number modulo so many lie together (polyphase).
    """
    top, left, bottom, right = halo
    values = levels[..., :channels].astype(np.uint8)
    widened = np.pad(values, [(0, 0)] * 3 + [(0, channels - values.shape[3])])
    around = [(0, 0), (top, bottom), (left, right), (0, 0)]
    padded = np.pad(widened, around, constant_values=fill)
    rows = np.arange(padded.shape[1])
    padded[:, stored_row(rows, len(rows), phases)] = padded.copy()
    result = pack_rows(padded, stacked)
    return result if len(result) > 1 else result[0]


def stored_of(attrs: Attrs) -> Stored:
    """What a `bitpack` writes, from its attributes."""
    sums = tuple(tuple(values) for values in attrs["sums"])
    return Stored(attrs["bits"], tuple(attrs["planes"]), sums, attrs.get("inner", 0))


def _planes_type(types: Sequence[Any], attrs: Attrs) -> Any:
    _, h, w, c = shape_of(types[0])
    top, left, bottom, right = attrs["halo"]
    stored, size = stored_of(attrs), (h + top + bottom, w + left + right)
    return tensor_type(stored_shape(stored, size, round_up(c, WORD_BITS) // WORD_BITS), "uint32")


def stored_shape(stored: Stored, size: tuple[int, int], words: int) -> tuple[int, ...]:
    """Shape of an edge of planes, of pictures of so many pixels with their halo."""
    if stored.inner:
        return (1, *size, words * stored.words)
    return (stored.words, *size, words)


@register("bitpack", ["levels"], _planes_type)
def bitpack(
    levels: Array,
    *,
    halo: Sequence[int],
    bits: int,
    planes: Sequence[int],
    sums: Sequence[Sequence[int]],
    inner: int = 0,
) -> Array:
    """Levels [1, H, W, C] as uint32 [words, Hp, Wp, CW]: planes, then sums; a halo of level 0.

    A plane is a truth table over levels; a sum adds up a value per level over 32 channels. With
    planes inside a pixel, `inner` words of each side by side, uint32 [1, Hp, Wp, words * CW].
    """
    top, left, bottom, right = halo
    padded = np.pad(levels[0], [(top, bottom), (left, right), (0, 0)])
    attrs = {"bits": bits, "planes": planes, "sums": sums, "inner": inner}
    return pack_activations(stored_of(attrs), padded)


def _tables_type(types: Sequence[Any], attrs: Attrs) -> Any:
    _, h, w, c = shape_of(types[0])
    top, left, bottom, right = attrs["halo"]
    return tensor_type((h + top + bottom, w + left + right, 4 * round_up(c, 32)), "uint8")


@register("to_tables", ["levels"], _tables_type)
def to_tables(levels: Array, *, halo: Sequence[int], bits: int, balanced: bool) -> Array:
    """Levels [1, H, W, C] as uint8 [Hp, Wp, 4 * Cp]: 16 sums of every four; a halo of level 0."""
    top, left, bottom, right = halo
    padded = np.pad(levels[0], [(top, bottom), (left, right), (0, 0)])
    return pack_lut(padded, bits, bool(balanced))


def _cropped_type(types: Sequence[Any], attrs: Attrs) -> Any:
    h, w = attrs["size"]
    return tensor_type((1, h, w, shape_of(types[0])[2]), attrs["dtype"])


@register("from_bytes", ["data"], _cropped_type)
def from_bytes(data: Array, *, origin: Sequence[int], size: Sequence[int], dtype: str) -> Array:
    """The picture inside a padded uint8 [Hp, Wp, Cp] edge: [1, H, W, Cp]."""
    rows, columns = (slice(o, o + s) for o, s in zip(origin, size, strict=True))
    return data[None, rows, columns].astype(storage_dtype(dtype))


def _unpacked_type(types: Sequence[Any], attrs: Attrs) -> Any:
    h, w = attrs["size"]
    return tensor_type((1, h, w, WORD_BITS * shape_of(types[0])[3]), f"uint{attrs['bits']}")


@register("from_planes", ["data"], _unpacked_type)
def from_planes(
    data: Array, *, origin: Sequence[int], size: Sequence[int], bits: int, planes: Sequence[int]
) -> Array:
    """The picture inside an edge of planes, uint32 [planes, Hp, Wp, CW]: levels [1, H, W, Cp]."""
    rows, columns = (slice(o, o + s) for o, s in zip(origin, size, strict=True))
    return unpack_planes(data[:, rows, columns], planes, bits)[None]


def _channels_type(types: Sequence[Any], attrs: Attrs) -> Any:
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
