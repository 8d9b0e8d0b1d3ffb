"""What is chosen for a product, and the window it moves over its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stages.qnn.packing import round_up
from stages.qnn.signature import KernelSignature


@dataclass(frozen=True)
class Window:
    """Geometry of a convolution: kernel, strides, padding (top, left, bottom, right), output."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    size: tuple[int, int]
    output: tuple[int, int]

    def halo(self, stacked: int) -> list[int]:
        """What must surround the picture (top, left, bottom, right), so that the last window ends
        in it where rows are stacked."""
        top, left, bottom, right = self.padding
        reached = (self.output[0] - 1) * self.strides[0] + round_up(self.kernel[0], stacked)
        rows = round_up(max(top + self.size[0] + bottom, reached), stacked)
        return [top, left, rows - self.size[0] - top, right]

    def attributes(self, stacked: int) -> dict[str, Any]:
        """How a packed convolution steps over a picture whose rows are stacked."""
        (height, width), (down, right) = self.kernel, self.strides
        return {
            "window": [-(-height // stacked), width],
            "rows": height,
            "strides": [down // stacked, right],
            "output": list(self.output),
        }


@dataclass(frozen=True)
class Chosen:
    """The kernel of a product."""

    signature: KernelSignature
    window: Window
    stacked: int
    """Rows of its data that lie one behind the other, as channels of one."""

    @property
    def halo(self) -> list[int]:
        """What must surround its data."""
        return self.window.halo(self.stacked)
