"""Converters of ONNX nodes that move, choose or cast values of any type."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from tvm import relax

from stages.importing.limits import MAX_ELEMENTS
from stages.importing.onnx.onnx_builder import ANY, WHOLE, OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.sliding_windows import MAX_EXTENT
from stages.importing.unsupported import UnsupportedError

Array = np.ndarray[Any, Any]


def ints(builder: OnnxBuilder, node: Node, position: int, attribute: str) -> list[int] | None:
    """Integers a node has as a constant input or, in older opsets, as an attribute."""
    if len(node.inputs) > position and node.inputs[position]:
        return [int(value) for value in builder.constant(node.inputs[position]).ravel()]
    values = node.attributes.get(attribute)
    return None if values is None else [int(value) for value in np.ravel(values)]


def normal(axis: int, rank: int) -> int:
    """An axis counted from the front; UnsupportedError if there is no such axis."""
    if not -rank <= axis < max(rank, 1):
        raise UnsupportedError(f"names axis {axis} of a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def concat(builder: OnnxBuilder, node: Node) -> Any:
    """Concat."""
    rank = len(builder.shape(node.inputs[0]))
    axis = normal(int(node.attributes.get("axis", 1)), rank)
    parts = [builder.read(tensor) for tensor in node.inputs]
    return builder.emit(relax.op.concat(parts, axis), node.layer)


def split(builder: OnnxBuilder, node: Node) -> tuple[Any, ...]:
    """Split, each part a slice."""
    x = node.inputs[0]
    shape = builder.shape(x)
    axis = normal(int(node.attributes.get("axis", 0)), len(shape))
    extent, count = shape[axis], len(node.outputs)
    sizes = ints(builder, node, 1, "split")
    if sizes is None:
        size = -(-extent // count)
        sizes = [max(0, min(size, extent - i * size)) for i in range(count)]
    if sum(sizes) != extent or len(sizes) != count or min(sizes) < 1:
        raise UnsupportedError(f"splits {extent} into {sizes} for {count} outputs")
    ends = np.cumsum(sizes).tolist()
    return tuple(
        _sliced(builder, x, axis, range(end - size, end), f"{node.layer}.{i}")
        for i, (size, end) in enumerate(zip(sizes, ends, strict=True))
    )


def slice_(builder: OnnxBuilder, node: Node) -> Any:
    """Slice with constant bounds and any step."""
    x = node.inputs[0]
    shape = builder.shape(x)
    starts, ends = ints(builder, node, 1, "starts"), ints(builder, node, 2, "ends")
    if starts is None or ends is None or len(starts) != len(ends):
        raise UnsupportedError("has no starts and ends that go together")
    axes = ints(builder, node, 3, "axes") or list(range(len(starts)))
    steps = ints(builder, node, 4, "steps") or [1] * len(starts)
    value = builder.read(x)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        where = normal(axis, len(shape))
        if step == 0:
            raise UnsupportedError("has a step of 0")
        chosen = range(*slice(start, end, step).indices(shape[where]))
        value = _chosen(builder, value, where, chosen, node.layer)
    return value


def _sliced(builder: OnnxBuilder, tensor: str, axis: int, chosen: range, name: str) -> Any:
    return _chosen(builder, builder.read(tensor), axis, chosen, name)


def _chosen(builder: OnnxBuilder, value: Any, axis: int, chosen: range, name: str) -> Any:
    """Positions of one axis, by a slice where the step is positive."""
    if len(chosen) == 0:
        raise UnsupportedError("gives a tensor without elements")
    if chosen == range(int(value.ty.shape[axis])):
        return value
    if chosen.step < 0:
        return take(builder, value, axis, np.array(chosen), name)
    call = relax.op.strided_slice(value, [axis], [chosen.start], [chosen.stop], [chosen.step])
    return builder.emit(call, name)


def take(builder: OnnxBuilder, value: Any, axis: int, positions: Array, name: str) -> Any:
    """Positions [n] of one axis, each inside."""
    index = builder.tensor(f"{name}.positions", positions.astype(np.int64))
    return builder.emit(relax.op.take(value, index, axis), name)


def gather(builder: OnnxBuilder, node: Node) -> Any:
    """Gather: positions along an axis, constant or computed; negative ones count from the end."""
    data, indices = node.inputs
    shape, index_shape = builder.shape(data), builder.shape(indices)
    axis = normal(int(node.attributes.get("axis", 0)), len(shape))
    extent, count = shape[axis], prod(index_shape)
    if builder.is_constant(indices):
        positions = builder.constant(indices).ravel().astype(np.int64)
        if positions.size == 0 or positions.min() < -extent or positions.max() >= extent:
            raise UnsupportedError(f"reads outside of the {extent} positions of its axis")
        taken = take(builder, builder.read(data), axis, positions % extent, node.layer)
    else:
        flat = builder.reshaped(builder.read(indices), (count,), f"{node.layer}.flat")
        wide = builder.emit(relax.op.astype(flat, "int64"), f"{node.layer}.wide")
        zero, size = (
            builder.tensor(f"{node.layer}.{name}", np.array(value, np.int64))
            for name, value in (("zero", 0), ("extent", extent))
        )
        from_end = builder.emit(relax.op.add(wide, size), f"{node.layer}.from_end")
        below = builder.emit(relax.op.less(wide, zero), f"{node.layer}.is_negative")
        index = builder.emit(relax.op.where(below, from_end, wide), f"{node.layer}.index")
        taken = builder.emit(relax.op.take(builder.read(data), index, axis), node.layer)
    result = (*shape[:axis], *index_shape, *shape[axis + 1 :])
    return builder.reshaped(taken, result, f"{node.layer}.shaped")


def pad(builder: OnnxBuilder, node: Node) -> Any:
    """Pad by a constant, the edge, or a reflection; negative pads cut."""
    x = node.inputs[0]
    shape = builder.shape(x)
    pads = ints(builder, node, 1, "pads")
    axes = ints(builder, node, 3, "axes") or list(range(len(shape)))
    if pads is None or len(pads) != 2 * len(axes) or max(map(abs, pads), default=0) > MAX_EXTENT:
        raise UnsupportedError(f"has the pads {pads} for the axes {axes}")
    mode = str(node.attributes.get("mode", "constant"))
    width = {
        normal(axis, len(shape)): (pads[i], pads[i + len(axes)]) for i, axis in enumerate(axes)
    }
    value = builder.read(x)
    if mode != "constant":
        return _pad_by_positions(builder, node, value, width, mode)
    for axis, (before, after) in width.items():
        kept = range(max(0, -before), shape[axis] - max(0, -after))
        value = _chosen(builder, value, axis, kept, f"{node.layer}.cut")
    amounts = [max(0, each) for axis in range(len(shape)) for each in width.get(axis, (0, 0))]
    if not any(amounts):
        return value
    pad_value: Any = node.attributes.get("value", 0.0)
    if node.has(2):
        pad_value = builder.constant(node.inputs[2]).item()
    if np.isnan(pad_value):
        raise UnsupportedError(f"pads with {pad_value}")
    padded = relax.op.nn.pad(value, amounts, "constant", float(pad_value))
    return builder.emit(padded, node.layer)


def _pad_by_positions(
    builder: OnnxBuilder, node: Node, value: Any, width: dict[int, tuple[int, int]], mode: str
) -> Any:
    if mode not in ("edge", "reflect", "wrap"):
        raise UnsupportedError(f"pads in the mode {mode}; constant, edge, reflect, wrap exist")
    for axis, (before, after) in width.items():
        extent = int(value.ty.shape[axis])
        if min(before, after) < 0 or (mode == "reflect" and max(before, after) >= extent):
            raise UnsupportedError(f"pads {extent} positions by {before} and {after} ({mode})")
        positions = np.pad(np.arange(extent), (before, after), mode=mode)  # type: ignore[call-overload]
        if before or after:
            value = take(builder, value, axis, positions, node.layer)
    return value


def expand(builder: OnnxBuilder, node: Node) -> Any:
    """Expand to a constant shape, both ways as NumPy broadcasts."""
    old = builder.shape(node.inputs[0])
    wanted = tuple(int(extent) for extent in builder.constant(node.inputs[1]).ravel())
    if prod(max(1, extent) for extent in wanted) > MAX_ELEMENTS:
        raise UnsupportedError(f"expands to {list(wanted)}")
    shape = np.broadcast_shapes(old, wanted)
    return builder.emit(relax.op.broadcast_to(builder.read(node.inputs[0]), shape), node.layer)


def cast(builder: OnnxBuilder, node: Node) -> Any:
    """Cast between numbers; floats lose their fraction."""
    code = int(node.attributes.get("to", 0))
    try:
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(code))
    except KeyError as error:
        raise UnsupportedError(f"casts to the unknown type {code}") from error
    if dtype not in WHOLE or builder.dtype(node.inputs[0]) not in ANY:
        raise UnsupportedError(f"casts {builder.dtype(node.inputs[0])} to {dtype}")
    if dtype == builder.dtype(node.inputs[0]):
        return builder.read(node.inputs[0])
    if dtype == "bool":
        x = builder.read(node.inputs[0])
        zero = np.zeros((), builder.dtype(node.inputs[0]))
        call = relax.op.not_equal(x, builder.tensor(f"{node.layer}.zero", zero))
        return builder.emit(call, node.layer)
    return builder.emit(relax.op.astype(builder.read(node.inputs[0]), dtype), node.layer)


def dropout(builder: OnnxBuilder, node: Node) -> Any:
    """Dropout at inference; the mask, where one is named, keeps everything."""
    if node.has(2) and builder.constant(node.inputs[2]).any():
        raise UnsupportedError("is in training mode; export the model for inference")
    if len(node.outputs) > 1 and node.outputs[1]:
        mask = np.broadcast_to(np.True_, builder.shape(node.inputs[0]))
        builder.constants[node.outputs[1]] = mask
    return builder.read(node.inputs[0])


def where(builder: OnnxBuilder, node: Node) -> Any:
    """Where."""
    condition, yes, no = (builder.read(tensor) for tensor in node.inputs)
    return builder.emit(relax.op.where(condition, yes, no), node.layer)


def depth_to_space(builder: OnnxBuilder, node: Node) -> Any:
    """DepthToSpace: blocks of channels become blocks of pixels."""
    n, c, h, w = builder.shape(node.inputs[0])
    b = int(node.attributes.get("blocksize", 0))
    if b < 1 or c % (b * b):
        raise UnsupportedError(f"has {c} channels for blocks of {b}")
    mode = str(node.attributes.get("mode", "DCR"))
    depth = c // (b * b)
    view, order = ((n, b, b, depth, h, w), [0, 3, 4, 1, 5, 2])
    if mode == "CRD":
        view, order = ((n, depth, b, b, h, w), [0, 1, 4, 2, 5, 3])
    return _blocks(builder, node, view, order, (n, depth, h * b, w * b))


def space_to_depth(builder: OnnxBuilder, node: Node) -> Any:
    """SpaceToDepth: blocks of pixels become blocks of channels."""
    n, c, h, w = builder.shape(node.inputs[0])
    b = int(node.attributes.get("blocksize", 0))
    if b < 1 or h % b or w % b:
        raise UnsupportedError(f"has images of {h}x{w} for blocks of {b}")
    view = (n, c, h // b, b, w // b, b)
    is_crd = str(node.attributes.get("mode", "DCR")) == "CRD"
    order = [0, 1, 3, 5, 2, 4] if is_crd else [0, 3, 5, 1, 2, 4]
    return _blocks(builder, node, view, order, (n, c * b * b, h // b, w // b))


def _blocks(
    builder: OnnxBuilder, node: Node, view: Sequence[int], order: list[int], shape: Sequence[int]
) -> Any:
    x = builder.reshaped(builder.read(node.inputs[0]), view, f"{node.layer}.blocks")
    moved = builder.emit(relax.op.permute_dims(x, order), node.layer)
    return builder.reshaped(moved, shape, f"{node.layer}.shaped")


def arg_extreme(function: Any) -> Any:
    """A converter of ArgMax or ArgMin: the first of equal values."""

    def convert(builder: OnnxBuilder, node: Node) -> Any:
        if node.attributes.get("select_last_index"):
            raise UnsupportedError("asks for the last of equal values; only the first")
        axis = normal(int(node.attributes.get("axis", 0)), len(builder.shape(node.inputs[0])))
        keep = bool(node.attributes.get("keepdims", 1))
        return builder.emit(function(builder.read(node.inputs[0]), axis, keep), node.layer)

    return convert
