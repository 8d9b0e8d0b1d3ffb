"""A transposed convolution as a plain one that computes all its phases at once.

Along one axis a transposed convolution of stride s gives `y[o] = sum over i of x[i] * w[k]` with
`i * s + k * dilation = o + pad`. Outputs whose `o + pad` leaves the same remainder r by s (a phase)
read the same taps `r, r + s, ...` of the weights, spread by the dilation: each phase is a plain
convolution of stride 1, and the s * s phases of an image are so many times the channels, which are
then laid out as pixels (Shi et al., arXiv 1609.05158, section 3.2). Nothing is multiplied by the
zeros that stand between pixels in the textbook form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from stages.dialect.calls import shape_of
from stages.dialect.padding import Sides
from stages.importing.limits import MAX_ELEMENTS
from stages.importing.unsupported import UnsupportedError

Array = np.ndarray[Any, Any]
Emit = Callable[[Any, str], Any]
"""Adds a call to a graph, named after what it gives; returns that."""


@dataclass(frozen=True)
class Axis:
    """One direction: extents in pixels, `pad` cuts that many outputs off at the beginning."""

    extent: int
    output: int
    kernel: int
    stride: int
    dilation: int
    pad: int

    @property
    def taps(self) -> int:
        """Pixels that one phase reads."""
        return -(-((self.kernel - 1) * self.dilation + 1) // self.stride)

    @property
    def first(self) -> int:
        """The first position of the plain convolution that outputs come from."""
        return self.pad // self.stride

    @property
    def positions(self) -> int:
        """How many positions of it there are."""
        return (self.pad + self.output - 1) // self.stride - self.first + 1

    @property
    def pads(self) -> tuple[int, int]:
        """Zeros before and after the data of the plain convolution; negative ones cut off."""
        return self.taps - 1 - self.first, self.first + self.positions - self.extent

    @property
    def cut(self) -> int:
        """Outputs of the first position that do not count."""
        return self.pad % self.stride

    def split(self, weights: Array, axis: int) -> Array:
        """Weights with `axis` of the kernel as [stride, taps], taps as a convolution reads them."""
        shape = list(weights.shape)
        shape[axis] = self.taps * self.stride
        spread = np.zeros(shape, weights.dtype)
        where: list[Any] = [slice(None)] * weights.ndim
        where[axis] = slice(0, (self.kernel - 1) * self.dilation + 1, self.dilation)
        spread[tuple(where)] = weights
        by_phase = spread.reshape(*shape[:axis], self.taps, self.stride, *shape[axis + 1 :])
        return np.flip(np.swapaxes(by_phase, axis, axis + 1), axis + 1)


@dataclass(frozen=True)
class TransposedConvolution:
    """A transposed convolution as a plain one, in both directions of an image."""

    rows: Axis
    columns: Axis
    groups: int = 1

    @property
    def count(self) -> int:
        """How many phases a group of channels has."""
        return self.rows.stride * self.columns.stride

    @property
    def padding(self) -> Sides:
        """Rows and columns around the image; below 0 they are cut off."""
        (top, bottom), (left, right) = self.rows.pads, self.columns.pads
        return Sides(top, left, bottom, right)

    def weight(self, weights: Array) -> Array:
        """OIHW weights of the plain convolution from [C, M / groups, KH, KW], zero where none are.

        O counts groups, rows of phases, columns of phases, then the group's channels.
        """
        channels, units = weights.shape[:2]
        depth = channels // self.groups
        split = self.rows.split(self.columns.split(weights, 3), 2)
        grouped = split.reshape(self.groups, depth, units, *split.shape[2:])
        # group, depth, unit, row phase, row tap, column phase, column tap
        ordered = grouped.transpose(0, 3, 5, 2, 1, 4, 6)
        taps = self.rows.taps, self.columns.taps
        return np.ascontiguousarray(ordered.reshape(-1, depth, *taps))

    def repeated(self, values: Array) -> Array:
        """A value for each output channel [M], as one for each of the plain convolution's."""
        grouped = values.reshape(self.groups, 1, -1)
        return np.ascontiguousarray(
            np.broadcast_to(grouped, self._repeats(grouped.shape[2])).ravel()
        )

    def _repeats(self, units: int) -> tuple[int, int, int]:
        return self.groups, self.count, units

    def require_room(self, pairs: int) -> None:
        """UnsupportedError for too many weights, of so many pairs of channels."""
        values = pairs * prod(each.taps * each.stride for each in (self.rows, self.columns))
        if values > MAX_ELEMENTS:
            raise UnsupportedError(
                f"has {values:,} weights with the gaps of its strides and dilations; "
                f"at most {MAX_ELEMENTS:,} are accepted"
            )

    def inside(self, data: Any, first: int, emit: Emit) -> tuple[Any, Sides]:
        """Data without rows, its axis `first`, and columns that no output reads; the sides left."""
        padding = self.padding
        if min(padding) >= 0:
            return data, padding
        extents = self.rows.extent, self.columns.extent
        begin = [max(0, -padding[axis]) for axis in (0, 1)]
        end = [extents[axis] - max(0, -padding[2 + axis]) for axis in (0, 1)]
        inner = relax.op.strided_slice(data, [first, first + 1], begin, end)
        return emit(inner, "inside"), Sides(*(max(0, pad) for pad in padding))

    def pixels(self, value: Any, emit: Emit) -> Any:
        """What the plain convolution gives, NHWC, as the pixels that it is, those that count."""
        if self.count > 1:
            n, h, w, channels = shape_of(value.ty)
            s, t = self.rows.stride, self.columns.stride
            units = channels // (self.groups * self.count)
            split = emit(relax.op.reshape(value, (n, h, w, self.groups, s, t, units)), "apart")
            ordered = emit(relax.op.permute_dims(split, [0, 1, 4, 2, 5, 3, 6]), "transposed")
            value = emit(
                relax.op.reshape(ordered, (n, h * s, w * t, self.groups * units)), "pixels"
            )
        begin = [axis.cut for axis in (self.rows, self.columns)]
        end = [axis.cut + axis.output for axis in (self.rows, self.columns)]
        if (0, 0, *end) == (*begin, *shape_of(value.ty)[1:3]):
            return value
        return emit(relax.op.strided_slice(value, [1, 2], begin, end), "kept")
