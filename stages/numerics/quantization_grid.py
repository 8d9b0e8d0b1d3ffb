"""What the integers of a tensor mean, where scale and zero point are known at import."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from stages.dialect.calls import BYTES, storage_dtype
from stages.dialect.dtypes import limits
from stages.kinds import Array


@dataclass(frozen=True)
class Grid:
    """`scale * (q - zero_point)`; both broadcast as operands of `linear_quantizers` do.

    `scale` is float32, `zero_point` int64; `dtype` is that of the integers, such as `int4`.
    """

    scale: Array
    zero_point: Array
    dtype: str

    @property
    def is_per_tensor(self) -> bool:
        """Whether there is one scale and one zero point."""
        return self.scale.size == 1 and self.zero_point.size == 1

    @property
    def is_byte(self) -> bool:
        """Whether one scale and zero point are those of 8-bit integers."""
        return self.is_per_tensor and self.dtype in BYTES

    @property
    def common_zero_point(self) -> int | None:
        """The zero point where there is one for the whole tensor, else None."""
        points = np.unique(self.zero_point)
        return int(points[0]) if points.size == 1 else None

    @property
    def tensor_zero_point(self) -> int:
        """The zero point of a per-tensor grid."""
        return int(self.zero_point.item())

    @property
    def factor(self) -> np.float32:
        """The scale of a per-tensor grid."""
        return np.float32(self.scale.item())

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest integer of the dtype."""
        return limits(self.dtype)

    def same(self, other: Grid) -> bool:
        """Whether the same integers mean the same numbers, one scale and zero point each."""
        return (
            self.is_per_tensor
            and other.is_per_tensor
            and (self.dtype, self.factor, self.tensor_zero_point)
            == (other.dtype, other.factor, other.tensor_zero_point)
        )

    def along(self, axis: int, rank: int) -> bool:
        """Whether nothing varies but along one axis of a tensor of this rank."""
        return all(
            extent == 1
            for shape in (self.scale.shape, self.zero_point.shape)
            for i, extent in enumerate((1,) * (rank - len(shape)) + shape)
            if i != axis
        )

    def transposed(self, axes: tuple[int, ...]) -> Grid:
        """The grid of the transposed tensor."""
        if self.is_per_tensor:
            return self
        scale, point = (
            each.reshape((1,) * (len(axes) - each.ndim) + each.shape).transpose(axes)
            for each in (self.scale, self.zero_point)
        )
        return Grid(scale, point, self.dtype)

    def reshaped(self, shape: tuple[int, ...], into: tuple[int, ...]) -> Grid | None:
        """The grid of a tensor of one shape that is given another one.

        None where several axes vary, or the one that does is split or merged with others.
        """
        if self.is_per_tensor:
            if max(self.scale.ndim, self.zero_point.ndim) <= len(into):
                return self
            return Grid(self.scale.reshape(()), self.zero_point.reshape(()), self.dtype)
        axis = next((i for i in range(len(shape)) if self.along(i, len(shape))), None)
        if axis is None:
            return None
        before, extent = prod(shape[:axis]), shape[axis]
        kept = (i for i, n in enumerate(into) if n == extent and prod(into[:i]) == before)
        if (place := next(kept, None)) is None:
            return None
        extents = [1] * place + [-1] + [1] * (len(into) - place - 1)
        scale, point = (
            each if each.size == 1 else each.reshape(extents)
            for each in (self.scale, self.zero_point)
        )
        return Grid(scale, point, self.dtype)

    def quantize(self, values: Array) -> Array:
        """The integers nearest to float32 values, per tensor: ONNX's QuantizeLinear (int64)."""
        low, high = self.limits
        rounded = np.rint(np.asarray(values, np.float32) / self.factor)
        bounded = np.clip(
            np.nan_to_num(rounded, nan=-np.inf),
            low - self.tensor_zero_point,
            high - self.tensor_zero_point,
        )
        return np.asarray(bounded.astype(np.int64) + self.tensor_zero_point)

    def dequantize(self, values: Array) -> Array:
        """What integers mean, per tensor: float32."""
        return np.asarray(
            (values.astype(np.int64) - self.tensor_zero_point).astype(np.float32) * self.factor
        )


def grid(scale: Array, zero_point: Array, dtype: str | None = None) -> Grid:
    """A grid of constants as a file holds them."""
    kind = dtype or str(zero_point.dtype)
    return Grid(np.asarray(scale, np.float32), np.asarray(zero_point).astype(np.int64), kind)


def every_byte(dtype: str) -> Array:
    """The 256 values of a byte, in the order of `qnn.table`."""
    low, high = limits(dtype)
    return np.arange(low, high + 1).astype(storage_dtype(dtype))
