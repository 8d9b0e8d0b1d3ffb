"""`Grid`: what the integers of a tensor mean whose scales or zero points may vary along an axis."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from stages.kinds import Array
from stages.numerics.quantization import Quantization


@dataclass(frozen=True)
class Grid:
    """`scale * (q - zero_point)`; both broadcast as operands of `linear_quantizers` do.

    `scale` is float32, `zero_point` int64; `dtype` is that of the integers, such as `int4`.
    """

    scale: Array
    zero_point: Array
    dtype: str

    @classmethod
    def of_constants(cls, scale: Array, zero_point: Array, dtype: str) -> Grid:
        """A grid of constants as a file holds them."""
        return cls(np.asarray(scale, np.float32), zero_point.astype(np.int64), dtype)

    @classmethod
    def of(cls, whole: Quantization) -> Grid:
        """A grid of one scale and zero point."""
        zero_point = np.asarray(whole.zero_point.whole, np.int64)
        return cls(np.asarray(whole.scale), zero_point, whole.dtype)

    @property
    def is_per_tensor(self) -> bool:
        """Whether there is one scale and one zero point."""
        return self.scale.size == 1 and self.zero_point.size == 1

    @property
    def quantization(self) -> Quantization | None:
        """The quantization of a tensor of one scale and one zero point; None of others."""
        if not self.is_per_tensor:
            return None
        return Quantization.of_type(self.scale.item(), self.zero_point.item(), self.dtype)

    @property
    def common_zero_point(self) -> int | None:
        """The zero point where there is one for the whole tensor, else None."""
        found = np.unique(self.zero_point)
        return int(found[0]) if found.size == 1 else None

    def is_per_axis(self, axis: int, rank: int) -> bool:
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
        scale, zero_point = (
            each.reshape((1,) * (len(axes) - each.ndim) + each.shape).transpose(axes)
            for each in (self.scale, self.zero_point)
        )
        return Grid(scale, zero_point, self.dtype)

    def reshaped(self, shape: tuple[int, ...], into: tuple[int, ...]) -> Grid | None:
        """The grid of a tensor of one shape that is given another one.

        None where several axes vary, or the one that does is split or merged with others.
        """
        if self.is_per_tensor:
            if max(self.scale.ndim, self.zero_point.ndim) <= len(into):
                return self
            return Grid(self.scale.reshape(()), self.zero_point.reshape(()), self.dtype)
        axis = next((i for i in range(len(shape)) if self.is_per_axis(i, len(shape))), None)
        if axis is None:
            return None
        before, extent = prod(shape[:axis]), shape[axis]
        kept = (i for i, n in enumerate(into) if n == extent and prod(into[:i]) == before)
        if (place := next(kept, None)) is None:
            return None
        extents = [1] * place + [-1] + [1] * (len(into) - place - 1)
        scale, zero_point = (
            each if each.size == 1 else each.reshape(extents)
            for each in (self.scale, self.zero_point)
        )
        return Grid(scale, zero_point, self.dtype)
