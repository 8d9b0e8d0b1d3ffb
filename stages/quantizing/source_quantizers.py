"""The three quantizers of source graphs: QONNX Quant and BipolarQuant, FINN's MultiThreshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from stages.dialect.levels import Levels
from stages.dialect.rounding_modes import NEAREST_EVEN
from stages.dialect.zero_point import BIPOLAR, ZeroPoint
from stages.errors import NoIntegerFormError, StageError
from stages.kinds import Array
from stages.numerics.qonnx_operators import ROUNDING, quant_range
from stages.numerics.quantization import Quantization
from stages.quantizing.quantized_constants import one_zero_point


class Quantizer(Protocol):
    """float32 in, levels from 0 on out."""

    @property
    def quantization(self) -> Quantization:
        """What the levels mean."""

    @property
    def rounds(self) -> bool:
        """Whether a level is `clip(round_half_even(x / scale + zero_point))`."""

    def level(self, x: Array) -> Array:
        """Levels (integers) of float32 [..., C]."""


@dataclass(frozen=True)
class UniformQuantizer:
    """QONNX Quant: `round(clip(x / scale + zero_point, low, high))`, stored from 0."""

    source: Quantization
    """What its own integers mean, from `low` to `high`."""
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
        number = np.float32(np.asarray(zero_point).reshape(-1)[0])
        if not float(2 * number).is_integer():
            raise NoIntegerFormError(f"a zero point of {number}")
        levels = Levels(low, high, ZeroPoint.of(number))
        return cls(Quantization(value, levels), attrs["rounding"])

    @property
    def quantization(self) -> Quantization:
        """What levels mean that are counted from 0."""
        return Quantization(self.source.scale, self.source.levels.from_zero)

    @property
    def rounds(self) -> bool:
        """Whether rounding is half to even."""
        return self.rounding in NEAREST_EVEN

    def level(self, x: Array) -> Array:
        """The source's own float32 arithmetic."""
        low, high = map(np.float32, self.source.limits)
        zero_point = np.float32(self.source.zero_point.number)
        clipped = np.clip(x / self.source.scale + zero_point, low, high)
        return ROUNDING[self.rounding](clipped).astype(np.int32) - self.source.levels.low


@dataclass(frozen=True)
class BipolarQuantizer:
    """QONNX BipolarQuant: level 1 (value +half) where x >= 0, else 0 (value -half)."""

    half: np.float32
    rounds: bool = False

    @property
    def quantization(self) -> Quantization:
        """Two levels, as far apart as -half and +half."""
        return Quantization(np.float32(2) * self.half, Levels(0, 1, BIPOLAR))

    def level(self, x: Array) -> Array:
        """1 where x >= 0."""
        return (x >= 0).astype(np.int32)


@dataclass(frozen=True)
class ThresholdQuantizer:
    """MultiThreshold: the number of thresholds float32 [T, C or 1] that x reaches."""

    thresholds: Array
    quantization: Quantization
    """What the levels mean, of which there is one more than thresholds."""
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
        zero_point = one_zero_point(np.asarray(-bias / np.float64(scale)), layer)
        rows = np.ascontiguousarray(thresholds.T.astype(np.float32))
        return cls(rows, Quantization(scale, Levels(0, len(rows), zero_point)))

    def level(self, x: Array) -> Array:
        """Count of thresholds reached."""
        count = np.zeros(x.shape, np.int32)
        for row in self.thresholds:
            count += x >= row
        return count
