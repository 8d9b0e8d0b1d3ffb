"""Float convolutions between quantizers: float32 sums that give the levels of exact ones.

    conv2d(x, w), a chain of steps, a quantizer ->
        quantizer(steps(settle(float_conv2d(x, w), x, w, ...)))

How near to a boundary of two levels a sum must be to be settled (`stages.qnn.settling`) follows
from the chain: what a float32 sum is off by, and what the steps behind it round, both in levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from stages.qnn.builder import ModelBuilder
from stages.qnn.settling import settle
from stages.quantizing.chain import Steps, affine
from stages.quantizing.quantizers import BipolarQuantizer, Quantizer, UniformQuantizer

Array = np.ndarray[Any, Any]

ULP = 2.0**-24
"""A float32 is off by so much of itself, at most, once it is rounded."""
SAFETY = 2.0
"""All bounds times this, for what the comparison itself rounds."""
HALVES = ("ROUND", "HALF_EVEN", "ROUND_HALF_EVEN", "HALF_UP", "HALF_DOWN")
"""Rounding modes whose levels meet at half an integer."""


@dataclass(frozen=True)
class Sums:
    """A convolution whose sums must be exact: what it reads, weights [O, KH, KW, C], strides."""

    data: Any
    tensor: Any
    weight: Array
    """The value of that tensor."""
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Bounds:
    """Operands of `settle`, float32 [O]."""

    slope: Array
    offset: Array
    slack: Array
    least: Array


def settled(
    builder: ModelBuilder, sums: Any, of: Sums, steps: Steps, quantizer: Quantizer
) -> Any | None:
    """Sums, exact where the quantizer behind these steps could tell; None where that is unknown."""
    bounds = bounds_of(of.weight, steps, quantizer)
    if bounds is None:
        return None
    name = str(sums.name)
    sizes = builder.emit(relax.op.abs(of.data), f"{name}.sizes")
    largest = builder.emit(relax.op.max(sizes), f"{name}.largest")
    named = vars(bounds).items()
    operands = [builder.tensor(f"{name}.{part}", value) for part, value in named]
    call = settle(sums, of.data, of.tensor, *operands, largest, strides=list(of.strides))
    return builder.emit(call, f"{name}.settled")


def bounds_of(weight: Array, steps: Steps, quantizer: Quantizer) -> Bounds | None:
    """What `settle` needs to know; None for quantizers whose levels do not meet at halves."""
    found = _grid(quantizer)
    if found is None:
        return None
    scale, point = found
    channels, *window = weight.shape
    sizes = np.abs(weight.astype(np.float64)).reshape(channels, -1).sum(1)
    slope, intercept = (np.broadcast_to(part, (channels,)) for part in affine(steps))
    per_sum, fixed = _rounded(steps, scale, channels)
    products = (2 * int(np.prod(window)) + 2) * ULP
    slack = (products * np.abs(slope) / scale + per_sum) * sizes
    least = fixed + ULP * (np.abs(intercept / scale) + abs(point) + 1)
    parts = slope / scale, intercept / scale + point, SAFETY * slack, SAFETY * least
    with np.errstate(over="ignore"):
        rounded = [np.asarray(part, np.float32) for part in parts]
    return Bounds(*rounded) if all(np.isfinite(part).all() for part in rounded) else None


def _grid(quantizer: Quantizer) -> tuple[float, float] | None:
    """The distance of two levels, and what is added so that they meet at half an integer."""
    if isinstance(quantizer, BipolarQuantizer):
        return float(quantizer.scale), 0.5
    if isinstance(quantizer, UniformQuantizer) and quantizer.rounding in HALVES:
        return float(quantizer.scale), float(quantizer.source_zero_point)
    return None


def _rounded(steps: Steps, scale: float, channels: int) -> tuple[Array, Array]:
    """What the steps round, in levels: for each unit of a sum's size, and however small it is.

    What a step rounds is multiplied by what those behind it multiply by.
    """
    per_sum, fixed = np.zeros((2, channels))
    size, constant = np.ones(channels), np.zeros(channels)
    for number, each in enumerate(steps):
        operand = np.abs(each.operand.astype(np.float64))
        if each.op in ("multiply", "divide"):
            factor = operand if each.op == "multiply" else 1 / operand
            size, constant = size * factor, constant * factor
        else:
            constant = constant + operand
        behind = np.abs(affine(steps[number + 1 :])[0]) / scale
        per_sum, fixed = per_sum + ULP * size * behind, fixed + ULP * constant * behind
    # The quantizer divides by its scale and adds its zero point.
    return per_sum + 2 * ULP * size / scale, fixed + 2 * ULP * (constant / scale + 1)
