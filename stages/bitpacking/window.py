"""What is chosen for a linear layer: its kernel, its window, and how its data lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.bitpacking.layers import Layer
from stages.bitpacking.layouts import Halo, Layout, layout_of
from stages.bitpacking.sums import ends_of, most_of
from stages.qnn import packed
from stages.qnn.algebra import factor, numerators
from stages.qnn.composites import is_batched
from stages.qnn.groups import Groups
from stages.qnn.packing import round_up
from stages.qnn.registry import attributes
from stages.qnn.signature import KernelSignature
from stages.qnn.transformed import packed_winograd
from stages.qnn.winograd import Transform

Array = np.ndarray[Any, Any]


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
    def halo_of_tiles(self) -> Halo:
        """What must surround the picture, so that tiles of windows end in it."""
        top, left, _, _ = self.padding
        assert self.transform is not None, "nothing is transformed"
        bottom, right = (
            max(0, self.transform.reach(extent) - before - size)
            for extent, before, size in zip(self.output, (top, left), self.size, strict=True)
        )
        return top, left, bottom, right

    def halo(self, stacked: int, phases: int) -> Halo:
        """What must surround the picture (top, left, bottom, right), so that the last window ends
        in it where rows are stacked, and phases are alike."""
        top, left, bottom, right = self.padding
        height, width = self.size
        reached = (self.output[0] - 1) * self.strides[0] + round_up(self.kernel[0], stacked)
        rows = round_up(max(top + height + bottom, reached), stacked * phases)
        columns = round_up(left + width + right, phases)
        return top, left, rows - height - top, columns - width - left

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
    """The kernel of a linear layer."""

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
    def halo(self) -> Halo:
        """What must surround its data."""
        if self.signature.is_transformed:
            return self.window.halo_of_tiles
        return self.window.halo(self.stacked, self.phases)


@dataclass(frozen=True)
class Plan:
    """A linear layer, its kernel, and how its data lie."""

    layer: Layer
    chosen: Chosen
    layout: Layout

    @property
    def inner(self) -> Any:
        """The binding of the linear operator, in the composite."""
        return self.layer.inner

    @property
    def data(self) -> Any:
        """The variable of `main` whose values are multiplied."""
        return self.layer.data

    @property
    def signature(self) -> KernelSignature:
        """The kernel, on a tensor that may hold more than it reads."""
        signature, stored = self.chosen.signature, self.layout.stored
        return signature if stored is None else signature.reading(stored)

    @property
    def origin(self) -> list[int]:
        """Where the first window begins, in a layout whose halo may be larger."""
        return [self.layout.halo[i] - self.chosen.window.padding[i] for i in (0, 1)]

    def convolve(self, data: Any, weights: Any, bias: Any, **attrs: Any) -> Any:
        """The call of the kernel: the first window begins at `origin` of data that lie so, and
        with the first tile of tiles."""
        groups, window = self.chosen.groups.count, self.chosen.window
        outputs, *_, inputs = self.layer.weights.shape
        named = {
            "signature": packed.signature_text(self.signature),
            **window.attributes(self.layout.stacked, self.layout.phases),
            **attrs,
            "channels": [groups * inputs, outputs],
        }
        if self.signature.is_transformed:
            return packed_winograd(data, weights, bias, tile=window.tile, **named)
        return packed.packed_conv2d(data, weights, bias, origin=self.origin, groups=groups, **named)

    def most(self, constant: Array) -> Array | None:
        """The largest size of the sums of a channel plus a constant, int64 [O]; None where the
        weights are computed, or floats."""
        call = self.layer.call
        if is_batched(call) or self.signature.is_float:
            return None
        levels = numerators(self.layer.weights, attributes(call)["weight_zero_point_x2"])
        return most_of(levels, ends_of(call), constant)


def planned(layer: Layer, chosen: Chosen) -> Plan:
    """A layer whose data lie as its kernel alone wants them."""
    signature, point = chosen.signature, attributes(layer.call).get("data_zero_point_x2", 0)
    more: dict[str, Any] = {"halo": chosen.halo, "stacked": chosen.stacked, "phases": chosen.phases}
    if signature.is_float:
        more["block"] = signature.channels_per_word
    if signature.form == "bytes":
        more |= {"block": chosen.unit, "fill": fill_of(point)}
    return Plan(layer, chosen, layout_of(layer.data, signature.form, signature.stored, **more))


def fill_of(zero_point_x2: int) -> int:
    """What a halo of bytes holds; the bias corrects what no byte holds, or what means half of it,
    per border class."""
    return min(max(0, zero_point_x2 // 2), 255) if factor(zero_point_x2) == 1 else 0
