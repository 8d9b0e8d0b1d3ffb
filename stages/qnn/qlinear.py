"""ONNX's quantized operators spelled out in the dialect: accumulators, bias, rescaling.

Each function emits the bindings of one operator and returns its result. They serve files that
name the operator (QLinearConv) and QDQ graphs that ONNX Runtime would fuse into it. Data and
windows are NCHW as in ONNX; the dialect's convolutions are NHWC, hence the transposes around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tvm import relax

from stages.qnn import integer, onnx
from stages.qnn.registry import dtype_of, shape_of, storage_dtype
from stages.qnn.rescale import rescale

Array = np.ndarray[Any, Any]


class Emitter(Protocol):
    """Where bindings and parameters go: `ModelBuilder`, or an importer's own builder."""

    def emit(self, expr: Any, name: str) -> Any:
        """Bind an expression to a new variable."""

    def tensor(self, name: str, value: Array, dtype: str | None = None) -> Any:
        """A new parameter."""


@dataclass(frozen=True)
class Grid:
    """What quantized values mean: `scale * (q - zero_point)`, scalars or one per channel [C]."""

    scale: Array
    zero_point: Array
    dtype: str

    @property
    def is_per_tensor(self) -> bool:
        """Whether there is one scale and zero point."""
        return self.scale.size == 1 and self.zero_point.size == 1

    @property
    def offset(self) -> int:
        """The zero point of a per-tensor grid."""
        return int(self.zero_point.item())

    @property
    def factor(self) -> np.float32:
        """The scale of a per-tensor grid."""
        return np.float32(self.scale.item())

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest q of the dtype, such as `int4`."""
        bits = int(self.dtype.lstrip("uint"))
        if self.dtype.startswith("u"):
            return 0, (1 << bits) - 1
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def same(self, other: Grid) -> bool:
        """Whether the same integers mean the same numbers."""
        return (
            self.dtype == other.dtype
            and np.array_equal(self.scale.ravel(), other.scale.ravel())
            and np.array_equal(self.zero_point.ravel(), other.zero_point.ravel())
        )


def grid(scale: Array, zero_point: Array, dtype: str | None = None) -> Grid:
    """A grid of constants as a file holds them."""
    kind = dtype or str(zero_point.dtype)
    return Grid(np.asarray(scale, np.float32), np.asarray(zero_point).astype(np.int64), kind)


def convolution(
    to: Emitter, layer: str, data: Any, weight: Any, bias: Any | None, *,
    data_zero_point: int, weight_zero_point: int, strides: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    """Accumulators of NCHW data and OIHW weights, NHWC int32; `bias` is int32 [O].

    Padded positions hold the data's zero point.
    """
    call = integer.conv2d(
        nhwc(to, data, layer),
        to.emit(relax.op.permute_dims(weight, [0, 2, 3, 1]), f"{layer}.ohwi"),
        strides=[int(each) for each in strides],
        padding=[int(each) for each in padding],
        dilation=[int(each) for each in dilation],
        groups=groups,
        data_zero_point_x2=2 * data_zero_point,
        weight_zero_point_x2=2 * weight_zero_point,
        pad_value=0,
    )
    result = to.emit(call, layer)
    return result if bias is None else to.emit(relax.op.add(result, bias), f"{layer}.bias")


def product(
    to: Emitter, layer: str, data: Any, weight: Any, bias: Any | None, *,
    data_zero_point: int, weight_zero_point: int,
) -> Any:  # fmt: skip
    """Accumulators int32 of data [..., K] and weights [K, O]; `bias` is int32 and broadcasts."""
    *outer, depth = shape_of(data.ty)
    if len(outer) != 1:
        data = to.emit(relax.op.reshape(data, (int(np.prod(outer)), depth)), f"{layer}.rows")
    call = integer.dense(
        data,
        to.emit(relax.op.permute_dims(weight, [1, 0]), f"{layer}.transposed"),
        data_zero_point_x2=2 * data_zero_point,
        weight_zero_point_x2=2 * weight_zero_point,
    )
    result = to.emit(call, layer)
    if len(outer) != 1:
        shape = (*outer, shape_of(result.ty)[-1])
        result = to.emit(relax.op.reshape(result, shape), f"{layer}.unrowed")
    return result if bias is None else to.emit(relax.op.add(result, bias), f"{layer}.bias")


def rescaled(to: Emitter, layer: str, accumulator: Any, factor: Array, out: Grid) -> Any:
    """MLAS's requantization of accumulators with `factor`, scalar or along the last axis."""
    low, high = out.limits
    scale = to.tensor(f"{layer}.scale", np.asarray(factor, np.float32))
    call = rescale(
        accumulator, scale, zero_point=out.offset, low=low, high=high, dtype=out.dtype
    )
    return to.emit(call, f"{layer}.rescale")


