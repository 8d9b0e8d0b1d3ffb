"""Affine requantization: functions of integers as one fused multiply-add of float32, rounded.

Fixed-point arithmetic rescales a sum by a product of 64 bits and rounds twice, which takes a vector
processor several times as long as float32 does. Both rise, so they are the same function of
integers if they agree at every step of the one, before it and behind it. float32 has 24 bits, which
is sometimes too few for all sums of a layer; but those that come out one too low or too high are so
few that they can be named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from stages.dialect.elementwise import ARITHMETIC
from stages.dialect.numbers_numpy import NUMPY
from stages.dialect.zero_point import AT_ZERO
from stages.kinds import Array
from stages.numerics.rescale import MOST_MISSED
from stages.quantizing.chain import breakpoints

LINE = "relax.qnn.line0"
"""The operator that requantizes so and misses nothing."""
ULPS = (0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6)
"""How far a scale may be from the nearest float32, in units of its last place."""
STEEPER = (2, 4, 8, 16, 32, 64)
"""How many times as much as its function a multiply-add may rise that has a step or two: from one
integer to the next by more than what float32 loses."""
SLOPES = (*((1, ulps) for ulps in ULPS), *((times, 0) for times in STEEPER))
PLACES = (None, 0.5, 0.0625, 0.125, 0.25, 0.75, 0.875)
"""Where an offset may lie: amid those that suit all steps (None), or so far from those that are too
low towards those that are too high."""
NEAR = 2.0**-16
"""What is further from a step than this is on its side however it is rounded."""
MOST_TRIES = 1 << 14
"""Multiply-adds tried for all channels together; where it takes more, they miss too much."""
NOWHERE = np.iinfo(np.int32).min


@dataclass(frozen=True)
class Affine:
    """`round_half_even(fma(float32(x), scale, offset))`, and 1 more where x is in `low`, 1 less
    where it is in `high`.

    `scale` and `offset` are float32 [C], `low` and `high` int32 [E, C].
    """

    scale: Array
    offset: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class StepFunction:
    """A function that rises by whole steps, channel by channel.

    At `steps` [K, C] it comes to be `halves` [K] + 1/2; `reached` [K, C] says which of them its
    domain holds. `points` [P, C] are what is two and one before all steps, the steps, what is one
    behind, and the ends of the domain; `values` [P, C] are the function there. It `is_odd` if
    the offset is to have the sign of x.
    """

    steps: Array
    halves: Array
    reached: Array
    points: Array
    values: Array
    is_odd: bool

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value that the function is clipped to."""
        return int(self.halves[0] - 0.5), int(self.halves[-1] + 0.5)

    def of(self, channels: Array) -> StepFunction:
        """The function of some channels."""
        steps, reached, points, values = (
            each[:, channels] for each in (self.steps, self.reached, self.points, self.values)
        )
        return StepFunction(steps, self.halves, reached, points, values, self.is_odd)


def step_function(
    function: Callable[[Array], Array], low: Array, high: Array, bounds: tuple[int, int], odd: bool
) -> StepFunction:
    """The steps of a rising function of integers from `low` to `high`, int64 [C].

    `function` maps int64 [K, C] to integers, which are clipped to `bounds`.
    """
    first, last = bounds

    def clipped(x: Array) -> Array:
        return np.clip(function(x), first, last)

    rising = np.ones(low.size, bool)
    found = breakpoints(
        lambda x: clipped(x.astype(np.int64)) - first, rising, low, high, last - first
    )
    steps = found.astype(np.int64)
    points = np.concatenate([*(steps + behind for behind in (-2, -1, 0, 1)), [low, high]])
    points = np.clip(points, low, high)
    halves = np.arange(first, last) + 0.5
    reached = (steps > low) & (steps <= high)
    return StepFunction(steps, halves, reached, points, clipped(points), odd)


def fitted(function: StepFunction, slope: Array) -> Affine | None:
    """The multiply-add of about a `slope` (float64 [C]) that is a function, if there is one."""
    scale, offset = np.zeros((2, slope.size), np.float32)
    misses = np.full(slope.size, 2 * MOST_MISSED + 1)
    missed: list[tuple[Array, Array]] = [(np.zeros(0, int), np.zeros(0, int))] * slope.size
    tries = 0
    for (times, ulps), place in product(SLOPES, PLACES):
        left = np.flatnonzero(misses)
        tries += left.size
        if not left.size or tries > MOST_TRIES + slope.size:
            break
        part = function.of(left)
        tried = nearby(times * slope[left], ulps)
        moved = _offset(part, tried, place)
        low, high, count = _missed(part, tried, moved)
        for index in np.flatnonzero(count < misses[left]):
            channel, steps = left[index], part.steps[:, index]
            misses[channel] = count[index]
            scale[channel], offset[channel] = tried[index], moved[index]
            # Where a function rises by two at once, steps are alike.
            missed[channel] = np.unique(steps[low[:, index]]), np.unique(steps[high[:, index]] - 1)
    rows = [_rows([each[side] for each in missed]) for side in (0, 1)]
    is_close = misses.max(initial=0) <= 2 * MOST_MISSED and sum(map(len, rows)) <= MOST_MISSED
    return Affine(scale, offset, *rows) if is_close else None


