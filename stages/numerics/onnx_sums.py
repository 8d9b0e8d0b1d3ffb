"""Sums of float32 in the orders of ONNX Runtime 1.32 on one thread, each addition rounded.

Where the values lie on a grid, as dequantized ones do, a mean may lie in the middle of two levels
but for what rounding adds: then the order decides. Source: `reduction_ops.cc`, which hands rows to
Eigen (`Redux.h`, vectors of four) and columns to a product with ones (`sgemm.cpp`, rows by fours).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from tvm import relax, te, tirx

from stages.dialect.calls import Attrs, dtype_of, shape_of, tensor_type
from stages.dialect.registry import register
from stages.kinds import Array
from stages.nodes import Expr, Index, Scalar, Tensor, TensorType, Var
from stages.numerics.binding_target import BindingTarget

Emit = Callable[[Expr, str], Var]
"""Adds a call to a graph, named after what it gives; returns that."""
ORDERS = ("one by one", "fours", "vectors", "one vector")
LANES = 4
"""Floats of a vector of Eigen's."""


def reduced(data: Expr, axes: Sequence[int], keepdims: bool, emit: Emit, name: str) -> Var:
    """The sum of float32 `data` over sorted axes, spelled out in `sum_in_order`."""
    shape = shape_of(data.ty)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    runs = _runs(shape, axes)
    kinds = "".join("R" if is_reduced else "K" for is_reduced, _ in runs)
    extents = [extent for _, extent in runs]
    if kinds in ("R", "KR"):
        steps = [((prod(extents[:-1]), extents[-1], 1), "vectors")]
    elif kinds == "KRK" and extents[0] > 1:
        steps = [((extents[0], extents[1], extents[2]), "fours")]
    elif kinds == "RKR" and extents[1] > 1:
        rows, columns = extents[0], extents[1]
        steps = [((rows * columns, extents[2], 1), "vectors"), ((1, rows, columns), "one by one")]
    else:
        if kept and kept[-1] > min(axes):
            data = emit(relax.op.permute_dims(data, [*kept, *axes]), f"{name}.transposed")
        outer = prod(shape[axis] for axis in kept)
        steps = [((outer, prod(shape) // outer, 1), "one by one")]
    for view, order in steps:
        data = emit(relax.op.reshape(data, view), f"{name}.view")
        data = emit(sum_in_order(data, order=order), f"{name}.sums")
    result = [1 if axis in axes else extent for axis, extent in enumerate(shape)]
    if not keepdims:
        result = [shape[axis] for axis in kept]
    return emit(relax.op.reshape(data, result), name)


def pooled(data: Expr, to: BindingTarget, name: str) -> Var:
    """GlobalAveragePool of float32 NCHW, of which a vector of four adds up every plane."""
    n, channels, height, width = shape_of(data.ty)
    view = relax.op.reshape(data, (n * channels, height * width, 1))
    sums = to.emit(sum_in_order(to.emit(view, f"{name}.view"), order="one vector"), f"{name}.sums")
    count = to.tensor(f"{name}.count", np.asarray(height * width, np.float32))
    mean = to.emit(relax.op.divide(sums, count), f"{name}.mean")
    return to.emit(relax.op.reshape(mean, (n, channels, 1, 1)), name)


def _runs(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[bool, int]]:
    """Neighbouring axes as one where all of them are reduced, or none."""
    runs: list[tuple[bool, int]] = []
    for axis, extent in enumerate(shape):
        is_reduced = axis in axes
        if runs and runs[-1][0] == is_reduced:
            extent *= runs.pop()[1]
        runs.append((is_reduced, extent))
    return runs


def _infer(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    shape, order = shape_of(types[0]), str(attrs["order"])
    if dtype_of(types[0]) != "float32" or len(shape) != 3:
        raise ValueError(
            f"data of {dtype_of(types[0])} {list(shape)}; float32 [A, R, K] is expected"
        )
    if order not in ORDERS or (order in ORDERS[2:] and shape[2] != 1):
        raise ValueError(f"the order '{order}' of data {list(shape)}")
    return tensor_type((shape[0], shape[2]), "float32")


def _legalize(x: Tensor, *, order: str) -> Tensor:
    a, r, k = (int(extent) for extent in x.shape)
    if order == "vectors":
        return _by_vectors(x)
    if order == "one vector":
        return _by_one_vector(x)
    if order == "one by one":
        each = te.reduce_axis((0, r), name="r")
        return te.compute((a, k), lambda i, j: te.sum(x[i, each, j], axis=each), name="sums")
    within, among = te.reduce_axis((0, 4), name="within"), te.reduce_axis((0, r // 4), name="among")
    parts = te.compute(
        (a, max(r // 4, 1), k), lambda i, b, j: te.sum(x[i, b * 4 + within, j], axis=within)
    )
    sums = te.compute((a, k), lambda i, j: te.sum(parts[i, among, j], axis=among), name="fours")

    def at(i: Scalar, j: Scalar) -> Scalar:
        total, done = sums[i, j] if r >= 4 else tirx.const(0, "float32"), r & ~3
        if r & 2:
            total, done = total + (x[i, done, j] + x[i, done + 1, j]), done + 2
        return total + x[i, done, j] if r & 1 else total

    return te.compute((a, k), at, name="sums")


def _by_one_vector(x: Tensor) -> Tensor:
    """A vector adds up all that fills it; what is left comes one by one."""
    a, r, _ = (int(extent) for extent in x.shape)
    count = r // LANES
    each = te.reduce_axis((0, max(count, 1)), name="each")

    def lane_sum(i: Scalar, lane: Scalar) -> Scalar:
        return te.sum(x[i, each * LANES + lane, 0], axis=each)

    lanes = te.compute((a, LANES), lane_sum, name="lanes")

    def at(i: Scalar, _k: Scalar) -> Scalar:
        total = tirx.const(0, "float32")
        if count:
            total = (lanes[i, 0] + lanes[i, 2]) + (lanes[i, 1] + lanes[i, 3])
        for place in range(count * LANES, r):
            total = total + x[i, place, 0]
        return total

    return te.compute((a, 1), at, name="sums")


def _by_vectors(x: Tensor) -> Tensor:
    """Two vectors take turns from the first aligned value on; what is left comes one by one."""
    a, r, _ = (int(extent) for extent in x.shape)

    def start(i: Scalar) -> Scalar:
        """The first value of a row at a multiple of 16 bytes; rows lie one behind the other."""
        return tirx.min(tirx.indexmod(LANES - tirx.indexmod(i * r, LANES), LANES), r)

    def vectors(i: Scalar) -> Scalar:
        return tirx.indexdiv(r - start(i), LANES)

    def where(condition: Scalar | bool, i: Scalar, place: Index) -> Scalar:
        return tirx.if_then_else(condition, x[i, place, 0], tirx.const(0, "float32"))

    pair = te.reduce_axis((0, max(r // (2 * LANES), 1)), name="pair")

    def turn(i: Scalar, half: Scalar, lane: Scalar) -> Scalar:
        is_there = pair < tirx.indexdiv(vectors(i), 2)
        place = start(i) + pair * (2 * LANES) + half * LANES + lane
        return te.sum(where(is_there, i, place), axis=pair)

    turns = te.compute((a, 2, LANES), turn, name="turns")

    def lane_sum(i: Scalar, lane: Scalar) -> Scalar:
        rest = tirx.indexmod(vectors(i), 2) == 1
        place = start(i) + (vectors(i) - 1) * LANES + lane
        return (turns[i, 0, lane] + turns[i, 1, lane]) + where(rest, i, place)

    lanes = te.compute((a, LANES), lane_sum, name="lanes")

    def at(i: Scalar, _k: Scalar) -> Scalar:
        total = (lanes[i, 0] + lanes[i, 2]) + (lanes[i, 1] + lanes[i, 3])
        for before in range(min(LANES - 1, r)):
            total = total + where(before < start(i), i, before)
        for beyond in range(LANES - 1):
            place = start(i) + vectors(i) * LANES + beyond
            total = total + where(place < r, i, place)
        return total

    return te.compute((a, 1), at, name="sums")


@register("sum_in_order", ["x"], _infer, _legalize)
def sum_in_order(x: Array, *, order: str) -> Array:
    """Sums of float32 [A, R, K] over R: float32 [A, K], each addition rounded.

    `order` is "one by one"; "fours" of rows, each added up for itself first, then two and one; and
    where K is 1 "vectors" of four in turns, from the first value on that lies at a multiple of 16
    bytes, or "one vector" of four from the first value on.
    """
    if order == "one vector":
        return _of_lanes(x[..., 0])
    if order == "vectors":
        return np.stack([[_row(row, -i * x.shape[1] % LANES)] for i, row in enumerate(x[..., 0])])
    if order == "one by one":
        return _total(x)
    whole = x.shape[1] & ~3
    parts = [_total(x[:, i : i + 4]) for i in range(0, whole, 4)]
    if x.shape[1] & 2:
        parts.append(_total(x[:, whole : whole + 2]))
    if x.shape[1] & 1:
        parts.append(x[:, -1])
    return _total(np.stack(parts, axis=1))


def _of_lanes(rows: Array) -> Array:
    """Rows [A, R] that a vector adds up: [A, 1]."""
    whole = rows.shape[1] // LANES * LANES
    lanes = np.zeros((len(rows), LANES), np.float32)
    for i in range(0, whole, LANES):
        lanes = lanes + rows[:, i : i + LANES]
    first = (lanes[:, 0] + lanes[:, 2]) + (lanes[:, 1] + lanes[:, 3])
    return _total(np.concatenate([first[:, None, None], rows[:, whole:, None]], axis=1))


def _total(x: Array) -> Array:
    """The sum over the second axis, in order."""
    return np.add.accumulate(x, axis=1, dtype=np.float32)[:, -1]


def _row(row: Array, start: int) -> np.float32:
    """A row as Eigen adds it up."""
    start = min(start, row.size)
    count = (row.size - start) // LANES
    vectors = row[start : start + count * LANES].reshape(count, LANES)
    turns = [_total(vectors[None, half : count & ~1 : 2])[0] for half in (0, 1) if count > 1]
    lanes = np.zeros(LANES, np.float32)
    for turn in turns:
        lanes = lanes + turn
    if count & 1:
        lanes = lanes + vectors[-1]
    total = np.float32((lanes[0] + lanes[2]) + (lanes[1] + lanes[3]))
    for value in (*row[:start], *row[start + count * LANES :]):
        total = np.float32(total + value)
    return total
