"""What is chosen for a product, and the window it moves over its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stages.qnn.groups import Groups
from stages.qnn.packing import round_up
from stages.qnn.signature import KernelSignature
from stages.qnn.winograd import Transform


@dataclass(frozen=True)
class Window:
    """Geometry of a convolution: kernel, strides, padding (top, left, bottom, right), output."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    size: tuple[int, int]
    output: tuple[int, int]
    transform: Transform | None = None
    """Which of Winograd's it is computed by, if it is."""

    @property
    def tile(self) -> int:
        """Sums of one of Winograd's tiles along each axis."""
        assert self.transform is not None, "nothing is transformed"
        return self.transform.outputs

    @property
    def halo_of_tiles(self) -> list[int]:
        """What must surround the picture, so that tiles of windows end in it."""
        top, left, _, _ = self.padding
        assert self.transform is not None, "nothing is transformed"
        bottom, right = (
            max(0, self.transform.reach(extent) - before - size)
            for extent, before, size in zip(self.output, (top, left), self.size, strict=True)
        )
        return [top, left, bottom, right]

    def halo(self, stacked: int, phases: int) -> list[int]:
        """What must surround the picture (top, left, bottom, right), so that the last window ends
        in it where rows are stacked, and phases are alike."""
        top, left, bottom, right = self.padding
        height, width = self.size
        reached = (self.output[0] - 1) * self.strides[0] + round_up(self.kernel[0], stacked)
        rows = round_up(max(top + height + bottom, reached), stacked * phases)
        columns = round_up(left + width + right, phases)
        return [top, left, rows - height - top, columns - width - left]

    def attributes(self, stacked: int, phases: int) -> dict[str, Any]:
        """How a packed convolution steps over a picture whose rows lie so."""
        (height, width), (down, right) = self.kernel, self.strides
        return {
            "window": [-(-height // stacked), width],
            "rows": height,
            "strides": [down // stacked, right],
            "output": list(self.output),
            "phases": phases,
        }


@dataclass(frozen=True)
class Chosen:
    """The kernel of a product."""

    signature: KernelSignature
    window: Window
    stacked: int
    """Rows of its data that lie one behind the other, as channels of one."""
    phases: int
    """Kinds of rows of its data, by number modulo so many, those of each together."""
    unit: int
    """What the channels of its data are padded to: a multiple of so many."""
    groups: Groups
    """Which channels are multiplied with which."""

    @property
    def is_unpadded(self) -> bool:
        """Whether pixels of its data have no channels of padding."""
        return self.unit == 1

    @property
    def halo(self) -> list[int]:
        """What must surround its data."""
        if self.signature.is_transformed:
            return self.window.halo_of_tiles
        return self.window.halo(self.stacked, self.phases)
