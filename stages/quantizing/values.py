"""What the rewrite knows about each tensor of the source graph."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stages.dialect.levels import Levels
from stages.dialect.zero_point import ZeroPoint
from stages.kinds import Array
from stages.numerics.quantization import Quantization
from stages.quantizing.chain import Step, Steps, affine, direction


@dataclass(frozen=True)
class Known:
    """A float32 constant of the source graph, in the source's layout."""

    value: Array


def joined(one: Quantization, other: Quantization) -> Quantization | None:
    """What has the values of both, of levels that count from 0; None if a byte holds none such."""
    if one.scale != other.scale or one.zero_point.is_whole != other.zero_point.is_whole:
        return None
    zero_point = max(one.zero_point, other.zero_point)
    above = max(2 * each.levels.high - each.zero_point.doubled for each in (one, other))
    levels = Levels(0, (above + zero_point.doubled) // 2, zero_point)
    return Quantization(one.scale, levels) if levels.bits <= 8 else None


@dataclass(frozen=True)
class FloatTensor:
    """A float32 tensor in the source's layout: a graph input, or what has no integer form."""

    variable: Any
    quantization: Quantization | None = None
    """What all its values are, of levels that were only moved about."""


@dataclass(frozen=True)
class KnownQuantized:
    """A quantized constant: integers `q`, `scale * (q - zero_point)`, in the source's layout.

    `scale` is a scalar or has the rank of `q` and varies along one axis.
    """

    q: Array
    scale: Array
    zero_point: ZeroPoint
    bits: int

    def unit(self, axis: int) -> Array | None:
        """Real value of one numerator step, scalar or [O] along `axis`; None if along another."""
        steps = self.zero_point.unit(self.scale)
        if steps.ndim and steps.size != steps.shape[axis]:
            return None
        return steps.reshape(-1) if steps.ndim else steps

    @property
    def floats(self) -> Array:
        """The real values, as the source computes them."""
        return np.asarray((self.q - np.float32(self.zero_point.number)) * self.scale, np.float32)


@dataclass(frozen=True)
class Quantized:
    """An activation in quantized form: `variable` holds levels from 0 on, channels last."""

    variable: Any
    quantization: Quantization
    flattened: tuple[int, int, int] | None = None
    """(C, H, W) where the source has flattened a feature map that is still NHWC here."""


@dataclass(frozen=True)
class Chain:
    """A float32 tensor of the source that is steps over `base`, int32 or float, channels last.

    `low` and `high` bound the integers `base` can hold, per channel; they are empty for a float
    base. `pools` are max pools the source applies to the chain; they commute with what follows.
    """

    base: Any
    steps: Steps
    low: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    high: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    pools: tuple[dict[str, Any], ...] = ()
    quantized: Quantized | None = None
    """The quantized activation that `base` is, where it is one."""
    flattened: tuple[int, int, int] | None = None
    """(C, H, W) where the source has flattened a feature map that is still NHWC here."""

    @property
    def is_integer(self) -> bool:
        """Whether the base holds integers."""
        return self.low.size > 0

    def then(self, *steps: Step) -> Chain:
        """The chain with further steps."""
        return replace(self, steps=(*self.steps, *steps))

    def is_rising(self) -> bool:
        """Whether no channel falls with the base."""
        return bool(np.all(direction(self.steps) >= 0))

    def as_quantized(self) -> Quantized | None:
        """The quantized form with scalar affine steps absorbed, where that is exact."""
        origin = self.quantized
        if origin is None or self.pools:
            return None
        if any(s.operand.ndim or s.op in ("maximum", "minimum") for s in self.steps):
            return None
        slope, intercept = affine(self.steps)
        scale = np.float32(slope)
        doubled = -2 * intercept / slope if slope else np.float64(np.nan)
        if np.float64(scale) != slope or doubled != np.rint(doubled):
            return None
        levels = replace(origin.quantization.levels, zero_point=ZeroPoint(int(doubled)))
        return Quantized(origin.variable, Quantization(scale, levels), self.flattened)


Value = Known | KnownQuantized | Quantized | Chain | FloatTensor
