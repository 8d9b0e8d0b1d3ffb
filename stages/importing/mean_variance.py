"""Normalization by mean and variance, as every front end's operators have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax


@dataclass(frozen=True)
class Normalized:
    """A tensor less its mean, times a factor; mean and factor with extents of 1 along the axes."""

    values: Any
    mean: Any
    factor: Any
    """`1 / sqrt(variance + epsilon)`."""


def normalized(
    emit: Callable[[Any, str], Any], data: Any, axes: Sequence[int], epsilon: Any, name: str
) -> Normalized:
    """`(x - mean) * (1 / sqrt(variance + epsilon))` over axes, each step rounded to float32.

    The variance is the mean of the squares of what is left, as PyTorch and ONNX Runtime have it.
    """
    chosen = list(axes)
    mean = emit(relax.op.mean(data, axis=chosen, keepdims=True), f"{name}.mean")
    centred = emit(relax.op.subtract(data, mean), f"{name}.centred")
    squares = emit(relax.op.multiply(centred, centred), f"{name}.squares")
    variance = emit(relax.op.mean(squares, axis=chosen, keepdims=True), f"{name}.variance")
    widened = emit(relax.op.add(variance, epsilon), f"{name}.widened")
    factor = emit(relax.op.rsqrt(widened), f"{name}.factor")
    return Normalized(emit(relax.op.multiply(centred, factor), name), mean, factor)
