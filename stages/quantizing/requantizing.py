"""Chains that end in a quantizer become thresholds, or one float32 multiply-add where exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.dialect import integer
from stages.graph.builder import ModelBuilder
from stages.kinds import Array
from stages.nodes import Expr
from stages.quantizing.chain import Step, affine, breakpoints, direction, evaluate
from stages.quantizing.source_quantizers import Quantizer, ThresholdQuantizer, UniformQuantizer
from stages.quantizing.values import Chain, Quantized

MultiplyAdd = tuple[Array, Array, int, int]
"""float32 multiplier and offset [C], and the bounds of the result."""

FLOAT32_MAX = float(np.finfo(np.float32).max)
FLOAT32_WHOLE = 1 << 24
"""Up to here float32 holds every integer."""
MAX_PACKED_BITS = 3
"""Up to here thresholds are the cheapest form; beyond, a multiply-add is tried first."""


def quantize_chain(
    builder: ModelBuilder, chain: Chain, quantizer: Quantizer, name: str
) -> Quantized:
    """Emit the quantized form of a chain, exact for every value its base can hold."""
    if chain.is_integer:
        variable = _quantize_integers(builder, chain, quantizer, name)
    else:
        variable = _quantize_floats(builder, chain, quantizer, name)
    for number, pool in enumerate(chain.pools):
        variable = builder.emit(integer.max_pool2d(variable, **pool), f"{name}.pool{number}")
    return Quantized(variable, quantizer.quantization, chain.flattened)


def _quantize_integers(builder: ModelBuilder, chain: Chain, quantizer: Quantizer, name: str) -> Any:
    channels = chain.low.size
    rising = np.broadcast_to(direction(chain.steps), (channels,)) >= 0

    def composed(base: Array) -> Array:
        return quantizer.level(evaluate(chain.steps, base))

    levels = quantizer.quantization.levels
    table = breakpoints(composed, rising, chain.low, chain.high, levels.high)
    found = None
    if levels.bits > MAX_PACKED_BITS:
        found = _multiply_add(chain, quantizer, table, rising)
    if found is None:
        call = integer.threshold(
            chain.base,
            builder.tensor(f"{name}.thresholds", table),
            builder.tensor(f"{name}.flip", (~rising).astype(np.uint8)),
            dtype=levels.dtype,
            rising=bool(rising.all()),
            of_levels=True,
        )
    else:
        call = _requantize(builder, chain, found, name, levels.dtype)
    return builder.emit(call, name)


def _requantize(
    builder: ModelBuilder, chain: Chain, found: MultiplyAdd, name: str, dtype: str
) -> Any:
    """A multiply-add; between equal scales nothing is left of it but integers that move."""
    multiplier, offset, low, high = found
    moves = int(offset[0]) if np.isfinite(offset[0]) else 0
    reach = max(-int(chain.low.min()), int(chain.high.max())) + abs(moves)
    if np.all(multiplier == 1) and np.all(offset == moves) and reach < FLOAT32_WHOLE:
        return integer.saturate(chain.base, offset=moves, low=low, high=high, dtype=dtype)
    return integer.requantize(
        chain.base,
        builder.tensor(f"{name}.multiplier", multiplier),
        builder.tensor(f"{name}.offset", offset),
        low=low,
        high=high,
        dtype=dtype,
    )


def _multiply_add(
    chain: Chain, quantizer: Quantizer, table: Array, rising: Array
) -> MultiplyAdd | None:
    """The multiply-add that equals the chain, or None.

    Two monotone functions of an integer are equal where their breakpoints are, so comparing those
    compares every accumulator value.
    """
    if not quantizer.rounds:
        return None
    channels = chain.low.size
    slope, intercept = (np.broadcast_to(part, (channels,)) for part in affine(chain.steps))
    scale = np.float64(quantizer.quantization.scale)
    zero_point = quantizer.quantization.zero_point.number
    with np.errstate(over="ignore"):
        multiplier = (slope / scale).astype(np.float32)
        offset = (intercept / scale + zero_point).astype(np.float32)
    largest = np.maximum(np.abs(chain.low), np.abs(chain.high)).astype(np.float64)
    if not np.all(largest * np.abs(multiplier) + np.abs(offset) < FLOAT32_MAX):
        return None
    ends = quantizer.level(evaluate(chain.steps, np.stack([chain.low, chain.high])))
    low, high = int(ends.min()), int(ends.max())

    def candidate(base: Array) -> Array:
        return np.clip(np.rint(base.astype(np.float32) * multiplier + offset), low, high)

    if np.any((multiplier >= 0) != rising):
        return None
    most = quantizer.quantization.levels.high
    found = breakpoints(candidate, rising, chain.low, chain.high, most)
    return (multiplier, offset, low, high) if np.array_equal(found, table) else None


def _quantize_floats(builder: ModelBuilder, chain: Chain, quantizer: Quantizer, name: str) -> Any:
    value = emit_steps(builder, chain.base, chain.steps, name)
    dtype = quantizer.quantization.dtype
    if isinstance(quantizer, UniformQuantizer):
        source = quantizer.source
        zero_point = np.asarray(source.zero_point.number, np.float32)
        call = integer.quantize(
            value,
            builder.tensor(f"{name}.scale", np.asarray(source.scale)),
            builder.tensor(f"{name}.zero_point", zero_point),
            low=source.levels.low,
            high=source.levels.high,
            shift=-source.levels.low,
            rounding=quantizer.rounding,
            dtype=dtype,
        )
        return builder.emit(call, name)
    channels = int(value.ty.shape[-1])
    rows = (
        quantizer.thresholds
        if isinstance(quantizer, ThresholdQuantizer)
        else np.zeros((1, 1), np.float32)
    )
    rows = np.sort(rows, axis=0)  # how many are reached does not depend on their order
    call = integer.threshold(
        value,
        builder.tensor(f"{name}.thresholds", np.broadcast_to(rows, (rows.shape[0], channels))),
        builder.tensor(f"{name}.flip", np.zeros(channels, np.uint8)),
        dtype=dtype,
        rising=True,
        of_levels=True,
    )
    return builder.emit(call, name)


def emit_steps(builder: ModelBuilder, value: Expr, steps: Sequence[Step], name: str) -> Any:
    """Emit float steps one by one, as the source has them; returns the float variable."""
    from tvm import relax

    emitters = {
        "add": relax.op.add,
        "subtract": relax.op.subtract,
        "subtract_from": lambda x, c: relax.op.subtract(c, x),
        "multiply": relax.op.multiply,
        "divide": relax.op.divide,
        "maximum": relax.op.maximum,
        "minimum": relax.op.minimum,
    }
    for number, each in enumerate(steps):
        operand = builder.tensor(f"{name}.{each.op}{number}", each.operand)
        value = builder.emit(emitters[each.op](value, operand), f"{name}.step{number}")
    return value
