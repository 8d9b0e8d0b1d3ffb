"""Convolutions of packed data, as micro-kernels compute them.

A batch of 1 is left out. An edge has a halo, rows and columns around the image that its producer
fills, so that no kernel tests for borders; channels are padded to whole words or blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stages.dialect.calls import attributes, is_op, shape_of, storage_dtype, tensor_type
from stages.dialect.convolve import windows
from stages.dialect.registry import register
from stages.kernels import operator_names
from stages.kernels.channel_groups import groups_of, put_back
from stages.kernels.packing import (
    raw_sums,
    round_up,
    unpack_activations,
    unpack_weights,
)
from stages.kernels.signature import BLOCK, KernelSignature
from stages.kernels.signature_text import parse_signature
from stages.nodes import Call, Expr, TensorType

Array = np.ndarray[Any, Any]
Attrs = Mapping[str, Any]
WEIGHTS_RANK = 4
"""Axes of packed weights for all images: blocks of channels, planes, words, channels. Where every
image has weights of its own, there is an axis more in front."""


def stored_row(y: Any, height: Any, phases: int) -> Any:
    """Where row `y` of a padded image lies: those of equal number modulo `phases` are together.

    Of what is stored so, `stored_row(y, height, height // phases)` is the row that lies at `y`.
    """
    return y if phases == 1 else y % phases * (height // phases) + y // phases


def is_convolution(call: Expr) -> bool:
    """Whether a call is of an operator whose sums a micro-kernel of a signature computes."""
    return is_op(call, operator_names.QNN_PACKED_CONV2D, operator_names.QNN_PACKED_WINOGRAD)


def reads_of(attrs: Attrs, signature: KernelSignature) -> tuple[int, ...]:
    """What a tile of a packed convolution's kernel reads, as `Groups.reads` has it."""
    return groups_of(attrs["groups"], attrs["channels"]).reads(signature)


def rows_of(call: Call, signature: KernelSignature) -> tuple[int, int]:
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


def _conv_type(types: Sequence[TensorType], attrs: Attrs) -> Any:
    oh, ow = attrs["output"]
    channels = round_up(attrs["channels"][1], BLOCK)
    return tensor_type((images_in(types[0]), oh, ow, channels), str(types[2].dtype))


def images_in(kind: TensorType) -> int:
    """How many images an edge of a type holds: several only as bytes or floats, N first."""
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

    Of the image, whose rows may be packed or in polyphase order, a window has `rows`; other weights
    are 0. Of several groups, a tile of output channels may read some channels only. Weights with
    an axis more are matrices, one for each image.

    `data` is uint32 [words, Hp, Wp, CW] (planes), uint8 [Hp, Wp, 4 * Cp] (LUTs), uint8
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
