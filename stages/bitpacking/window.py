"""The window that a linear layer moves over its data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stages.dialect.padding import Halo, Padding, Sides
from stages.dialect.zero_point import AT_ZERO, ZeroPoint
from stages.kernels.packing import round_up
from stages.kernels.winograd_transforms import Transform
from stages.kinds import Array


@dataclass(frozen=True)
class Window:
    """Geometry of a convolution: kernel, strides, padding, sizes of data and output."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: Padding
    size: tuple[int, int]
    output: tuple[int, int]
    transform: Transform | None = None
    """Which of Winograd's it is computed by, if it is."""

    @property
    def tile(self) -> int:
        """Sums of one of Winograd's tiles along each axis."""
        assert self.transform is not None, "nothing is transformed"
        return self.transform.outputs

    def taps(self, axis: int) -> Array:
        """Where the taps of each position lie in the image along an axis: [output, kernel]."""
        first = np.arange(self.output[axis]) * self.strides[axis] - self.padding.sides[axis]
        return first[:, None] + np.arange(self.kernel[axis])

    def halo(self, packed_rows: int, phases: int, zero_point: ZeroPoint = AT_ZERO) -> Halo:
        """What must surround the image, of bytes with a zero point or else of level 0."""
        return replace(self.padding.halo(zero_point), sides=self._around(packed_rows, phases))

    def _around(self, packed_rows: int, phases: int) -> Sides:
        """How far that reaches: the last window or tile ends in it where rows are packed, and
        phases are alike."""
        top, left, bottom, right = self.padding.sides
        height, width = self.size
        if self.transform is not None:
            rows, columns = map(self.transform.reach, self.output)
            return Sides(top, left, max(0, rows - top - height), max(0, columns - left - width))
        reached = (self.output[0] - 1) * self.strides[0] + round_up(self.kernel[0], packed_rows)
        rows = round_up(max(top + height + bottom, reached), packed_rows * phases)
        columns = round_up(left + width + right, phases)
        return Sides(top, left, rows - height - top, columns - width - left)

    def attributes(self, packed_rows: int, phases: int) -> dict[str, Any]:
        """How a packed convolution steps over an image whose rows lie so."""
        (height, width), (down, right) = self.kernel, self.strides
        return {
            "window": [-(-height // packed_rows), width],
            "rows": height,
            "strides": [down // packed_rows, right],
            "output": list(self.output),
            "phases": phases,
        }
