"""Linear interpolation of floats between the corners around each output, as ONNX Runtime adds up.

Source: `upsample.cc` and `upsample.h` of ONNX Runtime 1.32. Corners and weights are chosen at
import; along the last of the axes data come chosen, as that is cheaper while rows are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from tvm import te

from stages.dialect.calls import Attrs, dtype_of, shape_of, tensor_type
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.numbers_tir import TIR
from stages.dialect.registry import register
from stages.kinds import Array
from stages.nodes import Scalar, Tensor, TensorType

OPERANDS = ("left", "right", "across", "rows", "down", "planes", "deep")


def _infer(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    shape, axes = list(shape_of(types[0])), list(attrs["axes"])
    if shape_of(types[1]) != tuple(shape) or {dtype_of(each) for each in types[:2]} != {"float32"}:
        raise ValueError(
            f"data of {[list(shape_of(each)) for each in types[:2]]}, not float32 alike"
        )
    if not 1 <= len(axes) <= 3 or any(not 0 <= axis < len(shape) for axis in axes):
        raise ValueError(f"the axes {axes} of data of rank {len(shape)}")
    found = [(shape_of(kind), dtype_of(kind)) for kind in types[2:]]
    for axis, places, weights in zip(axes[1:], found[1::2], found[2::2], strict=False):
        if places != (weights[0], "int32") or weights[1] != "float32" or places[0][0] != 2:
            raise ValueError(f"places of {places} and weights of {weights}")
        shape[axis] = places[0][1]
    if found[0] != ((2, shape[axes[0]]), "float32"):
        raise ValueError(f"weights of {found[0]} along the axis {axes[0]}")
    return tensor_type(shape, "float32")


def _corners(axes: Sequence[int]) -> list[tuple[int, ...]]:
    """Sides of each axis, in the order in which corners are added up: the first axis first."""
    return [corner[::-1] for corner in product((0, 1), repeat=len(axes))]


def _legalize(left: Tensor, right: Tensor, *operands: Any, axes: Sequence[int]) -> Tensor:
    across, rows, down, planes, deep = operands
    shape = [int(extent) for extent in left.shape]
    weights, places = (across, down, deep), (rows, rows, planes)  # none of the first axis
    for i, axis in enumerate(axes[1:], 1):
        shape[axis] = int(places[i].shape[1])

    def at(*index: Scalar) -> Scalar:
        total: Any = None
        for corner in _corners(axes):
            where, weight = list(index), across[corner[0], index[axes[0]]]
            for i, axis in enumerate(axes[1:], 1):
                where[axis] = places[i][corner[i], index[axis]]
                weight = TIR.product(weight, weights[i][corner[i], index[axis]])
            term = TIR.product(weight, (left, right)[corner[0]](*where))
            total = term if total is None else total + term
        return total

    return te.compute(shape, at, name="interpolate")


@register("interpolate", OPERANDS, _infer, _legalize)
def interpolate(
    left: Array, right: Array, across: Array, rows: Array, down: Array, planes: Array, deep: Array,
    *, axes: Sequence[int],
) -> Array:  # fmt: skip
    """The sum of the corners times their weights, from left to right, each step in float32.

    Along `axes[0]`, `left` and `right` are the neighbours of each output, and `across` [2, extent]
    is how much of each is taken. Along `axes[1]` and `axes[2]`, where there are such, `rows` and
    `planes` (int32 [2, extent]) say where neighbours are, `down` and `deep` what is taken of them.
    """
    weights, places = (across, down, deep), (None, rows, planes)
    rank, total = left.ndim, np.zeros((), np.float32)
    for number, corner in enumerate(_corners(axes)):
        value, weight = (left, right)[corner[0]], np.ones((), np.float32)
        for i, axis in enumerate(axes):
            view = [-1 if k == axis else 1 for k in range(rank)]
            weight = NUMPY.product(weight, weights[i][corner[i]].reshape(view))
            chosen = places[i]
            value = value if chosen is None else value.take(chosen[corner[i]], axis)
        term = NUMPY.product(weight, value)
        total = total + term if number else term
    return total
