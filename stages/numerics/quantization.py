"""`Quantization`: which real numbers the integers of a tensor stand for, from importer to package.

A tensor whose scales or zero points vary along its axes has a `Grid` instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.dialect.calls import BYTES, storage_dtype
from stages.dialect.dtypes import limits
from stages.dialect.levels import Levels
from stages.dialect.zero_point import ZeroPoint
from stages.kinds import Array


@dataclass(frozen=True)
class Quantization:
    """`scale * (q - zero_point)` for every integer q of `levels`, which have the zero point."""

    scale: np.float32
    levels: Levels

    @classmethod
    def of_type(cls, scale: float | np.float32, zero_point: int, dtype: str) -> Quantization:
        """The quantization whose levels are all integers of a type."""
        return cls(np.float32(scale), Levels.of_type(dtype, ZeroPoint.of(zero_point)))

    @property
    def zero_point(self) -> ZeroPoint:
        """The number among the integers that stands for 0."""
        return self.levels.zero_point

    @property
    def dtype(self) -> str:
        """The narrowest type that holds the integers."""
        return self.levels.dtype

    @property
    def is_byte(self) -> bool:
        """Whether the integers are those of a byte."""
        return self.dtype in BYTES

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest integer."""
        return self.levels.low, self.levels.high

    @property
    def stated(self) -> tuple[float, int]:
        """Scale and whole zero point as frameworks state them."""
        return float(self.scale), self.zero_point.whole

    @property
    def unit(self) -> np.float32:
        """The real value of one numerator."""
        return np.float32(self.zero_point.unit(self.scale))

    def steps(self, values: Array) -> Array:
        """`q - zero_point` of the integers nearest to float32 values: float32."""
        low, high = (limit - self.zero_point.whole for limit in self.limits)
        rounded = np.rint(np.asarray(values, np.float32) / self.scale)
        return np.asarray(np.clip(np.nan_to_num(rounded, nan=-np.inf), low, high))

    def quantize(self, values: Array) -> Array:
        """The integers nearest to float32 values: ONNX's QuantizeLinear (int64)."""
        return np.asarray(self.steps(values).astype(np.int64) + self.zero_point.whole)

    def dequantize(self, q: Array) -> Array:
        """What integers mean: float32."""
        moved = q.astype(np.int64) - self.zero_point.whole
        return np.asarray(moved.astype(np.float32) * self.scale)


def every_byte(dtype: str) -> Array:
    """The 256 values of a byte, in the order of `qnn.table`."""
    low, high = limits(dtype)
    return np.arange(low, high + 1).astype(storage_dtype(dtype))
