"""Pixels at inputs of stored integers: what their scale and zero point tell."""

from __future__ import annotations

_NEAR = 0.01


def are_less_128(scale: float, zero_point: float) -> bool:
    """Whether an int8 input is as converters make it for pixels: the pixel less 128.

    Real values are then 0 up to some largest one (zero point -128), or -1 to 1 (scale 1/128).
    """
    return zero_point == -128 or (zero_point in (0, -1) and abs(scale * 128 - 1) < _NEAR)
