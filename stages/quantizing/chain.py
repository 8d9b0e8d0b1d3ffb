"""Chains of float32 steps over integers, and the exact thresholds they amount to.

Between an accumulator and the next quantizer a source graph computes float32 element by element:
scale, bias, batch normalization, activation, round. Every step is monotone, also after rounding,
so the whole chain is, and its effect on integers is a list of thresholds per channel that
bisection finds exactly by evaluating the source's own arithmetic. (FINN's streamlining, Umuroglu &
Jahre 2017, section III, folds them algebraically: that is not exact in float32.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.kinds import Array

Level = Callable[[Array], Array]

INT32_MAX = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Step:
    """One float32 step `x op operand` (`operand op x` where reversed); operand scalar or [C]."""

    op: str
    operand: Array

    def apply(self, x: Array) -> Array:
        """The step's float32 result; the channel axis of `x` is its last."""
        return OPERATIONS[self.op](x, self.operand).astype(np.float32)

    def direction(self) -> Array:
        """+1, -1 or 0 per operand element: rising, falling or constant in x."""
        if self.op in ("multiply", "divide"):
            return np.sign(self.operand).astype(np.int8)
        return np.full(self.operand.shape, -1 if self.op == "subtract_from" else 1, np.int8)


OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda x, c: x + c,
    "subtract": lambda x, c: x - c,
    "subtract_from": lambda x, c: c - x,
    "multiply": lambda x, c: x * c,
    "divide": lambda x, c: x / c,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
"""What each step computes, in float32."""

Steps = tuple[Step, ...]


def step(op: str, operand: Any) -> Step:
    """A step with a float32 operand; an operand of one element becomes a scalar."""
    value = np.asarray(operand, np.float32).reshape(-1)
    return Step(op, value.reshape(()) if value.size == 1 else value)


def evaluate(steps: Steps, x: Array) -> Array:
    """float32 result of the steps on `x`, whose last axis is the channel axis."""
    value = x.astype(np.float32)
    with np.errstate(over="ignore"):  # an infinite value is clipped by the quantizer behind it
        for each in steps:
            value = each.apply(value)
    return value


def direction(steps: Steps) -> Array:
    """+1, -1 or 0 per channel (or a scalar): how the chain moves with its input."""
    result: Array = np.ones((), np.int8)
    for each in steps:
        result = result * each.direction()
    return result


def breakpoints(level: Level, rising: Array, low: Array, high: Array, count: int) -> Array:
    """Exact thresholds int32 [count, C] of a monotone integer function of integers in [low, high].

    `level` maps int32 [K, C] to levels 0..count, rising with the input where `rising` [C] is true
    and falling elsewhere. Row k-1 holds, for a rising channel, the smallest input whose level is
    at least k (INT32_MAX where none is); for a falling one, the smallest whose level is below k.
    """
    wanted = np.arange(1, count + 1, dtype=np.int32)[:, None]
    left = np.broadcast_to(low, (count, low.size)).astype(np.int64)
    right = np.broadcast_to(high.astype(np.int64) + 1, left.shape).copy()
    left = left.copy()
    while np.any(left < right):
        middle = (left + right) >> 1
        inside = np.minimum(middle, high).astype(np.int32)
        passed = (level(inside) >= wanted) == rising
        passed |= middle > high
        active = left < right
        right = np.where(active & passed, middle, right)
        left = np.where(active & ~passed, middle + 1, left)
    return np.where(right > high, INT32_MAX, right).astype(np.int32)


def affine(steps: Steps) -> tuple[Array, Array]:
    """Slope and intercept (float64) of the chain's unclipped part, ignoring its roundings."""
    slope: Array = np.ones((), np.float64)
    intercept: Array = np.zeros((), np.float64)
    for each in steps:
        c = each.operand.astype(np.float64)
        if each.op == "add":
            intercept = intercept + c
        elif each.op == "subtract":
            intercept = intercept - c
        elif each.op == "subtract_from":
            slope, intercept = -slope, c - intercept
        elif each.op == "multiply":
            slope, intercept = slope * c, intercept * c
        elif each.op == "divide":
            slope, intercept = slope / c, intercept / c
    return slope, intercept
