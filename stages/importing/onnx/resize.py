"""Converter of Resize: positions and weights of each axis are computed at import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import dtype_of, shape_of
from stages.importing.limits import MAX_ELEMENTS
from stages.importing.onnx.onnx_builder import OnnxBuilder
from stages.importing.onnx.onnx_reader import Node
from stages.importing.onnx.source_arithmetic import NEAREST, PLACES
from stages.importing.onnx.tensor_movement import normal, take
from stages.importing.sliding_windows import MAX_EXTENT
from stages.importing.unsupported import UnsupportedError
from stages.numerics.onnx_resize import interpolate

Array = np.ndarray[Any, Any]


def resize(builder: OnnxBuilder, node: Node) -> Any:
    """Resize (and Upsample) by the nearest, by linear or by cubic interpolation of constant size.

    Both interpolate in float32, in the order of ONNX Runtime 1.32 (`upsample.cc`): cubic one axis
    after the other, the last first; linear all corners at once.
    """
    shape = builder.shape(node.inputs[0])
    sizes, scales = _target(builder, node, shape)
    mode = str(node.attributes.get("mode", "nearest"))
    if node.attributes.get("antialias"):
        raise UnsupportedError("smooths before it shrinks (antialias)")
    if mode not in ("nearest", "linear", "cubic"):
        raise UnsupportedError(f"resizes by the mode {mode}; nearest, linear and cubic exist")
    is_large = max(sizes) > MAX_EXTENT or np.prod(sizes, dtype=float) > MAX_ELEMENTS
    if min(sizes) < 1 or is_large:
        raise UnsupportedError(f"resizes {list(shape)} to {sizes}")
    value = builder.read(node.inputs[0])
    if mode != "nearest" and dtype_of(value.ty) != "float32":
        raise UnsupportedError(f"interpolates {dtype_of(value.ty)}; float32 is accepted")
    if mode == "linear":
        return _linear(builder, node, value, [sizes, scales])
    for axis in reversed(range(len(shape))):
        if sizes[axis] == shape[axis] and scales[axis] == 1:
            continue
        where = _positions(node, shape[axis], sizes[axis], scales[axis])
        if mode == "nearest":
            value = take(builder, value, axis, _nearest(node, where, shape[axis]), node.layer)
        else:
            value = _interpolated(builder, node, value, axis, _taps(where, node), shape[axis])
    return value


def _linear(builder: OnnxBuilder, node: Node, data: Any, target: list[list[Any]]) -> Any:
    """Linear interpolation: corners times their weights, added up with the last axis in front."""
    sizes, scales = target
    shape = shape_of(data.ty)
    resized = [i for i in range(len(shape)) if sizes[i] != shape[i] or scales[i] != 1]
    if not resized:
        return data
    axes = list(_interpolated_axes(len(shape), resized))[::-1]
    neighbours = []
    for axis in axes:
        where = np.arange(sizes[axis], dtype=np.float32)
        if scales[axis] != 1:
            where = _positions(node, shape[axis], sizes[axis], scales[axis])
        neighbours.append(_neighbours(where, shape[axis]))
    (first, across), *others = neighbours
    sides = []
    for positions in first:
        is_whole = np.array_equal(positions, np.arange(shape[axes[0]]))
        sides.append(data if is_whole else take(builder, data, axes[0], positions, node.layer))
    idle = np.zeros((2, 1), np.int32), np.zeros((2, 1), np.float32)
    named = zip(("rows", "planes"), [*others, idle, idle][:2], strict=True)
    operands = [builder.tensor(f"{node.layer}.across", across)]
    for name, (positions, weights) in named:
        operands.append(builder.tensor(f"{node.layer}.{name}", positions.astype(np.int32)))
        operands.append(builder.tensor(f"{node.layer}.{name}_weights", weights))
    return builder.emit(interpolate(*sides, *operands, axes=axes), node.layer)


def _interpolated_axes(rank: int, resized: Sequence[int]) -> Sequence[int]:
    """The axes between whose neighbours ONNX Runtime interpolates, whether they change or not.

    An image has two of them, channels first or last, and three other ranks have three.
    """
    accepted = {1: (0,), 2: (0, 1), 3: (0, 1, 2), 4: (2, 3), 5: (2, 3, 4)}
    axes = (1, 2) if rank == 4 and 1 in resized else accepted.get(rank, ())
    if not set(resized) <= set(axes):
        raise UnsupportedError(f"interpolates the axes {list(resized)} of a rank-{rank} tensor")
    return axes


def _neighbours(where: Array, extent: int) -> tuple[Array, Array]:
    """The two positions [2, n] around each output, with weights; halves where they are one."""
    last = extent - 1
    inside = np.clip(where, np.float32(0), np.float32(last))
    first = np.minimum(inside.astype(np.int64), last)
    second = np.minimum(first + 1, last)
    half, are_one = np.float32(0.5), first == second
    near, far = (np.abs(inside - each.astype(np.float32)) for each in (second, first))
    weights = np.where(are_one, half, np.stack([near, far]))
    return np.stack([first, second]), weights.astype(np.float32)


def nearest(builder: OnnxBuilder, node: Node) -> Any:
    """Resize by the nearest where all tensors are floats: values repeated, or every nth."""
    if str(node.attributes.get("mode", "nearest")) != "nearest":
        raise UnsupportedError("interpolates; networks with quantizers resize by the nearest")
    shape = builder.shape(node.inputs[0])
    sizes, scales = _target(builder, node, shape)
    if min(sizes) < 1 or np.prod(sizes, dtype=float) > MAX_ELEMENTS:
        raise UnsupportedError(f"resizes {list(shape)} to {sizes}")
    value = builder.read(node.inputs[0])
    for axis in reversed(range(len(shape))):
        if sizes[axis] != shape[axis] or scales[axis] != 1:
            where = _positions(node, shape[axis], sizes[axis], scales[axis])
            chosen = _nearest(node, where, shape[axis])
            value = _spread(builder, value, axis, chosen, node.layer)
    return value


def _spread(builder: OnnxBuilder, value: Any, axis: int, chosen: Array, name: str) -> Any:
    """Positions of an axis without an index: repeated as a whole, or evenly spaced."""
    shape = [int(extent) for extent in value.ty.shape]
    times, step = chosen.size // shape[axis], int(chosen[-1] - chosen[-2]) if chosen.size > 1 else 1
    if times and np.array_equal(chosen, np.repeat(np.arange(shape[axis]), times)):
        one_more_axis = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
        copies = [builder.reshaped(value, one_more_axis, f"{name}.apart")] * times
        repeated = builder.emit(relax.op.concat(copies, axis + 1), f"{name}.beside")
        return builder.reshaped(repeated, [*shape[:axis], chosen.size, *shape[axis + 1 :]], name)
    if step > 0 and np.array_equal(chosen, np.arange(chosen[0], chosen[-1] + 1, step)):
        bounds = [int(chosen[0])], [int(chosen[-1]) + 1]
        return builder.emit(relax.op.strided_slice(value, [axis], *bounds, [step]), name)
    raise UnsupportedError(
        f"resizes {shape[axis]} values to {chosen.size} unevenly; whole factors are accepted"
    )


def _target(
    builder: OnnxBuilder, node: Node, shape: Sequence[int]
) -> tuple[list[int], list[float]]:
    """The size and the scale of every axis."""
    is_upsample = node.op == "Upsample" or len(node.inputs) == 2
    axes = [normal(int(a), len(shape)) for a in node.attributes.get("axes") or range(len(shape))]
    if str(node.attributes.get("keep_aspect_ratio_policy", "stretch")) != "stretch":
        raise UnsupportedError("keeps the aspect ratio; a plain size is accepted")
    sizes, scales = list(shape), [1.0] * len(shape)
    if node.has(3):
        for axis, size in zip(axes, builder.constant(node.inputs[3]).ravel(), strict=True):
            sizes[axis], scales[axis] = int(size), int(size) / shape[axis]
        return sizes, scales
    position = 1 if is_upsample else 2
    stated = node.attributes.get("scales")
    if node.has(position):
        stated = builder.constant(node.inputs[position]).ravel().tolist()
    if stated is None or len(stated) != len(axes) or not all(0 < each < np.inf for each in stated):
        raise UnsupportedError(f"has the scales {stated}")
    for axis, scale in zip(axes, stated, strict=True):
        scales[axis] = float(scale)
        sizes[axis] = int(np.floor(min(shape[axis] * scales[axis], MAX_ELEMENTS + 1)))
    return sizes, scales


def _positions(node: Node, extent: int, size: int, scale: float) -> Array:
    """Where each output lies among the inputs, float32 like ONNX Runtime."""
    default = "asymmetric" if node.op == "Upsample" else "half_pixel"
    mode = str(node.attributes.get("coordinate_transformation_mode", default))
    at, factor = np.arange(size, dtype=np.float32), np.float32(scale)
    if mode == "pytorch_half_pixel":
        if size == 1:
            return np.zeros(1, np.float32)
        mode = "half_pixel"
    if mode in PLACES:
        return np.asarray(PLACES[mode](at, factor, extent))
    if mode == "half_pixel_symmetric":
        adjustment = np.float32(size) / (factor * np.float32(extent))
        offset = np.float32(extent) / np.float32(2) * (np.float32(1) - adjustment)
        exact = np.float64(offset) + (at.astype(np.float64) + 0.5) / np.float64(factor) - 0.5
        return np.asarray(exact, np.float32)  # this mode alone is computed in float64
    raise UnsupportedError(f"places pixels by {mode}")


def _nearest(node: Node, where: Array, extent: int) -> Array:
    default = "floor" if node.op == "Upsample" else "round_prefer_floor"
    mode = str(node.attributes.get("nearest_mode", default))
    if mode not in NEAREST:
        raise UnsupportedError(f"rounds positions by {mode}")
    return np.asarray(np.clip(NEAREST[mode](where), 0, extent - 1).astype(np.int64))


def _taps(where: Array, node: Node) -> list[tuple[Array, Array]]:
    """Positions and float32 weights of cubic interpolation, one pair a neighbour."""
    base = np.floor(where)
    rest = (where - base).astype(np.float32)
    if node.attributes.get("exclude_outside"):
        raise UnsupportedError("leaves positions outside the image out of its cubic")
    a = float(node.attributes.get("cubic_coeff_a", -0.75))
    near, far = (
        [_near(each, a) for each in (rest, 1 - rest)],
        [_far(1 + rest, a), _far(2 - rest, a)],
    )
    weights = [far[0], near[0], near[1], far[1]]
    return [(base + i - 1, np.asarray(weight, np.float32)) for i, weight in enumerate(weights)]


def _near(d: Array, a: float) -> Array:
    """Keys's cubic kernel within one pixel."""
    return np.asarray(((a + 2) * d - (a + 3)) * d * d + 1)


def _far(d: Array, a: float) -> Array:
    """Keys's cubic kernel between one and two pixels."""
    return np.asarray(((a * d - 5 * a) * d + 8 * a) * d - 4 * a)


def _interpolated(
    builder: OnnxBuilder, node: Node, value: Any, axis: int,
    taps: list[tuple[Array, Array]], extent: int,
) -> Any:  # fmt: skip
    rank, layer = len(value.ty.shape), node.layer
    total: Any = None
    for where, weight in taps:
        positions = np.clip(where, 0, extent - 1).astype(np.int64)
        taken = take(builder, value, axis, positions, f"{layer}.tap")
        view = weight.astype(np.float32).reshape([-1 if i == axis else 1 for i in range(rank)])
        scaled = builder.emit(
            relax.op.multiply(taken, builder.tensor(f"{layer}.weight", view)), f"{layer}.scaled"
        )
        total = scaled if total is None else builder.emit(relax.op.add(total, scaled), layer)
    return total
