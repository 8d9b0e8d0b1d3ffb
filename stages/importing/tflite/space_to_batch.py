"""Converters that move blocks of pixels: SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, REVERSE_V2, GATHER_ND.

They round nothing, whatever the type. Sources: the kernels of the same names in
tensorflow/lite/kernels/internal/reference/.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import tflite
from tvm import relax

from stages.importing.limits import MAX_ELEMENTS
from stages.importing.relax_builder import value_shape
from stages.importing.tflite.movement import normal_axis
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Operator
from stages.importing.unsupported import UnsupportedError


def rearranged(
    builder: TfliteBuilder,
    value: Any,
    name: str,
    split: Sequence[int],
    order: Sequence[int],
    shape: Sequence[int],
) -> Any:
    """A tensor with its axes split, put in another order and joined again."""
    parts = builder.emit(relax.op.reshape(value, list(split)), f"{name}.split")
    moved = builder.emit(relax.op.permute_dims(parts, list(order)), f"{name}.order")
    return builder.emit(relax.op.reshape(moved, list(shape)), name)


def _block(builder: TfliteBuilder, operator: Operator) -> tuple[tuple[int, ...], int]:
    shape, block = builder.shape(operator.input(0)), int(operator.option("block_size"))
    if len(shape) != 4 or block < 1:
        raise UnsupportedError(f"moves blocks of {block} of data of shape {list(shape)}")
    return shape, block


def depth_to_space(builder: TfliteBuilder, operator: Operator) -> Any:
    """DEPTH_TO_SPACE of NHWC data."""
    (n, h, w, c), b = _block(builder, operator)
    if c % (b * b):
        raise UnsupportedError(f"makes blocks of {b} of {c} channels")
    depth = c // (b * b)
    value, layer = builder.read(operator.input(0)), operator.layer
    shape = (n, h * b, w * b, depth)
    return rearranged(builder, value, layer, (n, h, w, b, b, depth), (0, 1, 3, 2, 4, 5), shape)


def space_to_depth(builder: TfliteBuilder, operator: Operator) -> Any:
    """SPACE_TO_DEPTH of NHWC data."""
    (n, h, w, c), b = _block(builder, operator)
    if h % b or w % b:
        raise UnsupportedError(f"makes blocks of {b} of images of {[h, w]}")
    value, layer = builder.read(operator.input(0)), operator.layer
    split = (n, h // b, b, w // b, b, c)
    shape = (n, h // b, w // b, b * b * c)
    return rearranged(builder, value, layer, split, (0, 1, 3, 2, 4, 5), shape)


def _blocks(builder: TfliteBuilder, operator: Operator) -> tuple[list[int], list[int]]:
    """Block sizes, and what is padded or cropped: before and after, axis by axis."""
    blocks, edges = (builder.integers(operator.input(position)) for position in (1, 2))
    rank = len(builder.shape(operator.input(0)))
    fits = 1 <= len(blocks) <= rank - 1 and len(edges) == 2 * len(blocks)
    if not fits or min(blocks) < 1 or min(edges) < 0 or max(edges) > MAX_ELEMENTS:
        raise UnsupportedError(f"has blocks {blocks} and edges {edges} of a tensor of rank {rank}")
    return blocks, edges


def space_to_batch_nd(builder: TfliteBuilder, operator: Operator) -> Any:
    """SPACE_TO_BATCH_ND: padded with the zero point, then blocks go to the batch."""
    data, layer, (blocks, edges) = operator.input(0), operator.layer, _blocks(builder, operator)
    value, count, shape = builder.read(data), len(blocks), builder.shape(data)
    if any(edges):
        is_quantized = builder.stated(data).quantization is not None
        fill = builder.quantization(data).zero_point.whole if is_quantized else 0
        widths = [0, 0, *edges, *[0, 0] * (len(shape) - 1 - count)]
        call = relax.op.nn.pad(value, widths, "constant", fill)
        value = builder.emit(call, f"{layer}.padded")
        shape = value_shape(value)
    inner = shape[1 : 1 + count]
    if any(extent % block for extent, block in zip(inner, blocks, strict=True)):
        raise UnsupportedError(f"makes blocks {blocks} of {list(inner)}")
    rest = shape[1 + count :]
    pairs = [(extent // block, block) for extent, block in zip(inner, blocks, strict=True)]
    split = [shape[0], *(part for pair in pairs for part in pair), *rest]
    order = [
        *range(2, 2 * count + 1, 2), 0, *range(1, 2 * count + 1, 2),
        *range(2 * count + 1, len(split)),
    ]  # fmt: skip
    result = [shape[0] * prod(blocks), *(extent for extent, _ in pairs), *rest]
    return rearranged(builder, value, layer, split, order, result)


def batch_to_space_nd(builder: TfliteBuilder, operator: Operator) -> Any:
    """BATCH_TO_SPACE_ND: the batch's blocks go back to their places, then edges are cut off."""
    data, layer, (blocks, edges) = operator.input(0), operator.layer, _blocks(builder, operator)
    shape, count = builder.shape(data), len(blocks)
    if shape[0] % prod(blocks):
        raise UnsupportedError(f"takes blocks {blocks} from a batch of {shape[0]}")
    batch, inner, rest = shape[0] // prod(blocks), shape[1 : 1 + count], shape[1 + count :]
    order = [count, *(axis for i in range(count) for axis in (count + 1 + i, i))]
    order += range(2 * count + 1, 2 * count + 1 + len(rest))
    full = [e * block for e, block in zip(inner, blocks, strict=True)]
    value = rearranged(
        builder, builder.read(data), layer, (*blocks, batch, *inner, *rest), order,
        (batch, *full, *rest),
    )  # fmt: skip
    if not any(edges):
        return value
    ends = [e - after for e, after in zip(full, edges[1::2], strict=True)]
    if any(begin >= end for begin, end in zip(edges[::2], ends, strict=True)):
        raise UnsupportedError(f"cuts {edges} from {full}")
    axes = list(range(1, 1 + count))
    call = relax.op.strided_slice(value, axes, edges[::2], ends, [1] * count, assume_inbound=True)
    return builder.emit(call, f"{layer}.cropped")


