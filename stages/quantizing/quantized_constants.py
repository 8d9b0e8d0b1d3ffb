"""Quantized constants: weights behind a quantizer, and float tensors that hold integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.dialect.zero_point import AT_ZERO, BIPOLAR, ZeroPoint
from stages.errors import StageError
from stages.kinds import Array
from stages.numerics.qonnx_operators import ROUNDING, quant_range
from stages.quantizing.values import KnownQuantized

MAX_WEIGHT_BITS = 8


def quant_constant(
    value: Array, scale: Array, zero_point: Array, attrs: dict[str, Any], layer: str
) -> KnownQuantized | None:
    """The integers of a QONNX Quant over a constant (output channels first).

    None where no weights of a layer are so: of more than 8 bits, or with scales along several axes
    or with several zero points.
    """
    bits, zero_points = int(attrs["bits"]), np.unique(zero_point)
    aligned = _aligned(scale, value, layer)
    is_half = zero_points.size == 1 and float(2 * zero_points[0]).is_integer()
    if bits > MAX_WEIGHT_BITS or aligned is None or not is_half:
        return None
    low, high = quant_range(bits, attrs["signed"], attrs["narrow"])
    clipped = np.clip(value / scale + zero_point, np.float32(low), np.float32(high))
    q = ROUNDING[attrs["rounding"]](clipped)
    return KnownQuantized(
        q.astype(np.int16),
        aligned,
        one_zero_point(zero_point, layer),
        bits,
    )


def bipolar_constant(value: Array, scale: Array, layer: str) -> KnownQuantized | None:
    """The bits of a BipolarQuant over a constant: 1 is +scale, and 0 counts as positive."""
    aligned = _aligned(scale, value, layer)
    if aligned is None:
        return None
    return KnownQuantized((value >= 0).astype(np.int16), aligned * np.float32(2), BIPOLAR, 1)


def one_zero_point(zero_point: Array, layer: str) -> ZeroPoint:
    """The zero point, which must be one multiple of 1/2 for the whole tensor."""
    doubled = np.unique(np.asarray(zero_point, np.float64) * 2)
    if doubled.size != 1 or doubled[0] != np.rint(doubled[0]):
        raise StageError(
            f"zero points {np.unique(zero_point)[:4].tolist()}; one multiple of 1/2 per tensor "
            "is supported",
            layer=layer,
        )
    return ZeroPoint(int(doubled[0]))


def integer_constant(value: Array) -> KnownQuantized | None:
    """The quantized form of a float tensor that holds small integers (FINN-ONNX weights)."""
    if not np.array_equal(value, np.rint(value)) or np.abs(value).max(initial=0) > 127:
        return None
    one = np.ones((), np.float32)
    if np.all(np.abs(value) == 1):
        return KnownQuantized((value > 0).astype(np.int16), one * 2, BIPOLAR, 1)
    low, high = int(value.min()), int(value.max())
    bits = next(b for b in range(2, 9) if -(1 << (b - 1)) <= low and high < 1 << (b - 1))
    return KnownQuantized(value.astype(np.int16), one, AT_ZERO, bits)


def _aligned(scale: Array, value: Array, layer: str) -> Array | None:
    """A scale as scalar, or with the rank of the constant and one axis along which it varies; None
    if it varies along more."""
    scale = np.asarray(scale, np.float32)
    if not np.all(np.isfinite(scale)) or np.any(scale == 0) or not np.all(np.isfinite(value)):
        raise StageError("weights or their scale are not finite, or a scale is 0", layer=layer)
    if scale.size == 1:
        return scale.reshape(())
    aligned = scale.reshape((1,) * (value.ndim - scale.ndim) + scale.shape)
    varying = [axis for axis, extent in enumerate(aligned.shape) if extent != 1]
    if aligned.ndim == value.ndim and len(varying) == 1:
        axis = varying[0]
        if aligned.shape[axis] == value.shape[axis]:
            return aligned
    return None