def output_factor(data: Grid, weight: Grid, out: Grid, alpha: float = 1.0) -> Array:
    """`alpha * xs * ws / ys` as ONNX Runtime computes it: float32 after every operation."""
    product = np.float32(alpha) * data.factor * weight.scale
    return np.asarray(product / out.factor, np.float32)


def nhwc(to: Emitter, data: Any, layer: str) -> Any:
    """NCHW data as NHWC."""
    return to.emit(relax.op.permute_dims(data, [0, 2, 3, 1]), f"{layer}.nhwc")


def nchw(to: Emitter, data: Any, layer: str) -> Any:
    """NHWC data as NCHW."""
    return to.emit(relax.op.permute_dims(data, [0, 3, 1, 2]), f"{layer}.nchw")


def max_pool(
    to: Emitter, layer: str, data: Any, kernel: Sequence[int], strides: Sequence[int],
    padding: Sequence[int],
) -> Any:  # fmt: skip
    """The largest integer of NCHW windows; padding never wins."""
    call = integer.max_pool2d(
        nhwc(to, data, layer), kernel=[*kernel], strides=[*strides], padding=[*padding]
    )
    return nchw(to, to.emit(call, layer), layer)


def global_average_pool(to: Emitter, layer: str, data: Any, grid_in: Grid, out: Grid) -> Any:
    """QLinearGlobalAveragePool of NCHW: integer sums, scale `xs / (ys * (H * W))`."""
    height, width = shape_of(data.ty)[2:]
    call = integer.sum_pool2d(
        nhwc(to, data, layer),
        kernel=[height, width],
        strides=[1, 1],
        padding=[0, 0, 0, 0],
        zero_point=grid_in.offset,
    )
    size = np.float32(height * width)
    factor = np.asarray(grid_in.factor / (out.factor * size), np.float32)
    return nchw(to, rescaled(to, layer, to.emit(call, layer), factor, out), layer)


def add(to: Emitter, layer: str, lhs: Any, rhs: Any, grids: tuple[Grid, Grid], out: Grid) -> Any:
    """QLinearAdd of tensors that broadcast."""
    ratios = [np.asarray(each.factor / out.factor, np.float32) for each in grids]
    left, right = (
        np.float32(ratio * np.float32(each.offset))
        for ratio, each in zip(ratios, grids, strict=True)
    )
    fixed = np.asarray(np.float32(out.offset) - np.float32(left + right), np.float32)
    low, high = out.limits
    call = onnx.qlinear_add(
        lhs,
        rhs,
        to.tensor(f"{layer}.lhs_ratio", ratios[0]),
        to.tensor(f"{layer}.rhs_ratio", ratios[1]),
        to.tensor(f"{layer}.fixed", fixed),
        scalar=_single(shape_of(lhs.ty), shape_of(rhs.ty)),
        low=low,
        high=high,
    )
    return to.emit(call, layer)


def _single(lhs: Sequence[int], rhs: Sequence[int]) -> str:
    """Which operand holds one value along the innermost axis that is longer than 1."""
    rank = max(len(lhs), len(rhs))
    left, right = ((1,) * (rank - len(shape)) + tuple(shape) for shape in (lhs, rhs))
    for a, b in zip(reversed(left), reversed(right), strict=True):
        if a != b:
            return "lhs" if a == 1 else "rhs"
        if a > 1:
            return "none"
    return "lhs"


def multiply(
    to: Emitter, layer: str, lhs: Any, rhs: Any, grids: tuple[Grid, Grid], out: Grid
) -> Any:
    """QLinearMul of tensors that broadcast."""
    low, high = out.limits
    ratio = np.asarray(grids[0].factor * grids[1].factor / out.factor, np.float32)
    call = onnx.qlinear_mul(
        lhs,
        rhs,
        to.tensor(f"{layer}.ratio", ratio),
        lhs_zero_point=grids[0].offset,
        rhs_zero_point=grids[1].offset,
        zero_point=out.offset,
        low=low,
        high=high,
    )
    return to.emit(call, layer)


def every_byte(dtype: str) -> Array:
    """The 256 values of a byte, in the order of `qnn.table`."""
    first = -128 if dtype == "int8" else 0
    return np.arange(first, first + 256).astype(storage_dtype(dtype))


def dtype(value: Any) -> str:
    """The element type of a variable."""
    return dtype_of(value.ty)
