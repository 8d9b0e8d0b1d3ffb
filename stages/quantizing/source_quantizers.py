"""The three quantizers of source graphs: QONNX Quant and BipolarQuant, FINN's MultiThreshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from stages.dialect.rounding_modes import NEAREST
from stages.errors import NoIntegerFormError, StageError
from stages.kinds import Array
from stages.numerics.qonnx_operators import ROUNDING, quant_range
from stages.quantizing.quantized_constants import zero_point_x2


class Quantizer(Protocol):
    """float32 in, level 0..levels-1 out; the value is `scale * (level - zero_point)`."""

    @property
    def levels(self) -> int:
        """How many levels there are."""

    @property
    def scale(self) -> np.float32:
        """Real distance of two levels."""

    @property
    def zero_point_x2(self) -> int:
        """Twice the level that means 0."""

    @property
    def rounds(self) -> bool:
        """Whether a level is `clip(round_half_even(x / scale + zero_point))`."""

    def level(self, x: Array) -> Array:
        """Levels (integers) of float32 [..., C]."""


@dataclass(frozen=True)
class UniformQuantizer:
    """QONNX Quant: `round(clip(x / scale + source_zero_point, low, high))`, stored from 0."""

    scale: np.float32
    source_zero_point: np.float32
    low: int
    high: int
    rounding: str

    @classmethod
    def of(
        cls, scale: Array, zero_point: Array, attrs: dict[str, Any], layer: str
    ) -> UniformQuantizer:
        """From the operands and attributes of a Quant over an activation."""
        if np.unique(scale).size != 1 or np.unique(zero_point).size != 1:
            raise NoIntegerFormError("a quantizer with a scale or zero point per channel")
        value = np.float32(np.asarray(scale).reshape(-1)[0])
        if not 0 < value < np.inf:
            raise StageError(f"a quantizer has scale {value}; scales are positive", layer=layer)
        if attrs["bits"] > 8:
            raise NoIntegerFormError(f"activations of {attrs['bits']} bits")
        low, high = quant_range(attrs["bits"], attrs["signed"], attrs["narrow"])
        if low == high:
            raise StageError(
                f"a narrow quantizer of {attrs['bits']} bit has one level, {low}",
                layer=layer,
                hint="use 2 bits, or BipolarQuant",
            )
        point = np.float32(np.asarray(zero_point).reshape(-1)[0])
        if not float(2 * point).is_integer():
            raise NoIntegerFormError(f"a zero point of {point}")
        return cls(value, point, low, high, attrs["rounding"])

    @property
    def levels(self) -> int:
        """How many integers the quantizer has."""
        return self.high - self.low + 1

    @property
    def zero_point_x2(self) -> int:
        """Twice the zero point of levels counted from 0."""
        return int(2 * self.source_zero_point) - 2 * self.low

    @property
    def rounds(self) -> bool:
        """Whether rounding is half to even."""
        return self.rounding in NEAREST

    def level(self, x: Array) -> Array:
        """The source's own float32 arithmetic."""
        clipped = np.clip(
            x / self.scale + self.source_zero_point, np.float32(self.low), np.float32(self.high)
        )
        return ROUNDING[self.rounding](clipped).astype(np.int32) - self.low


@dataclass(frozen=True)
class BipolarQuantizer:
    """QONNX BipolarQuant: level 1 (value +half) where x >= 0, else 0 (value -half)."""

    half: np.float32
    levels: int = 2
    zero_point_x2: int = 1
    rounds: bool = False

    @property
    def scale(self) -> np.float32:
        """The distance from -half to +half."""
        return np.float32(2) * self.half

    def level(self, x: Array) -> Array:
        """1 where x >= 0."""
        return (x >= 0).astype(np.int32)


@dataclass(frozen=True)
class ThresholdQuantizer:
    """MultiThreshold: the number of thresholds float32 [T, C or 1] that x reaches."""

    thresholds: Array
    scale: np.float32
    zero_point_x2: int
    rounds: bool = False

    @classmethod
    def of(cls, thresholds: Array, attrs: dict[str, Any], layer: str) -> ThresholdQuantizer:
        """From source thresholds [C or 1, T] and the operator's output scale and bias."""
        scale, bias = np.float32(attrs["out_scale"]), np.float64(attrs["out_bias"])
        if not scale > 0 or thresholds.shape[1] > 255:
            raise StageError(
                f"MultiThreshold with {thresholds.shape[1]} thresholds and out_scale {scale}; "
                "up to 255 thresholds and a positive out_scale are supported",
                layer=layer,
            )
        point = zero_point_x2(np.asarray(-bias / np.float64(scale)), layer)
        return cls(np.ascontiguousarray(thresholds.T.astype(np.float32)), scale, point)

    @property
    def levels(self) -> int:
        """One more than there are thresholds."""
        return self.thresholds.shape[0] + 1

    def level(self, x: Array) -> Array:
        """Count of thresholds reached."""
        count = np.zeros(x.shape, np.int32)
        for row in self.thresholds:
            count += x >= row
        return count