def joined(parts: Sequence[Affine]) -> Affine | None:
    """The multiply-adds of some channels and of others as one; None if it misses too much."""

    def rows(missed: Sequence[Array]) -> Array:
        most = max(map(len, missed))
        padded = [np.pad(m, [(0, most - len(m)), (0, 0)], constant_values=NOWHERE) for m in missed]
        return np.concatenate(padded, axis=1)

    low, high = rows([part.low for part in parts]), rows([part.high for part in parts])
    scale, offset = (
        np.concatenate(each)
        for each in zip(*((part.scale, part.offset) for part in parts), strict=True)
    )
    return Affine(scale, offset, low, high) if len(low) + len(high) <= MOST_MISSED else None


def nearby(slope: Array, ulps: int) -> Array:
    """The float32 so many places from the nearest ones; 0, which nothing rises by, stays."""
    bits = np.asarray(slope, np.float32).view(np.int32)
    return np.where(bits == 0, bits, bits + ulps).astype(np.int32).view(np.float32)


def _rows(channels: list[Array]) -> Array:
    """Integers of each channel as int32 [E, C], filled up with one that is none."""
    found = np.full((max(map(len, channels), default=0), len(channels)), NOWHERE, np.int32)
    for channel, integers in enumerate(channels):
        found[: len(integers), channel] = integers
    return found


def _offset(function: StepFunction, scale: Array, place: float | None) -> Array:
    """An offset float32 [C] for a scale.

    At a step t to the value v, `t * scale + offset` is to be v - 1/2 at least, and less one before;
    so it is with the value at the low end of the domain, and with the next one behind the high end.
    """
    (low_end, high_end), ends = function.points[-2:], function.values[-2:]
    first, last = function.bounds
    halves = np.broadcast_to(function.halves[:, None], function.steps.shape)
    least = _Limit.of(
        function, scale, np.vstack([function.steps, low_end]), np.vstack([halves, ends[0] - 0.5]),
        ends[0] > first,
    )  # fmt: skip
    most = _Limit.of(
        function, scale, np.vstack([function.steps - 1, high_end]),
        np.vstack([halves, ends[1] + 0.5]), ends[1] < last,
    )  # fmt: skip
    # Below 0, what is taken away from an odd function is the offset.
    low, high = _largest(-most.offset, most.falls), -_largest(-most.offset, most.rises)
    if function.is_odd:
        low = np.maximum(low, 0.0)
    if place is None:
        low = np.maximum(low, _largest(least.offset, least.rises))
        high = np.minimum(high, -_largest(least.offset, least.falls))
    else:
        low = np.maximum(low, high - NEAR)
    high = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low, 0.0) + 2 * NEAR)
    low = np.where(np.isfinite(low), low, high - 2 * NEAR)
    return (low + (high - low) * (place or 0.5)).astype(np.float32)


@dataclass(frozen=True)
class _Limit:
    """By how much a multiply-add without an offset is away from values it is to have, [K + 1, C].

    An offset `rises` towards some of them and `falls` from others; some matter in neither way.
    """

    offset: Array
    rises: Array
    falls: Array

    @staticmethod
    def of(function: StepFunction, scale: Array, x: Array, values: Array, is_end: Array) -> _Limit:
        """At integers x, of which the last row counts where it `is_end`."""
        matters = np.vstack([function.reached, is_end])
        is_below = (x < 0) & function.is_odd
        offset = values - x * scale.astype(np.float64)
        return _Limit(offset, matters & ~is_below, matters & is_below)


def _largest(values: Array, where: Array) -> Array:
    """The largest of a channel's values that are asked for; minus infinity if none is."""
    return np.where(where, values, -np.inf).max(axis=0, initial=-np.inf)


def _missed(function: StepFunction, scale: Array, offset: Array) -> tuple[Array, Array, Array]:
    """The steps [K, C] at which a multiply-add is one too low, and those before which it is one too
    high; how many, where the latter count twice, or too many if it is wrong otherwise."""
    first, last = function.bounds
    lacks = function.values - ARITHMETIC[LINE](
        NUMPY, function.points, scale, offset, low_misses=0, is_odd=function.is_odd,
        zero_point=AT_ZERO, low=first, high=last, dtype="int32", fits=False,
    )  # fmt: skip
    count = len(function.steps)
    before, at = lacks[count : 2 * count], lacks[2 * count : 3 * count]
    low, high = function.reached & (at == 1), function.reached & (before == -1)
    at -= low
    before += high
    wrong = np.any(lacks != 0, axis=0)
    total = low.sum(axis=0) + 2 * high.sum(axis=0)
    return low, high, np.where(wrong, 2 * MOST_MISSED + 1, total)
