"""Converters of operators that move values about: they round nothing, whatever the type.

Sources: the TensorFlow Lite kernels of the same names, tensorflow/lite/kernels/*.cc.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tflite as schema
from tvm import relax

from stages.importing.relax_builder import value_shape
from stages.importing.tflite.strided_slice import Slicing, dense_slicing
from stages.importing.tflite.tflite_builder import TfliteBuilder
from stages.importing.tflite.tflite_graph import Operator
from stages.importing.unsupported import UnsupportedError


def normal_axis(axis: int, rank: int) -> int:
    """An axis counted from the front; UnsupportedError where there is none."""
    if not -rank <= axis < rank:
        raise UnsupportedError(f"has axis {axis} of a tensor of rank {rank}")
    return axis % rank


def index_type(operator: Operator, name: str) -> str:
    """The type of positions or extents: an option says it, not the output's tensor."""
    accepted = {schema.TensorType.INT32: "int32", schema.TensorType.INT64: "int64"}
    stated = operator.option(name)
    if stated not in accepted:
        raise UnsupportedError(f"gives the type {stated}; {sorted(accepted)} are accepted")
    return accepted[stated]


def shape(builder: TfliteBuilder, operator: Operator) -> Any:
    """SHAPE: known at import, since every shape is static."""
    return np.array(builder.shape(operator.input(0)), index_type(operator, "out_type"))


def reshape(builder: TfliteBuilder, operator: Operator) -> Any:
    """RESHAPE to a constant shape, of which one extent may be -1."""
    wanted = list(operator.option("new_shape", ()))
    if operator.has(1):
        wanted = builder.integers(operator.input(1))
    elif not wanted and operator.options.get("new_shape") is None:
        raise UnsupportedError("states no shape")
    return to_shape(builder, operator, operator.input(0), _filled(builder, operator, wanted))


