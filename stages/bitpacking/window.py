"""The window that a linear layer moves over its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stages.bitpacking.edge_layouts import Halo
from stages.dialect.padding import Padding
from stages.kernels.packing import round_up
from stages.kernels.winograd_transforms import Transform


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

    def halo(self, stacked: int, phases: int) -> Halo:
        """What must surround the image (top, left, bottom, right), so that the last window or
        tile ends in it where rows are stacked, and phases are alike."""
        top, left, bottom, right = self.padding.sides
        height, width = self.size
        if self.transform is not None:
            rows, columns = map(self.transform.reach, self.output)
            return top, left, max(0, rows - top - height), max(0, columns - left - width)
        reached = (self.output[0] - 1) * self.strides[0] + round_up(self.kernel[0], stacked)
        rows = round_up(max(top + height + bottom, reached), stacked * phases)
        columns = round_up(left + width + right, phases)
        return top, left, rows - height - top, columns - width - left

    def attributes(self, stacked: int, phases: int) -> dict[str, Any]:
        """How a packed convolution steps over an image whose rows lie so."""
        (height, width), (down, right) = self.kernel, self.strides
        return {
            "window": [-(-height // stacked), width],
            "rows": height,
            "strides": [down // stacked, right],
            "output": list(self.output),
            "phases": phases,
        }