def reverse_v2(builder: TfliteBuilder, operator: Operator) -> Any:
    """REVERSE_V2 along constant axes."""
    value, rank = builder.read(operator.input(0)), len(builder.shape(operator.input(0)))
    for axis in sorted({normal_axis(a, rank) for a in builder.integers(operator.input(1))}):
        value = builder.emit(relax.op.flip(value, axis), operator.layer)
    return value


def broadcast_to(builder: TfliteBuilder, operator: Operator) -> Any:
    """BROADCAST_TO a constant shape."""
    wanted = builder.integers(operator.input(1))
    if not wanted or min(wanted) < 1 or prod(wanted) > MAX_ELEMENTS:
        raise UnsupportedError(f"gives the shape {wanted}")
    return builder.emit(
        relax.op.broadcast_to(builder.read(operator.input(0)), wanted), operator.layer
    )


def gather_nd(builder: TfliteBuilder, operator: Operator) -> Any:
    """GATHER_ND: rows at computed or constant positions; those outside are clipped."""
    shape, layer = builder.shape(operator.input(0)), operator.layer
    places = builder.shape(operator.input(1))
    depth = places[-1] if places else 0
    if not 1 <= depth <= len(shape):
        raise UnsupportedError(f"reads {list(shape)} at positions of shape {list(places)}")
    strides = [prod(shape[axis + 1 : depth]) for axis in range(depth)]
    dtype = builder.dtype(operator.input(1))
    factors = builder.tensor(f"{layer}.strides", np.array(strides, dtype))
    index = builder.read(operator.input(1))
    scaled = builder.emit(relax.op.multiply(index, factors), f"{layer}.scaled")
    flat = builder.emit(relax.op.sum(scaled, [-1]), f"{layer}.index")
    rows = relax.op.reshape(builder.read(operator.input(0)), (prod(shape[:depth]), *shape[depth:]))
    data = builder.emit(rows, f"{layer}.rows")
    return builder.emit(relax.op.take(data, flat, 0, mode="clip"), layer)


def reverse_sequence(builder: TfliteBuilder, operator: Operator) -> Any:
    """REVERSE_SEQUENCE: the first constant number of positions of each sample, reversed."""
    data, layer, lengths = operator.input(0), operator.layer, builder.integers(operator.input(1))
    shape = builder.shape(data)
    batch, sequence = (
        normal_axis(int(operator.option(name, 0)), len(shape)) for name in ("batch_dim", "seq_dim")
    )
    steps = shape[sequence]
    if batch == sequence or len(lengths) != shape[batch]:
        raise UnsupportedError(f"reverses {lengths} along axis {sequence} of {list(shape)}")
    if not 0 <= min(lengths) <= max(lengths) <= steps:
        raise UnsupportedError(f"reverses {lengths} of {steps} positions")
    at = np.arange(steps)
    counts = np.array(lengths)[:, None]
    places = np.where(at < counts, counts - 1 - at, at)
    places += steps * np.arange(shape[batch])[:, None]
    index = builder.tensor(f"{layer}.places", places.astype(np.int32).ravel())
    order = [batch, sequence, *(a for a in range(len(shape)) if a not in (batch, sequence))]
    moved = builder.emit(relax.op.permute_dims(builder.read(data), order), f"{layer}.order")
    rest = [shape[axis] for axis in order[2:]]
    flat = builder.emit(relax.op.reshape(moved, [shape[batch] * steps, *rest]), f"{layer}.rows")
    taken = builder.emit(relax.op.take(flat, index, 0, mode="clip"), f"{layer}.reversed")
    whole = relax.op.reshape(taken, [shape[batch], steps, *rest])
    split = builder.emit(whole, f"{layer}.split")
    back = [order.index(axis) for axis in range(len(shape))]
    return builder.emit(relax.op.permute_dims(split, back), layer)


def mirror_pad(builder: TfliteBuilder, operator: Operator) -> Any:
    """MIRROR_PAD that does not repeat the edge (REFLECT)."""
    data, widths = operator.input(0), builder.integers(operator.input(1))
    shape = builder.shape(data)
    if int(operator.option("mode")) != tflite.MirrorPadMode.REFLECT:
        raise UnsupportedError("repeats the edge (SYMMETRIC); REFLECT is accepted")
    fits = len(widths) == 2 * len(shape) and min(widths, default=0) >= 0
    if not fits or any(w >= shape[i // 2] for i, w in enumerate(widths)):
        raise UnsupportedError(f"has the padding {widths} of data of shape {list(shape)}")
    call = relax.op.nn.pad(builder.read(data), widths, "reflect")
    return builder.emit(call, operator.layer)


CONVERTERS = {
    "REVERSE_SEQUENCE": reverse_sequence,
    "MIRROR_PAD": mirror_pad,
    "DEPTH_TO_SPACE": depth_to_space,
    "SPACE_TO_DEPTH": space_to_depth,
    "SPACE_TO_BATCH_ND": space_to_batch_nd,
    "BATCH_TO_SPACE_ND": batch_to_space_nd,
    "REVERSE_V2": reverse_v2,
    "BROADCAST_TO": broadcast_to,
    "GATHER_ND": gather_nd,
}