def _filled(builder: TfliteBuilder, operator: Operator, wanted: list[int]) -> list[int]:
    total = prod(builder.shape(operator.input(0)))
    rest = prod(extent for extent in wanted if extent != -1)
    if wanted.count(-1) == 1 and rest > 0 and total % rest == 0:
        return [total // rest if extent == -1 else extent for extent in wanted]
    if prod(wanted) != total or min(wanted, default=1) < 0:
        raise UnsupportedError(
            f"gives {list(builder.shape(operator.input(0)))} the shape {wanted}; "
            "the file holds shapes for a batch of 1 only, or is damaged"
        )
    return wanted


def to_shape(builder: TfliteBuilder, operator: Operator, index: int, wanted: list[int]) -> Any:
    """A tensor in another shape."""
    if builder.is_constant(index):
        return builder.constants[index].reshape(wanted)
    call = relax.op.reshape(builder.read(index), wanted)
    return builder.emit(call, operator.layer)


def squeeze(builder: TfliteBuilder, operator: Operator) -> Any:
    """SQUEEZE of the stated axes, or of all of extent 1."""
    extents = builder.shape(operator.input(0))
    stated = operator.option("squeeze_dims", ())
    axes = {normal_axis(axis, len(extents)) for axis in stated}
    axes = axes or {axis for axis, extent in enumerate(extents) if extent == 1}
    if any(extents[axis] != 1 for axis in axes):
        raise UnsupportedError(f"drops the axes {sorted(axes)} of {list(extents)}")
    kept = [extent for axis, extent in enumerate(extents) if axis not in axes]
    return to_shape(builder, operator, operator.input(0), kept)


def expand_dims(builder: TfliteBuilder, operator: Operator) -> Any:
    """EXPAND_DIMS at a constant axis."""
    extents = list(builder.shape(operator.input(0)))
    (axis,) = builder.integers(operator.input(1))
    extents.insert(normal_axis(axis, len(extents) + 1), 1)
    return to_shape(builder, operator, operator.input(0), extents)


def transpose(builder: TfliteBuilder, operator: Operator) -> Any:
    """TRANSPOSE by a constant permutation."""
    rank = len(builder.shape(operator.input(0)))
    order = [normal_axis(axis, rank) for axis in builder.integers(operator.input(1))]
    if sorted(order) != list(range(rank)):
        raise UnsupportedError(f"orders the axes {order} of a tensor of rank {rank}")
    return builder.emit(
        relax.op.permute_dims(builder.read(operator.input(0)), order), operator.layer
    )


def sliced(builder: TfliteBuilder, value: Any, slicing: Slicing, name: str) -> Any:
    """Slices of a variable; where the steps go backwards it is flipped first."""
    extents = value_shape(value)
    begins, ends, steps = [], [], []
    for axis, (extent, (start, count, step)) in enumerate(zip(extents, slicing, strict=True)):
        if step < 0:
            value = builder.emit(relax.op.flip(value, axis), f"{name}.flip")
            start, step = extent - 1 - start, -step
        begins.append(start)
        steps.append(step)
        ends.append(start + (count - 1) * step + 1 if count else start)
    axes = list(range(len(extents)))
    call = relax.op.strided_slice(value, axes, begins, ends, steps, assume_inbound=True)
    return builder.emit(call, name)


def strided_slice(builder: TfliteBuilder, operator: Operator) -> Any:
    """STRIDED_SLICE with constant bounds and all of its masks."""
    extents = builder.shape(operator.input(0))
    begin, end, strides = (builder.integers(operator.input(i)) for i in (1, 2, 3))
    if operator.option("offset", False):
        end = [b + e for b, e in zip(begin, end, strict=True)]
    masks = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    slicing, shape = dense_slicing(
        extents,
        (begin, end, strides),
        **{name: int(operator.option(f"{name}_mask", 0)) for name in masks},
    )
    name = operator.layer
    whole = all(s == (0, e, 1) for s, e in zip(slicing, extents, strict=True))
    if whole:
        return to_shape(builder, operator, operator.input(0), shape)
    part = sliced(builder, builder.read(operator.input(0)), slicing, name)
    if value_shape(part) == tuple(shape):
        return part
    return builder.emit(relax.op.reshape(part, shape), f"{name}.shape")


def slice_(builder: TfliteBuilder, operator: Operator) -> Any:
    """SLICE from `begin`, `size` elements of which -1 means all that follow."""
    extents = builder.shape(operator.input(0))
    begin, size = (builder.integers(operator.input(position)) for position in (1, 2))
    counts = [e - b if s == -1 else s for e, b, s in zip(extents, begin, size, strict=True)]
    for extent, start, count in zip(extents, begin, counts, strict=True):
        if start < 0 or count < 0 or start + count > extent:
            raise UnsupportedError(f"takes {size} from {begin} of a tensor {list(extents)}")
    slicing = [(start, count, 1) for start, count in zip(begin, counts, strict=True)]
    return sliced(builder, builder.read(operator.input(0)), slicing, operator.layer)


def _parts(
    builder: TfliteBuilder, operator: Operator, index: int, axis: int, sizes: list[int]
) -> Any:
    extents = builder.shape(index)
    if sum(sizes) != extents[axis] or min(sizes) < 1:
        raise UnsupportedError(f"splits {extents[axis]} elements into parts of {sizes}")
    starts = np.cumsum([0, *sizes]).tolist()
    parts = []
    for start, size, output in zip(starts, sizes, operator.outputs, strict=False):
        slicing = [(0, extent, 1) for extent in extents]
        slicing[axis] = (start, size, 1)
        name = builder.graph.tensors[output].name
        parts.append(sliced(builder, builder.read(index), slicing, name))
    return parts


def split(builder: TfliteBuilder, operator: Operator) -> Any:
    """SPLIT into equal parts along a constant axis."""
    (stated,) = builder.integers(operator.input(0))
    extents = builder.shape(operator.input(1))
    axis, count = normal_axis(stated, len(extents)), int(operator.option("num_splits"))
    if count < 1 or extents[axis] % count or count != len(operator.outputs):
        raise UnsupportedError(f"splits {extents[axis]} elements into {count} parts")
    return _parts(builder, operator, operator.input(1), axis, [extents[axis] // count] * count)


def split_v(builder: TfliteBuilder, operator: Operator) -> Any:
    """SPLIT_V into parts of constant sizes, of which one may be -1."""
    extents = builder.shape(operator.input(0))
    sizes = builder.integers(operator.input(1))
    (stated,) = builder.integers(operator.input(2))
    axis = normal_axis(stated, len(extents))
    if sizes.count(-1) == 1:
        rest = extents[axis] - sum(size for size in sizes if size != -1)
        sizes = [rest if size == -1 else size for size in sizes]
    return _parts(builder, operator, operator.input(0), axis, sizes)


def pack(builder: TfliteBuilder, operator: Operator) -> Any:
    """PACK: tensors of one shape along a new axis."""
    rank = len(builder.shape(operator.input(0)))
    if operator.option("values_count") != len(operator.inputs):
        raise UnsupportedError(f"packs {operator.option('values_count')} values, not its operands")
    axis = normal_axis(int(operator.option("axis", 0)), rank + 1)
    values = [builder.read(operator.input(position)) for position in range(len(operator.inputs))]
    return builder.emit(relax.op.stack(values, axis), operator.layer)


def unpack(builder: TfliteBuilder, operator: Operator) -> Any:
    """UNPACK: one tensor for each position along an axis."""
    index = operator.input(0)
    extents = builder.shape(index)
    axis = normal_axis(int(operator.option("axis", 0)), len(extents))
    if operator.option("num") != extents[axis]:
        raise UnsupportedError(f"unpacks {operator.option('num')} of {extents[axis]} parts")
    parts = _parts(builder, operator, index, axis, [1] * extents[axis])
    shape = [extent for place, extent in enumerate(extents) if place != axis]
    return [builder.emit(relax.op.reshape(p, shape), f"{p.name}.shape") for p in parts]


def gather(builder: TfliteBuilder, operator: Operator) -> Any:
    """GATHER along one axis; constant indices are checked, computed ones are clipped."""
    extents = builder.shape(operator.input(0))
    axis = normal_axis(int(operator.option("axis", 0)), len(extents))
    if operator.option("batch_dims", 0):
        raise UnsupportedError("has batch dimensions; 0 is accepted")
    if builder.is_constant(operator.input(1)):
        places = builder.integers(operator.input(1))
        if places and not 0 <= min(places) <= max(places) < extents[axis]:
            raise UnsupportedError(f"reads positions outside the {extents[axis]} that there are")
    values, indices = (builder.read(operator.input(position)) for position in (0, 1))
    return builder.emit(relax.op.take(values, indices, axis, mode="clip"), operator.layer)


def tile(builder: TfliteBuilder, operator: Operator) -> Any:
    """TILE by constant counts."""
    counts = builder.integers(operator.input(1))
    if len(counts) != len(builder.shape(operator.input(0))) or min(counts) < 1:
        raise UnsupportedError(f"repeats its operand {counts} times")
    return builder.emit(relax.op.tile(builder.read(operator.input(0)), counts), operator.layer)


def cast(builder: TfliteBuilder, operator: Operator) -> Any:
    """CAST: floats lose their fraction."""
    wanted = builder.dtype(operator.outputs[0])
    return builder.emit(relax.op.astype(builder.read(operator.input(0)), wanted), operator.layer)


def reverse_sequence(builder: TfliteBuilder, operator: Operator) -> Any:
    """REVERSE_SEQUENCE of constant lengths: one gather of the flattened tensor."""
    extents = builder.shape(operator.input(0))
    batch = normal_axis(int(operator.option("batch_dim", 0)), len(extents))
    along = normal_axis(int(operator.option("seq_dim")), len(extents))
    lengths = builder.integers(operator.input(1))
    if batch == along or len(lengths) != extents[batch]:
        raise UnsupportedError(f"reverses {len(lengths)} sequences of a tensor {list(extents)}")
    if not 0 <= min(lengths) <= max(lengths) <= extents[along]:
        raise UnsupportedError(f"reverses {lengths} of {extents[along]} positions")
    places = np.arange(prod(extents), dtype=np.int32).reshape(extents)
    first = np.moveaxis(places, (batch, along), (0, 1))  # a view: what is written is in `places`
    for row, length in zip(first, lengths, strict=True):
        row[:length] = row[:length][::-1].copy()
    name = operator.layer
    flat = builder.emit(relax.op.reshape(builder.read(operator.input(0)), [-1]), f"{name}.flat")
    order = builder.tensor(f"{name}.order", places.ravel())
    taken = builder.emit(relax.op.take(flat, order, 0, mode="clip"), name)
    return builder.emit(relax.op.reshape(taken, extents), f"{name}.shape")


CONVERTERS = {
    "SHAPE": shape,
    "RESHAPE": reshape,
    "SQUEEZE": squeeze,
    "EXPAND_DIMS": expand_dims,
    "TRANSPOSE": transpose,
    "STRIDED_SLICE": strided_slice,
    "SLICE": slice_,
    "SPLIT": split,
    "SPLIT_V": split_v,
    "PACK": pack,
    "UNPACK": unpack,
    "GATHER": gather,
    "TILE": tile,
    "CAST": cast,
    "REVERSE_SEQUENCE": reverse_sequence,
}
