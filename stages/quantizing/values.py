"""What the rewrite knows about each tensor of the source graph."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stages.dialect.numerators import factor, offset, unit
from stages.kinds import Array
from stages.quantizing.chain import Step, Steps, affine, direction

MOST_LEVELS = 256
"""As many as a byte has."""


@dataclass(frozen=True)
class Known:
    """A float32 constant of the source graph, in the source's layout."""

    value: Array


@dataclass(frozen=True)
class Grid:
    """The values `scale * (q - zero_point)` of levels q in 0..levels-1."""

    scale: np.float32
    zero_point_x2: int
    levels: int

    @property
    def has_zero(self) -> bool:
        """Whether 0 is one of its values."""
        return self.zero_point_x2 % 2 == 0 and 0 <= self.zero_point_x2 // 2 < self.levels

    def joined(self, other: Grid) -> Grid | None:
        """A grid that has the values of both; None if none has that counts to a byte."""
        distance = self.zero_point_x2 - other.zero_point_x2
        if self.scale != other.scale or distance % 2:
            return None
        point = max(self.zero_point_x2, other.zero_point_x2)
        above = max(2 * each.levels - each.zero_point_x2 for each in (self, other))
        levels = (above + point) // 2
        return Grid(self.scale, point, levels) if levels <= MOST_LEVELS else None


@dataclass(frozen=True)
class FloatTensor:
    """A float32 tensor in the source's layout: a graph input, or what has no integer form."""

    variable: Any
    grid: Grid | None = None
    """Where all its values lie, of levels that were only moved about."""


@dataclass(frozen=True)
class KnownQuantized:
    """A quantized constant: integers `q`, `scale * (q - zero_point)`, in the source's layout.

    `scale` is a scalar or has the rank of `q` and varies along one axis.
    """

    q: Array
    scale: Array
    zero_point_x2: int
    bits: int

    def unit(self, axis: int) -> Array | None:
        """Real value of one numerator step, scalar or [O] along `axis`; None if along another."""
        steps = unit(self.scale, self.zero_point_x2)
        if steps.ndim and steps.size != steps.shape[axis]:
            return None
        return steps.reshape(-1) if steps.ndim else steps

    @property
    def floats(self) -> Array:
        """The real values, as the source computes them."""
        return np.asarray((self.q - np.float32(self.zero_point_x2 / 2)) * self.scale, np.float32)


@dataclass(frozen=True)
class Quantized:
    """An activation in quantized form: `variable` holds q in 0..levels-1, channels last."""

    variable: Any
    scale: np.float32
    zero_point_x2: int
    levels: int
    flattened: tuple[int, int, int] | None = None
    """(C, H, W) where the source has flattened a feature map that is still NHWC here."""

    @property
    def unit(self) -> Array:
        """Real value of one numerator step."""
        return unit(np.asarray(self.scale), self.zero_point_x2)

    @property
    def bits(self) -> int:
        """Bits of the narrowest unsigned dtype that holds every level."""
        return max(1, (self.levels - 1).bit_length())

    @property
    def numerator_range(self) -> tuple[int, int]:
        """Smallest and largest numerator."""
        d, o = factor(self.zero_point_x2), offset(self.zero_point_x2)
        return -o, d * (self.levels - 1) - o


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
    """As in `Quantized`."""

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
        zero_point_x2 = -2 * intercept / slope if slope else np.float64(np.nan)
        if np.float64(scale) != slope or zero_point_x2 != np.rint(zero_point_x2):
            return None
        point = int(zero_point_x2)
        return replace(origin, scale=scale, zero_point_x2=point, flattened=self.flattened)


Value = Known | KnownQuantized | Quantized | Chain | FloatTensor
