"""Images as tensors: how one lies in a tensor, how large it is, what stored integers mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.kinds import Array

_NEAR = 0.01


@dataclass(frozen=True)
class Layout:
    """How a tensor holds an image."""

    channels: int
    height: int
    width: int
    is_channels_last: bool

    def place(self, pixels: Array) -> Array:
        """Return [height, width, channels] with its axes in the tensor's order."""
        import numpy as np

        return pixels if self.is_channels_last else np.moveaxis(pixels, -1, 0)


def layout(shape: Sequence[int]) -> Layout | None:
    """Return how a tensor of this shape holds one image of 1 or 3 channels, None if it cannot.

    Channels stand first, as in ONNX, wherever both readings are possible. A tensor with one long
    axis holds a square gray image line by line.
    """
    axes = list(shape)
    while len(axes) > 1 and axes[0] == 1:
        del axes[0]
    if len(axes) == 1:
        side = math.isqrt(axes[0])
        return Layout(1, side, side, False) if side * side == axes[0] else None
    if len(axes) == 2:
        return Layout(1, axes[0], axes[1], False)
    if len(axes) == 3 and axes[0] == 3:
        return Layout(3, axes[1], axes[2], False)
    if len(axes) == 3 and axes[2] in (1, 3):
        return Layout(axes[2], axes[0], axes[1], True)
    return None


def fitting(height: int, width: int, shorter: int | None = None) -> dict[str, str]:
    """Return the fields `resize` and `crop`, as YAML, that make any image height x width pixels.

    An image is scaled until it covers the size, and the middle is cut out. `shorter`, for square
    inputs, is what its shorter side is scaled to instead.
    """
    size = str(height) if height == width else f"[{height}, {width}]"
    return {"resize": str(shorter or size), "crop": size}


def are_less_128(scale: float, zero_point: float) -> bool:
    """Whether an int8 input is as converters make it for pixels: the pixel less 128.

    Real values are then 0 up to some largest one (zero point -128), or -1 to 1 (scale 1/128).
    """
    return zero_point == -128 or (zero_point in (0, -1) and abs(scale * 128 - 1) < _NEAR)
