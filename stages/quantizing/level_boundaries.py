"""Exact re-summation at level boundaries: float32 sums that give the levels of exact ones.

Of float convolutions between quantizers:

    conv2d(x, w), a chain of steps, a quantizer ->
        quantizer(steps(resum(float_conv2d(x, w), x, w, ...)))

How near to a boundary of two levels a sum must be to be taken again (`stages.dialect.resummation`)
follows from the chain: what a float32 sum is off by, and what the steps behind it round, both in
levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from tvm import relax

from stages.dialect.calls import shape_of
from stages.dialect.resummation import resum
from stages.graph.builder import ModelBuilder
from stages.kinds import Array
from stages.nodes import Var
from stages.numerics.quantization import Quantization
from stages.quantizing.chain import Steps, affine
from stages.quantizing.source_quantizers import BipolarQuantizer, Quantizer, UniformQuantizer

ULP = 2.0**-24
"""A float32 is off by so much of itself, at most, once it is rounded."""
ABOVE = 1 + 2.0**-16
"""Bounds times this stay above what they are in float32, and when they are added up in it."""
TO_NEAREST = ("ROUND", "HALF_EVEN", "ROUND_HALF_EVEN", "HALF_UP", "HALF_DOWN")
"""Rounding modes whose levels meet at half an integer."""


@dataclass(frozen=True)
class ExactConvolution:
    """A convolution whose sums must be exact: what it reads, weights [O, KH, KW, C], strides."""

    data: Var
    tensor: Var
    weight: Array
    """The value of that tensor."""
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Bounds:
    """Operands of `resum`, float32 [O]."""

    slope: Array
    offset: Array
    slack: Array
    least: Array


def resummed(
    builder: ModelBuilder,
    sums: Var,
    convolution: ExactConvolution,
    steps: Steps,
    quantizer: Quantizer,
) -> Var | None:
    """Sums, exact where the quantizer behind these steps could tell; None where that is unknown."""
    boundaries = boundaries_of(quantizer)
    bounds = None if boundaries is None else bounds_of(convolution.weight, steps, boundaries)
    if boundaries is None or bounds is None:
        return None
    name = str(sums.name)
    data, strides = convolution.data, list(convolution.strides)
    values = relax.op.reshape(data, (prod(shape_of(data.ty)),))  # in one row, in vectors
    sizes = builder.emit(relax.op.abs(builder.emit(values, f"{name}.values")), f"{name}.sizes")
    largest = builder.emit(relax.op.max(sizes), f"{name}.largest")
    operands = [builder.tensor(f"{name}.{part}", value) for part, value in vars(bounds).items()]
    ends = {"low": boundaries.levels.low, "high": boundaries.levels.high}
    call = resum(sums, data, convolution.tensor, *operands, largest, strides=strides, **ends)
    return builder.emit(call, f"{name}.resummed")


def bounds_of(weight: Array, steps: Steps, boundaries: Quantization) -> Bounds | None:
    """What `resum` needs to know; None where float32 does not hold it."""
    channels, terms = weight.shape[0], int(np.prod(weight.shape[1:]))
    sizes = np.abs(weight.astype(np.float64)).reshape(channels, -1).sum(1)
    slope, intercept = (np.broadcast_to(part, (channels,)) for part in affine(steps))
    scale = float(boundaries.scale)
    slope, offset = slope / scale, intercept / scale + boundaries.zero_point.number
    per_sum, fixed = _rounded(steps, boundaries, channels)
    # What the kernel rounds, the exact sum, and `resum`: slope and offset, their product and sum.
    products = terms * ULP / (1 - terms * ULP)
    slack = ((products + 4 * ULP) * np.abs(slope) + per_sum) * sizes
    least = fixed + 3 * ULP * np.abs(offset)
    with np.errstate(over="ignore"):
        parts = np.asarray([slope, offset, ABOVE * slack, ABOVE * least], np.float32)
    return Bounds(*parts) if np.isfinite(parts).all() else None


def boundaries_of(quantizer: Quantizer) -> Quantization | None:
    """What levels mean that meet at halves of `x / scale + zero_point`; None if they do not."""
    if isinstance(quantizer, BipolarQuantizer):
        return quantizer.quantization
    if isinstance(quantizer, UniformQuantizer) and quantizer.rounding in TO_NEAREST:
        return quantizer.source
    return None


def _rounded(steps: Steps, boundaries: Quantization, channels: int) -> tuple[Array, Array]:
    """What the steps round, in levels: for each unit of a sum's size, and however small it is.

    What a step rounds is multiplied by what those behind it multiply by.
    """
    per_sum, fixed = np.zeros((2, channels))
    scale, zero_point = float(boundaries.scale), abs(boundaries.zero_point.number)
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
    size, constant = size / scale, constant / scale
    return per_sum + 2 * ULP * size, fixed + ULP * (2 * constant + zero_point)
